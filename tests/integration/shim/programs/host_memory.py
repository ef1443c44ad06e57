"""Pinned memory: flags, addresses on the device, and what is none."""

import ctypes

from calls import KERNELS, done, launch, names, read, start
from cuda.bindings import driver

start()
module = done(driver.cuModuleLoadData(KERNELS))
store = done(driver.cuModuleGetFunction(module, b"store"))
stream = done(driver.cuStreamCreate(1))
for flags in (0, 1, 2, 3, 4, 7, 8, 1 << 20):
    result, address = driver.cuMemHostAlloc(100, flags)
    print(flags, result.name)
    if int(result) == 0:
        told = done(driver.cuMemHostGetFlags(address))
        print(told, driver.cuMemHostGetFlags(int(address) + 99)[0].name, int(address) % 4096)
        names(driver.cuMemFreeHost(address))
names(driver.cuMemHostAlloc(0, 0), driver.cuMemAllocHost(0), driver.cuMemHostAlloc(1 << 50, 0))

# The GPU and the host see the same.
pinned = int(done(driver.cuMemHostAlloc(4096, 2)))
there = int(done(driver.cuMemHostGetDevicePointer(pinned, 0)))
inside = int(done(driver.cuMemHostGetDevicePointer(pinned + 100, 0)))
print(there == pinned, inside - there)
names(launch(store, stream, there + 8, ctypes.c_uint32(7)), driver.cuStreamSynchronize(stream))
print(ctypes.c_uint32.from_address(pinned + 8).value)
names(driver.cuMemHostGetDevicePointer(pinned, 1), driver.cuMemHostGetDevicePointer(pinned + 4096, 0))
plain = ctypes.create_string_buffer(64)
names(driver.cuMemHostGetDevicePointer(ctypes.addressof(plain), 0), driver.cuMemHostGetDevicePointer(0, 0))
names(driver.cuMemHostGetFlags(ctypes.addressof(plain)), driver.cuMemHostGetFlags(0))

# Fills and copies of it.
names(driver.cuMemsetD8(pinned, 5, 4096), driver.cuMemsetD8Async(pinned, 6, 16, stream))
names(driver.cuStreamSynchronize(stream), driver.cuMemsetD8(pinned, 5, 4097))
print(ctypes.string_at(pinned, 20).hex())
mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
done(driver.cuStreamBeginCapture(stream, mode))
names(driver.cuMemsetD16Async(pinned, 0x0102, 4, stream), launch(store, stream, there, ctypes.c_uint32(3)))
graph = done(driver.cuStreamEndCapture(stream))
fill = driver.CUDA_MEMSET_NODE_PARAMS()
fill.dst, fill.value, fill.elementSize, fill.width, fill.height, fill.pitch = pinned + 12, 4, 1, 2, 2, 3
node = done(driver.cuGraphAddMemsetNode(graph, [], 0, fill, done(driver.cuCtxGetCurrent())))
ready = done(driver.cuGraphInstantiate(graph, 0))
for _ in range(2):
    done(driver.cuGraphLaunch(ready, stream))
    done(driver.cuStreamSynchronize(stream))
    print(ctypes.string_at(pinned, 20).hex())
    done(driver.cuMemsetD32(pinned, 9, 5))
fill.dst = ctypes.addressof(plain)
names(driver.cuGraphMemsetNodeSetParams(node, fill))
memory = int(done(driver.cuMemAlloc(4096)))
names(
    driver.cuMemcpyHtoDAsync(memory, pinned, 4096, stream),
    driver.cuMemcpyHtoDAsync(memory, pinned, 4097, stream),
)
names(
    driver.cuMemcpyDtoHAsync(pinned, memory, 4096, stream),
    driver.cuMemcpyDtoHAsync(pinned + 1, memory, 4096, stream),
)
names(driver.cuMemcpyDtoDAsync(pinned, memory, 16, stream), driver.cuStreamSynchronize(stream))
print(
    done(driver.cuMemGetAddressRange(pinned + 5))[1],
    int(done(driver.cuMemGetAddressRange(pinned + 5))[0]) == pinned,
)
names(driver.cuMemFree(pinned), driver.cuMemFreeHost(memory), driver.cuMemFreeAsync(pinned, stream))
KIND = driver.CUpointer_attribute
for name in (
    "MEMORY_TYPE",
    "DEVICE_POINTER",
    "HOST_POINTER",
    "IS_MANAGED",
    "MAPPED",
    "RANGE_SIZE",
    "MEMPOOL_HANDLE",
):
    kind = getattr(KIND, "CU_POINTER_ATTRIBUTE_" + name)
    told = [
        driver.cuPointerGetAttribute(kind, at) for at in (pinned + 8, memory + 8, ctypes.addressof(plain))
    ]
    offsets = {"DEVICE_POINTER": (pinned, memory, 0), "HOST_POINTER": (pinned, 0, 0)}.get(name, (0, 0, 0))
    print(
        name,
        [
            (answer[0].name, None if int(answer[0]) or answer[1] is None else int(answer[1]) - offset)
            for answer, offset in zip(told, offsets, strict=True)
        ],
    )
names(driver.cuPointerSetAttribute(1, KIND.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory))
names(driver.cuPointerSetAttribute(1, KIND.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pinned))
names(driver.cuPointerSetAttribute(1, KIND.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory))
print(done(driver.cuPointerGetAttribute(KIND.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory)))
names(driver.cuMemFreeHost(pinned), driver.cuMemFreeHost(pinned), driver.cuMemHostGetFlags(pinned))

# Whoever pins the samples of a data set has thousands.
samples = [int(done(driver.cuMemAllocHost(3000 + number % 2000))) for number in range(6000)]
for number, sample in enumerate(samples):
    ctypes.memset(sample, number % 251, 3000)
gathered = int(done(driver.cuMemAlloc(len(samples) * 8)))
for number, sample in enumerate(samples):
    done(driver.cuMemcpyHtoDAsync(gathered + number * 8, sample + 2992, 8, stream))
done(driver.cuStreamSynchronize(stream))
print(read(gathered, len(samples) * 8) == b"".join(bytes([number % 251]) * 8 for number in range(6000)))
names(*(driver.cuMemFreeHost(sample) for sample in samples[::1000]), driver.cuMemFreeHost(samples[0]))
