"""What each call returns beside a capture, and what becomes of the capture.

A line for each call: in each of four situations its result, the first letter of the capture's status then,
and how the capture ends.
"""

import ctypes

from calls import KERNELS, done, start
from calls import short as name_of
from cuda.bindings import driver

device, context = start()
MODES = driver.CUstreamCaptureMode
GLOBAL, OWN, RELAXED = (
    MODES.CU_STREAM_CAPTURE_MODE_GLOBAL,
    MODES.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    MODES.CU_STREAM_CAPTURE_MODE_RELAXED,
)
SITUATIONS = {  # the captured stream's flags, the mode, whether the capture has failed already
    "global": (1, GLOBAL, False),
    "own": (0, OWN, False),
    "relaxed": (1, RELAXED, False),
    "failed": (0, RELAXED, True),
}
module = done(driver.cuModuleLoadData(KERNELS))
nothing = done(driver.cuModuleGetFunction(module, b"nothing"))
memory = int(done(driver.cuMemAlloc(4096)))
pooled = int(done(driver.cuMemAllocAsync(4096, 0)))
for place in (memory, pooled):
    done(driver.cuMemsetD8(place, 0, 4096))
done(driver.cuCtxSynchronize())
pinned = int(done(driver.cuMemHostAlloc(4096, 0)))
pageable = (ctypes.c_ubyte * 4096)()
host = ctypes.addressof(pageable)
beside = done(driver.cuStreamCreate(1))
old = done(driver.cuEventCreate(2))
done(driver.cuEventRecord(old, beside))
done(driver.cuEventSynchronize(old))
fresh = done(driver.cuEventCreate(0))


def graph_of(*, fills):
    graph = done(driver.cuGraphCreate(0))
    for value in range(fills):
        fill = driver.CUDA_MEMSET_NODE_PARAMS()
        fill.dst, fill.value, fill.elementSize, fill.width, fill.height = memory, value, 1, 16, 1
        done(driver.cuGraphAddMemsetNode(graph, [], 0, fill, context))
    return graph


graph = graph_of(fills=2)
ready = done(driver.cuGraphInstantiate(graph, 0))
device_pool = done(driver.cuDeviceGetDefaultMemPool(device))


def launch(stream, function=nothing, grid=(1, 1, 1), block=(1, 1, 1), shared=0):
    return driver.cuLaunchKernel(function, *grid, *block, shared, stream, 0, 0)


def copy_rows(call, *stream):
    copy = driver.CUDA_MEMCPY2D()
    copy.srcMemoryType = copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.dstDevice, copy.srcPitch, copy.dstPitch = memory, memory + 2048, 64, 64
    copy.WidthInBytes, copy.Height = 16, 4
    return getattr(driver, call)(copy, *stream)


def wait_value(stream, address, flags=0):
    return driver.cuStreamWaitValue32(stream, address, 0, flags)


def undone(call, undo):
    """A call that makes something, which goes once the capture has ended."""
    answer = call()
    if int(answer[0]) == 0:
        leftovers.append(lambda: done(undo(answer[-1])))
    return answer


def begin(stream):
    answer = driver.cuStreamBeginCapture(stream, RELAXED)
    if int(answer[0]) == 0:
        done(driver.cuGraphDestroy(done(driver.cuStreamEndCapture(stream))))
    return answer


def spare(make):
    """Something that a call may take away: made before the capture."""

    def get():
        if make not in spares:
            spares[make] = done(make())
        return spares[make]

    return get


spares: dict = {}
leftovers: list = []
a_memory = spare(lambda: driver.cuMemAlloc(512))
a_pinned = spare(lambda: driver.cuMemHostAlloc(512, 0))
a_module = spare(lambda: driver.cuModuleLoadData(KERNELS))
a_stream = spare(lambda: driver.cuStreamCreate(1))
an_event = spare(lambda: driver.cuEventCreate(0))
a_graph = spare(lambda: driver.cuGraphCreate(0))
an_executable = spare(lambda: driver.cuGraphInstantiate(graph, 0))
taken: set = set()


def take(which):
    taken.add(which)
    return which()


WHERE = {"inside": None, "beside": beside, "default": driver.CUstream(0)}
ON_STREAMS = {
    "launch": launch,
    "launch of no block": lambda s: launch(s, block=(0, 1, 1)),
    "launch of a block too large": lambda s: launch(s, block=(2048, 1, 1)),
    "launch with too much shared memory": lambda s: launch(s, shared=300000),
    "launch of no function": lambda s: launch(s, function=driver.CUfunction(0)),
    "fill": lambda s: driver.cuMemsetD8Async(memory, 1, 64, s),
    "fill misaligned": lambda s: driver.cuMemsetD32Async(memory + 1, 1, 4, s),
    "fill of nothing": lambda s: driver.cuMemsetD8Async(memory, 1, 0, s),
    "fill of what is no memory": lambda s: driver.cuMemsetD8Async(64, 1, 4, s),
    "copy within": lambda s: driver.cuMemcpyDtoDAsync(memory, memory + 64, 64, s),
    "copy within of nothing": lambda s: driver.cuMemcpyDtoDAsync(memory, memory + 64, 0, s),
    "copy within to what is no memory": lambda s: driver.cuMemcpyDtoDAsync(64, memory, 4, s),
    "copy to": lambda s: driver.cuMemcpyHtoDAsync(memory, host, 64, s),
    "copy to of nothing": lambda s: driver.cuMemcpyHtoDAsync(memory, host, 0, s),
    "copy from": lambda s: driver.cuMemcpyDtoHAsync(pinned, memory, 64, s),
    "copy from what is no memory": lambda s: driver.cuMemcpyDtoHAsync(pinned, 64, 4, s),
    "copy": lambda s: driver.cuMemcpyAsync(memory, pinned, 64, s),
    "copy of rows": lambda s: copy_rows("cuMemcpy2DAsync", s),
    "write": lambda s: driver.cuStreamWriteValue32(s, memory, 1, 0),
    "write misaligned": lambda s: driver.cuStreamWriteValue32(s, memory + 1, 1, 0),
    "write to a pool's memory": lambda s: driver.cuStreamWriteValue32(s, pooled, 1, 0),
    "write to pinned memory": lambda s: driver.cuStreamWriteValue32(s, pinned, 1, 0),
    "wait for a value": lambda s: wait_value(s, memory),
    "wait for a value misaligned": lambda s: wait_value(s, memory + 1),
    "wait for a value in a pool's memory": lambda s: wait_value(s, pooled),
    "wait for a value with wrong flags": lambda s: wait_value(s, memory, 64),
    "allocate in order nothing": lambda s: driver.cuMemAllocAsync(0, s),
    "free in order no memory": lambda s: driver.cuMemFreeAsync(64, s),
    "record": lambda s: driver.cuEventRecord(fresh, s),
    "record with wrong flags": lambda s: driver.cuEventRecordWithFlags(fresh, s, 64),
    "wait for the past": lambda s: driver.cuStreamWaitEvent(s, old, 0),
    "wait with wrong flags": lambda s: driver.cuStreamWaitEvent(s, old, 64),
    "wait for what was never recorded": lambda s: driver.cuStreamWaitEvent(s, unrecorded, 0),
    "launch a graph": lambda s: driver.cuGraphLaunch(ready, s),
    "upload a graph": lambda s: driver.cuGraphUpload(ready, s),
    "query": driver.cuStreamQuery,
    "synchronize": driver.cuStreamSynchronize,
    "priority": driver.cuStreamGetPriority,
    "flags": driver.cuStreamGetFlags,
    "context": driver.cuStreamGetCtx,
    "capturing": driver.cuStreamIsCapturing,
    "attach": lambda s: driver.cuStreamAttachMemAsync(s, memory, 0, 1),
    "begin": begin,
    "depend": lambda s: driver.cuStreamUpdateCaptureDependencies(s, [], None, 0, 1),
}
unrecorded = done(driver.cuEventCreate(0))
OTHERS = {
    "allocate": lambda: undone(lambda: driver.cuMemAlloc(64), driver.cuMemFree),
    "allocate nothing": lambda: driver.cuMemAlloc(0),
    "allocate rows": lambda: driver.cuMemAllocPitch(64, 4, 16),
    "allocate pinned": lambda: undone(lambda: driver.cuMemHostAlloc(64, 0), driver.cuMemFreeHost),
    "free": lambda: driver.cuMemFree(take(a_memory)),
    "free no memory": lambda: driver.cuMemFree(64),
    "free pinned": lambda: driver.cuMemFreeHost(take(a_pinned)),
    "register": lambda: undone(
        lambda: driver.cuMemHostRegister(host, 4096, 0), lambda _: driver.cuMemHostUnregister(host)
    ),
    "register nothing": lambda: driver.cuMemHostRegister(host, 0, 0),
    "memory there is": driver.cuMemGetInfo,
    "reserve": lambda: undone(
        lambda: driver.cuMemAddressReserve(2 << 20, 0, 0, 0), lambda at: driver.cuMemAddressFree(at, 2 << 20)
    ),
    "array": lambda: undone(lambda: driver.cuArrayCreate(an_array()), driver.cuArrayDestroy),
    "pool": lambda: undone(lambda: driver.cuMemPoolCreate(pool_properties()), driver.cuMemPoolDestroy),
    "trim a pool": lambda: driver.cuMemPoolTrimTo(device_pool, 0),
    "load": lambda: undone(lambda: driver.cuModuleLoadData(KERNELS), driver.cuModuleUnload),
    "load garbage": lambda: driver.cuModuleLoadData(b"no image"),
    "unload": lambda: driver.cuModuleUnload(take(a_module)),
    "library": lambda: undone(
        lambda: driver.cuLibraryLoadData(KERNELS, [], [], 0, [], [], 0), driver.cuLibraryUnload
    ),
    "function": lambda: driver.cuModuleGetFunction(a_module(), b"store"),
    "variable": lambda: driver.cuModuleGetGlobal(module, b"seen"),
    "attribute": lambda: driver.cuFuncSetAttribute(
        nothing, driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024
    ),
    "occupancy": lambda: driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(nothing, 32, 0),
    "stream": lambda: undone(lambda: driver.cuStreamCreate(1), driver.cuStreamDestroy),
    "destroy a stream": lambda: driver.cuStreamDestroy(take(a_stream)),
    "event": lambda: undone(lambda: driver.cuEventCreate(0), driver.cuEventDestroy),
    "destroy an event": lambda: driver.cuEventDestroy(take(an_event)),
    "query the past": lambda: driver.cuEventQuery(old),
    "query what was never recorded": lambda: driver.cuEventQuery(unrecorded),
    "synchronize with the past": lambda: driver.cuEventSynchronize(old),
    "synchronize the context": driver.cuCtxSynchronize,
    "limit": lambda: driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_STACK_SIZE, 1024),
    "cache": lambda: driver.cuCtxSetCacheConfig(driver.CUfunc_cache.CU_FUNC_CACHE_PREFER_L1),
    "graph": lambda: undone(lambda: driver.cuGraphCreate(0), driver.cuGraphDestroy),
    "instantiate": lambda: undone(lambda: driver.cuGraphInstantiate(graph, 0), driver.cuGraphExecDestroy),
    "instantiate what was captured": lambda: undone(
        lambda: driver.cuGraphInstantiate(a_graph(), 0), driver.cuGraphExecDestroy
    ),
    "update": lambda: driver.cuGraphExecUpdate(ready, graph),
    "destroy a graph": lambda: driver.cuGraphDestroy(take(a_graph)),
    "destroy an executable": lambda: driver.cuGraphExecDestroy(take(an_executable)),
    "trim graphs' memory": lambda: driver.cuDeviceGraphMemTrim(device),
    "attribute of memory": lambda: driver.cuPointerGetAttribute(
        driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory
    ),
    "export": lambda: driver.cuIpcGetMemHandle(memory),
    "fill that waits": lambda: driver.cuMemsetD8(memory, 1, 64),
    "fill that waits misaligned": lambda: driver.cuMemsetD32(memory + 1, 1, 4),
    "copy to that waits": lambda: driver.cuMemcpyHtoD(memory, host, 64),
    "copy from that waits": lambda: driver.cuMemcpyDtoH(host, memory, 64),
    "copy within that waits": lambda: driver.cuMemcpyDtoD(memory, memory + 64, 64),
    "copy that waits": lambda: driver.cuMemcpy(memory, pinned, 64),
    "copy of nothing that waits": lambda: driver.cuMemcpyHtoD(memory, host, 0),
    "copy of rows that waits": lambda: copy_rows("cuMemcpy2D"),
    "primary context": lambda: undone(
        lambda: driver.cuDevicePrimaryCtxRetain(device), lambda _: driver.cuDevicePrimaryCtxRelease(device)
    ),
}


def an_array():
    array = driver.CUDA_ARRAY_DESCRIPTOR()
    array.Width, array.Height, array.NumChannels = 16, 4, 1
    array.Format = driver.CUarray_format.CU_AD_FORMAT_FLOAT
    return array


def pool_properties():
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = int(device)
    return properties


def short(result):
    return name_of(result).removeprefix("STREAM_CAPTURE_")


def beside_a_capture(call, flags, mode, failed):
    """Begin a capture, call, end it; say what came of it."""
    for each in (a_memory, a_pinned, a_module, a_stream, an_event, a_graph, an_executable):
        each()
    stream = done(driver.cuStreamCreate(flags))
    done(driver.cuStreamBeginCapture(stream, mode))
    done(launch(stream))
    if failed:
        assert int(driver.cuStreamSynchronize(stream)[0]) != 0
    result = short(call(stream)[0])
    status = done(driver.cuStreamIsCapturing(stream)).name.removeprefix("CU_STREAM_CAPTURE_STATUS_")
    end, captured = driver.cuStreamEndCapture(stream)
    nodes = ""
    if int(end) == 0:
        nodes = f" {done(driver.cuGraphGetNodes(captured, 0))[1]}"
        done(driver.cuGraphDestroy(captured))
    driver.cuStreamSynchronize(stream)
    done(driver.cuStreamDestroy(stream))
    done(driver.cuCtxSynchronize())
    for undo in leftovers:
        undo()
    leftovers.clear()
    if result == "SUCCESS":
        for which in taken:
            for make in [make for make, made in spares.items() if made is which()]:
                del spares[make]
    taken.clear()
    return f"{result} {status[0]} {short(end)}{nodes}"


def table(name, call):
    print(f"{name}:", ", ".join(beside_a_capture(call, *situation) for situation in SITUATIONS.values()))


for name, call in ON_STREAMS.items():
    for where, stream in WHERE.items():
        table(f"{name} {where}", lambda inside, call=call, stream=stream: call(stream or inside))
for name, call in OTHERS.items():
    table(name, lambda _, call=call: call())
