"""Managed memory: the host and kernels at one address, advice, copies of every kind, and what is refused."""

import ctypes
import threading

from calls import KERNELS, done, launch, names, start
from cuda.bindings import driver

MIB = 1 << 20
device, context = start()
module = done(driver.cuModuleLoadData(KERNELS))
store = done(driver.cuModuleGetFunction(module, b"store"))
increment = done(driver.cuModuleGetFunction(module, b"increment"))
stream = done(driver.cuStreamCreate(1))


def word(address):
    """The word that the host sees."""
    return ctypes.c_uint32.from_address(int(address))


def location(kind, number=0):
    """A CUmemLocation."""
    made = driver.CUmemLocation()
    made.type = getattr(driver.CUmemLocationType, "CU_MEM_LOCATION_TYPE_" + kind)
    made.id = number
    return made


for name in ("MANAGED_MEMORY", "CONCURRENT_MANAGED_ACCESS", "PAGEABLE_MEMORY_ACCESS"):
    attribute = getattr(driver.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_" + name)
    print(name, done(driver.cuDeviceGetAttribute(attribute, device)))
for flags in range(9):
    result, address = driver.cuMemAllocManaged(100, flags)
    print(flags, result.name)
    if int(result) == 0:
        names(driver.cuMemFree(address))
names(driver.cuMemAllocManaged(0, 1), driver.cuMemAllocManaged(1 << 60, 1))

# Many of them, written by the host and by kernels in turn.
several = [int(done(driver.cuMemAllocManaged(size, 1))) for size in (1, 4096, 4097, MIB, 3 * MIB + 5)]
print(len(set(several)), [address % 256 for address in several])
for turn in range(3):
    for address in several[1:]:
        word(address).value += 10
        done(launch(increment, stream, address))
    done(driver.cuStreamSynchronize(stream))
    print(turn, [word(address).value % 100 for address in several[1:]] == [11 * (turn + 1)] * 4)
a, b = several[4], several[3]
ctypes.memset(a, 0, 3 * MIB)

# Each kind of copy, in one stream; nothing is seen before the stream got there.
plain = (ctypes.c_uint32 * 1024)(*range(1024))
pinned = int(done(driver.cuMemHostAlloc(4096, 0)))
memory = int(done(driver.cuMemAlloc(4096)))
host = ctypes.addressof(plain)
names(
    driver.cuMemcpyHtoDAsync(a, host, 4096, stream),
    driver.cuMemcpyDtoDAsync(memory, a, 4096, stream),
    driver.cuMemcpyAsync(a + MIB, memory, 4096, stream),
    driver.cuMemcpyDtoHAsync(pinned, a + MIB, 4096, stream),
    driver.cuMemcpyAsync(b, pinned, 4096, stream),
    driver.cuMemcpyDtoDAsync(a + 2 * MIB, b, 4096, stream),
    driver.cuMemsetD32Async(b, 5, 512, stream),
    driver.cuMemcpyHtoDAsync(b + 8192, a, 4096, stream),
    driver.cuStreamSynchronize(stream),
)
print(
    [word(a + offset + 4 * 700).value for offset in (0, MIB, 2 * MIB)], word(b).value, word(b + 4 * 700).value
)
print(word(b + 8192 + 400).value)
names(
    driver.cuMemcpy(a, b, 4096),
    driver.cuMemcpyDtoH(a + 4096, memory, 4096),
    driver.cuMemcpyHtoD(memory, a, 4096),
    driver.cuMemcpyDtoD(b, memory, 4096),
    driver.cuMemcpyPeer(a + 8192, context, b, context, 4096),
)
print(word(a).value, word(a + 4096 + 40).value, word(b + 4 * 600).value, word(a + 8192).value)
names(
    driver.cuMemsetD8(a, 1, 64), driver.cuMemsetD16(a + 64, 2, 32), driver.cuMemsetD2D32(a + 128, 64, 3, 4, 3)
)
print(word(a).value, word(a + 64).value, [word(a + 128 + 64 * row + 12).value for row in range(3)])
names(
    driver.cuMemsetD32(a + 2, 0, 1),
    driver.cuMemsetD8(a, 0, 4 * MIB),
    driver.cuMemcpy(a, memory, 4 * MIB),
    driver.cuMemcpyHtoD(a + 3 * MIB, host, 4096),
)

# A rectangle from managed memory to itself; no word that a stream writes.
shape = driver.CUDA_MEMCPY2D()
shape.srcMemoryType = shape.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_UNIFIED
shape.srcDevice, shape.srcPitch, shape.dstDevice, shape.dstPitch = a + 4096, 256, b, 128
shape.WidthInBytes, shape.Height = 100, 8
names(driver.cuMemcpy2DAsync(shape, stream), driver.cuStreamWriteValue32(stream, b + 4096, 77, 0))
names(driver.cuStreamSynchronize(stream))
print([word(b + 128 * row + 96).value for row in range(8)], word(b + 4096).value)

# The host lets a stream go on; by a word of pinned memory, since managed words are refused.
equal = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
word(pinned).value = 0
names(driver.cuStreamWaitValue32(stream, b, 6, equal), driver.cuStreamWaitValue32(stream, pinned, 6, equal))
names(launch(store, stream, b + 4, ctypes.c_uint32(8)), driver.cuStreamQuery(stream))
threading.Timer(0.02, lambda: setattr(word(pinned), "value", 6)).start()
names(driver.cuStreamSynchronize(stream))
print(word(b + 4).value)

# A graph, captured and by hand of its own memory.
names(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
names(
    driver.cuMemsetD32Async(a, 40, 4, stream),
    launch(increment, stream, a),
    driver.cuMemcpyDtoDAsync(b, a, 16, stream),
    driver.cuMemcpyDtoHAsync(pinned, b, 16, stream),
)
graph = done(driver.cuStreamEndCapture(stream))
made = done(driver.cuGraphInstantiate(graph, 0))
for _ in range(2):
    names(driver.cuGraphLaunch(made, stream), driver.cuStreamSynchronize(stream))
    print([word(address).value for address in (a, a + 4, b, b + 4, pinned)])
    word(b).value = 0
names(driver.cuGraphExecDestroy(made), driver.cuGraphDestroy(graph))

# What a pointer is.
KIND = driver.CUpointer_attribute
TOLD = {"DEVICE_POINTER": a, "HOST_POINTER": a, "RANGE_START_ADDR": a}
for name in ("MEMORY_TYPE", "IS_MANAGED", "DEVICE_ORDINAL", "RANGE_SIZE", *TOLD):
    kind = getattr(KIND, "CU_POINTER_ATTRIBUTE_" + name)
    print(name, int(done(driver.cuPointerGetAttribute(kind, a + 9))) - TOLD.get(name, 0))
base, size = done(driver.cuMemGetAddressRange(a + 9))
print(int(base) == a, size)

# Advice.
ADVICE, RANGE = driver.CUmem_advise, driver.CUmem_range_attribute


def told(name, size=3 * MIB, data=4):
    """An attribute of the beginning of `a`."""
    kind = getattr(RANGE, "CU_MEM_RANGE_ATTRIBUTE_" + name)
    if name.endswith("_TYPE"):  # cuda-python 13.0 knows its name, but cannot ask
        value = ctypes.c_int32()
        ask = ctypes.CDLL("libcuda.so.1").cuMemRangeGetAttribute
        asked = ctypes.c_uint64(a), ctypes.c_size_t(size)
        assert ask(ctypes.byref(value), ctypes.c_size_t(4), ctypes.c_int(kind), *asked) == 0
        return value.value
    return done(driver.cuMemRangeGetAttribute(data, kind, a, size))


gpu, cpu = location("DEVICE", int(device)), location("HOST")
for advice, where in (
    ("SET_READ_MOSTLY", cpu),
    ("SET_PREFERRED_LOCATION", gpu),
    ("SET_ACCESSED_BY", cpu),
    ("SET_ACCESSED_BY", gpu),
    ("UNSET_ACCESSED_BY", cpu),
    ("SET_PREFERRED_LOCATION", cpu),
    ("UNSET_PREFERRED_LOCATION", cpu),
    ("UNSET_READ_MOSTLY", cpu),
):
    names(driver.cuMemAdvise(a, 2 * MIB, getattr(ADVICE, "CU_MEM_ADVISE_" + advice), where))
    print(
        [told(name, MIB) for name in ("READ_MOSTLY", "PREFERRED_LOCATION", "PREFERRED_LOCATION_TYPE")],
        sorted(told("ACCESSED_BY", MIB, 8)),
        [told(name) for name in ("READ_MOSTLY", "PREFERRED_LOCATION")],
    )
names(
    driver.cuMemPrefetchAsync(a, 2 * MIB, gpu, 0, stream),
    launch(increment, stream, a),
    driver.cuMemPrefetchAsync(a, MIB, cpu, 0, stream),
    driver.cuStreamSynchronize(stream),
)
print(word(a).value, told("LAST_PREFETCH_LOCATION", MIB), told("LAST_PREFETCH_LOCATION"))
mostly, prefers = ADVICE.CU_MEM_ADVISE_SET_READ_MOSTLY, ADVICE.CU_MEM_ADVISE_SET_PREFERRED_LOCATION
names(
    driver.cuMemAdvise(memory, 4096, mostly, cpu),
    driver.cuMemAdvise(a, 64 * MIB, mostly, cpu),
    driver.cuMemAdvise(host, 4096, mostly, cpu),
    driver.cuMemAdvise(a, MIB, prefers, location("DEVICE", 77)),
    driver.cuMemAdvise(a, MIB, prefers, location("INVALID")),
    driver.cuMemPrefetchAsync(memory, 4096, gpu, 0, stream),
    driver.cuMemPrefetchAsync(a, MIB, location("DEVICE", 77), 0, stream),
    driver.cuMemPrefetchAsync(a, MIB, gpu, 1, stream),
    driver.cuMemRangeGetAttribute(8, RANGE.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, MIB),
    driver.cuMemRangeGetAttribute(4, RANGE.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 4096),
)
names(*(driver.cuStreamAttachMemAsync(stream, a, 0, flags) for flags in (1, 2, 4)))
names(driver.cuStreamAttachMemAsync(stream, a, 0, 3), driver.cuStreamAttachMemAsync(stream, memory, 0, 1))

# Freed as device memory is, and not otherwise.
names(driver.cuMemFreeHost(a), driver.cuMemFree(a + 256), driver.cuMemFree(a), driver.cuMemFree(a))
names(driver.cuPointerGetAttribute(KIND.CU_POINTER_ATTRIBUTE_IS_MANAGED, a))
names(*(driver.cuMemFree(address) for address in several[:4]))
again = int(done(driver.cuMemAllocManaged(MIB, 2)))
done(launch(store, stream, again, ctypes.c_uint32(3)))
names(driver.cuStreamSynchronize(stream))
print(word(again).value)
