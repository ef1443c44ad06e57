"""Registers a file in memory, takes its pages away, and uses it by kernels and copies."""

import ctypes
import mmap
import os

from calls import KERNELS, done, launch, names, read, start
from cuda.bindings import driver

SIZE = 4 << 20
start()
file = os.memfd_create("memory")
os.ftruncate(file, SIZE)
memory = mmap.mmap(file, SIZE)
place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
done(driver.cuMemHostRegister(place, SIZE, 0))
shared = int(done(driver.cuMemHostGetDevicePointer(place, 0)))
module = done(driver.cuModuleLoadData(KERNELS))
store, increment = (done(driver.cuModuleGetFunction(module, name)) for name in (b"store", b"increment"))
os.ftruncate(file, 0)
word = done(driver.cuMemAlloc(SIZE))
names(driver.cuMemcpyDtoDAsync(word, shared, SIZE, 0), launch(store, 0, shared + 4096, ctypes.c_uint32(7)))
names(launch(increment, 0, shared + SIZE // 2), driver.cuCtxSynchronize())
names(driver.cuMemcpyHtoDAsync(word, place, SIZE, 0), driver.cuMemcpyDtoHAsync(place, word, SIZE, 0))
names(driver.cuCtxSynchronize(), driver.cuMemHostUnregister(place))
names(driver.cuMemsetD32(word, 1, 1))
print(read(word))
