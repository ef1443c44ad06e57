"""Host memory registered twice, in parts, wrongly, and let go of while it is copied."""

import ctypes
import mmap

from calls import done, names, read, start
from cuda.bindings import driver

start()
SIZE = 1 << 20
buffer = mmap.mmap(-1, SIZE)
place = ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def register(address, size, flags=0):
    return driver.cuMemHostRegister(address, size, flags)


names(register(place, SIZE), register(place, SIZE), register(place + 4096, 4096))
names(driver.cuMemHostUnregister(place + 4096), driver.cuMemHostGetFlags(place))
kind = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
print(done(driver.cuPointerGetAttribute(kind, place + 100)))
memory, stream = done(driver.cuMemAlloc(SIZE)), done(driver.cuStreamCreate(1))
buffer[:4] = b"abcd"
names(driver.cuMemcpyHtoDAsync(memory, place, SIZE, stream), driver.cuMemHostUnregister(place))
names(driver.cuStreamSynchronize(stream))
print(read(memory))
names(
    driver.cuMemHostUnregister(place), register(place, 0), register(0, 4096), register(place, 4096, 1 << 20)
)
names(register(place, 4096, 1), register(place + 4096, 4096))
names(driver.cuMemHostUnregister(place), driver.cuMemHostUnregister(place + 4096))
pinned = int(done(driver.cuMemHostAlloc(8192, 0)))
names(register(pinned, 4096), driver.cuMemFreeHost(pinned + 16), driver.cuMemFreeHost(pinned))
names(driver.cuMemFreeHost(pinned), driver.cuMemFreeHost(place))
names(driver.cuMemFreeHost(0), driver.cuMemHostUnregister(0))
