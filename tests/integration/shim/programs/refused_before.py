"""What a program gives back, and loads, is not in the way of a launch before that was refused late.

The shim does not know of a kernel that it has one shape of block alone, so only the executor refuses another.
"""

import ctypes

from calls import done, launch, names, start
from cuda.bindings import driver

ROUNDS, GIB = 40, 1 << 30
KERNELS = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry two() .reqntid 2, 1, 1 { ret; }
"""
MANAGED = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 there = 5;
"""

device, context = start()
module = done(driver.cuModuleLoadData(KERNELS))
kernel = done(driver.cuModuleGetFunction(module, b"two"))
stream = done(driver.cuStreamCreate(1))


def refused():
    """Natively at once."""
    driver.cuCtxSynchronize()
    launch(kernel, stream)


# More than there is, unless each is given back.
for _ in range(ROUNDS):
    memory = done(driver.cuMemAllocHost(GIB))
    refused()
    done(driver.cuMemFreeHost(memory))
for _ in range(ROUNDS):
    memory = done(driver.cuMemAllocManaged(GIB, 1))
    refused()
    done(driver.cuMemFree(memory))

own = bytearray(1 << 16)
address = (ctypes.addressof(ctypes.c_char.from_buffer(own)) + 4095) & -4096
done(driver.cuMemHostRegister(address, 4096, 0))
refused()
names(driver.cuMemHostUnregister(address), driver.cuMemHostUnregister(address))

wish = driver.CUDA_ARRAY_DESCRIPTOR()
wish.Width, wish.Height, wish.NumChannels = 64, 64, 1
wish.Format = driver.CUarray_format.CU_AD_FORMAT_FLOAT
array = done(driver.cuArrayCreate(wish))
refused()
names(driver.cuArrayDestroy(array))

other = done(driver.cuModuleLoadData(KERNELS))
refused()
names(driver.cuModuleUnload(other), driver.cuModuleUnload(other))

refused()
managed = done(driver.cuModuleLoadData(MANAGED))
there, size = done(driver.cuModuleGetGlobal(managed, b"there"))
print(size, ctypes.c_uint32.from_address(int(there)).value)

where = done(driver.cuMemAddressReserve(1 << 21, 0, 0, 0))
how = driver.CUmemAllocationProp()
how.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
how.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
handle = done(driver.cuMemCreate(1 << 21, how, 0))
done(driver.cuMemMap(where, 1 << 21, 0, handle, 0))
refused()
names(driver.cuMemUnmap(where, 1 << 21), driver.cuMemUnmap(where, 1 << 21))
