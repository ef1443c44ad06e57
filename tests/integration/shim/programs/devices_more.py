"""The same library, graphs, pools and mapped memory on each of two devices; what does not go across them."""

import ctypes
import mmap
import threading
import time

from calls import KERNELS, done, read
from cuda.bindings import driver

done(driver.cuInit(0))
contexts = [done(driver.cuDevicePrimaryCtxRetain(device)) for device in range(2)]
library = done(driver.cuLibraryLoadData(KERNELS, None, None, 0, None, None, 0))
increment = done(driver.cuLibraryGetKernel(library, b"increment"))
kernel = driver.CUfunction(int(increment))  # as the runtime passes it


def add(function, memory, stream=0, times=1):
    for _ in range(times):
        arguments = ((memory,), (None,))
        done(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))


memories, seen = [], []
for ordinal, context in enumerate(contexts):
    done(driver.cuCtxSetCurrent(context))
    memory = done(driver.cuMemAlloc(64))
    memories.append(memory)
    done(driver.cuMemsetD32(memory, ordinal, 16))
    stream = done(driver.cuStreamCreate(1))
    done(driver.cuStreamSynchronize(0))
    add(kernel, memory)  # on the current device
    done(driver.cuStreamSynchronize(0))
    add(done(driver.cuKernelGetFunction(increment)), memory, stream)
    done(driver.cuStreamSynchronize(stream))
    address, size = done(driver.cuLibraryGetGlobal(library, b"seen"))
    done(driver.cuMemsetD32(address, 40 + ordinal, 1))
    seen.append(address)
    print(read(address), int(address) == int(seen[0]), read(seen[0]))
    module = done(driver.cuLibraryGetModule(library))
    inside = done(driver.cuModuleGetFunction(module, b"increment"))
    add(inside, memory)
    done(driver.cuCtxSynchronize())
    print(read(memory), size, done(driver.cuKernelGetName(increment)))
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    print(done(driver.cuKernelGetAttribute(attribute, increment, ordinal)))
    print(done(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(inside, 128, 0)))

    # A graph, captured and launched.
    done(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    add(kernel, memory, stream, 3)
    done(driver.cuMemcpyDtoDAsync(int(memory) + 8, memory, 4, stream))
    done(driver.cuCtxSetCurrent(contexts[1 - ordinal]))
    print(driver.cuCtxSynchronize()[0].name)  # the other device's captures nothing
    done(driver.cuCtxSetCurrent(context))
    graph = done(driver.cuStreamEndCapture(stream))
    executable = done(driver.cuGraphInstantiate(graph, 0))
    done(driver.cuGraphLaunch(executable, stream))
    done(driver.cuGraphLaunch(executable, stream))
    done(driver.cuStreamSynchronize(stream))
    print(read(memory, 12))
    done(driver.cuGraphExecDestroy(executable))
    done(driver.cuGraphDestroy(graph))

    # Pools.
    pool = done(driver.cuDeviceGetDefaultMemPool(ordinal))
    print(int(pool) == int(done(driver.cuDeviceGetMemPool(ordinal))))
    pooled = done(driver.cuMemAllocAsync(4, stream))
    device_of = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    print(done(driver.cuPointerGetAttribute(device_of, pooled)))
    done(driver.cuMemsetD32Async(pooled, 3, 1, stream))
    add(kernel, pooled, stream)
    done(driver.cuStreamSynchronize(stream))
    print(read(pooled))
    done(driver.cuMemFreeAsync(pooled, stream))

    # Memory that the program maps.
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = ordinal
    size = done(driver.cuMemGetAllocationGranularity(properties, driver.CUmemAllocationGranularity_flags(0)))
    address = done(driver.cuMemAddressReserve(size, 0, 0, 0))
    handle = done(driver.cuMemCreate(size, properties, 0))
    done(driver.cuMemMap(address, size, 0, handle, 0))
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = ordinal
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    done(driver.cuMemSetAccess(address, size, [access], 1))
    done(driver.cuMemsetD32(address, 8, 1))
    add(kernel, address)
    print(read(address), done(driver.cuPointerGetAttribute(device_of, address)))
    other = memories[0]
    done(driver.cuMemcpyPeer(address, context, other, contexts[0], 4))
    print(read(address))
    done(driver.cuMemUnmap(address, size))
    done(driver.cuMemRelease(handle))
    done(driver.cuMemAddressFree(address, size))
    done(driver.cuStreamDestroy(stream))

# Each thread on a device of its own, on its own default stream.


def worker(ordinal):
    done(driver.cuCtxSetCurrent(contexts[ordinal]))
    own = driver.CUstream(2)  # CU_STREAM_PER_THREAD
    done(driver.cuMemsetD32Async(memories[ordinal], 0, 1, own))
    add(kernel, memories[ordinal], own, 20)
    done(driver.cuStreamSynchronize(own))


threads = [threading.Thread(target=worker, args=(ordinal,)) for ordinal in (0, 1)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print([read(memory) for memory in memories])

# A thread's stack of contexts, across devices.
done(driver.cuCtxPushCurrent(contexts[0]))
print(int(done(driver.cuCtxGetDevice())))
done(driver.cuCtxPopCurrent())
print(int(done(driver.cuCtxGetDevice())))
extra = done(driver.cuCtxCreate(None, 0, 1))
print(
    int(done(driver.cuCtxGetDevice())),
    done(driver.cuPointerGetAttribute(device_of, done(driver.cuMemAlloc(4)))),
)
done(driver.cuCtxDestroy(extra))
done(driver.cuLibraryUnload(library))

# Managed memory of one device's, filled and copied from both.
managed = []
for context in contexts:
    done(driver.cuCtxSetCurrent(context))
    managed.append(int(done(driver.cuMemAllocManaged(4096, 1))))
for ordinal, context in enumerate(contexts):
    done(driver.cuCtxSetCurrent(context))
    stream = done(driver.cuStreamCreate(1))
    own, other, memory = managed[ordinal], managed[1 - ordinal], int(memories[ordinal])
    done(driver.cuMemsetD32Async(other, 60 + ordinal, 4, stream))
    done(driver.cuMemcpyDtoDAsync(memory, other, 16, stream))
    done(driver.cuMemcpyAsync(own + 64, other, 16, stream))
    done(driver.cuStreamSynchronize(stream))
    print(read(memory), ctypes.string_at(own + 64, 8), ctypes.string_at(other, 4))
    kind = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    print([done(driver.cuPointerGetAttribute(kind, address)) for address in managed])
print([driver.cuMemFree(address)[0].name for address in managed])

# A pool's memory is its device's, whichever device's stream it is allocated in; so is a captured one's.
done(driver.cuCtxSetCurrent(contexts[0]))
stream = done(driver.cuStreamCreate(1))
for ordinal in range(2):
    pool = done(driver.cuDeviceGetDefaultMemPool(ordinal))
    pooled = [done(driver.cuMemAllocFromPoolAsync(64, pool, stream))]
    done(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    pooled.append(done(driver.cuMemAllocFromPoolAsync(64, pool, stream)))
    done(driver.cuStreamEndCapture(stream))
    print(*(done(driver.cuPointerGetAttribute(device_of, address)) for address in pooled))
    done(driver.cuMemFreeAsync(pooled[0], stream))
    done(driver.cuStreamSynchronize(stream))

# Registered memory is reached by the kernels that are given it, whichever device is current.
for ordinal in range(2):
    for other in range(2):
        done(driver.cuCtxSetCurrent(contexts[other]))
        stream = done(driver.cuStreamCreate(1))
        inside = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNELS)), b"increment"))
        done(driver.cuCtxSetCurrent(contexts[ordinal]))
        private = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        address = ctypes.addressof(ctypes.c_char.from_buffer(private))
        done(driver.cuMemHostRegister(address, 4096, 0))
        add(inside, driver.CUdeviceptr(address), stream)
        done(driver.cuStreamSynchronize(stream))
        print(private[0], done(driver.cuPointerGetAttribute(device_of, address)))
        done(driver.cuMemHostUnregister(address))

# A wait of the default stream for what is over on the other device comes between what blocking streams do;
# one for what never was does not.
events = []
for context in contexts:
    done(driver.cuCtxSetCurrent(context))
    events.append([done(driver.cuEventCreate(2)) for _ in range(2)])
    done(driver.cuEventRecord(events[-1][0], 0))
    done(driver.cuCtxSynchronize())
for ordinal, context in enumerate(contexts):
    done(driver.cuCtxSetCurrent(context))
    first, second = (done(driver.cuStreamCreate(0)) for _ in range(2))
    gate = int(done(driver.cuMemHostAlloc(8, 0)))
    held, copied = (ctypes.c_uint32.from_address(gate + 4 * number) for number in range(2))
    memory = int(memories[ordinal])
    for event in events[1 - ordinal]:
        held.value = copied.value = 0
        done(driver.cuMemsetD32(memory, 1, 1))
        done(driver.cuStreamWaitValue32(first, gate, 1, 0))
        done(driver.cuMemsetD32Async(memory, 2, 1, first))
        done(driver.cuStreamWaitEvent(0, event, 0))
        done(driver.cuMemcpyAsync(gate + 4, memory, 4, second))
        time.sleep(0.03)
        held.value = 1
        done(driver.cuCtxSynchronize())
        print(ordinal, copied.value)
