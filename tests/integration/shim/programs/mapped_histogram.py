"""A histogram of mapped pinned memory into mapped pinned memory: no copy at all."""

import ctypes

import numpy as np
from calls import done, names, start
from compiled import load
from cuda.bindings import driver

SOURCE = b"""
extern "C" __global__ void histogram(const unsigned char* bytes, int count, unsigned* bins) {
    __shared__ unsigned own[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        atomicAdd(&own[bytes[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (own[i] != 0) atomicAdd(&bins[i], own[i]);
}
"""

start()
histogram = done(driver.cuModuleGetFunction(load(SOURCE), b"histogram"))
count = 100_003
stream = done(driver.cuStreamCreate(1))


def mapped(size):
    """Pinned memory: its address on the device, and an array of its bytes."""
    address = int(done(driver.cuMemHostAlloc(size, 2)))
    there = int(done(driver.cuMemHostGetDevicePointer(address, 0)))
    return there, np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


source, data = mapped(count)
target, raw = mapped(1024)
bins = raw.view(np.uint32)
data[:] = (np.arange(count) ** 2 % 251).astype(np.uint8)
for turn in range(3):
    names(driver.cuMemsetD32Async(target, 0, 256, stream))
    stored = (ctypes.c_uint64(source), ctypes.c_int(count), ctypes.c_uint64(target))
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in stored))
    names(driver.cuLaunchKernel(histogram, 20, 1, 1, 128, 1, 1, 0, stream, ctypes.addressof(pointers), 0))
    names(driver.cuStreamSynchronize(stream))
    print(turn, (bins == np.bincount(data, minlength=256)).all(), bins.sum())
    data[:] = data + 1
