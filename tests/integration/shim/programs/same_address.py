"""Two processes register private memory at one address: the second one is told that its kernels cannot."""

import ctypes
import subprocess
import sys

from calls import KERNELS, done, launch, names, read, start
from cuda.bindings import driver

ADDRESS, SIZE = 0x6F80_0000_0000, 4096  # where nothing of any process is
PRIVATE_AT_THAT_ADDRESS = 0x2 | 0x20 | 0x100000
MAPPED = driver.CU_MEMHOSTREGISTER_DEVICEMAP

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_uint64
libc.mmap(ctypes.c_void_p(ADDRESS), ctypes.c_size_t(SIZE), 3, PRIVATE_AT_THAT_ADDRESS, -1, ctypes.c_long(0))
word = ctypes.c_uint32.from_address(ADDRESS)
word.value = 3

start()
module = done(driver.cuModuleLoadData(KERNELS))
increment = done(driver.cuModuleGetFunction(module, b"increment"))
stream, words = done(driver.cuStreamCreate(1)), int(done(driver.cuMemAlloc(4)))

if sys.argv[1:] == ["second"]:
    names(driver.cuMemHostRegister(ADDRESS, SIZE, MAPPED), driver.cuMemHostUnregister(ADDRESS))
    names(driver.cuMemHostRegister(ADDRESS, SIZE, 0), launch(increment, stream, ADDRESS))
    names(driver.cuMemcpyHtoDAsync(words, ADDRESS, 4, stream), driver.cuStreamSynchronize(stream))
    names(driver.cuMemHostUnregister(ADDRESS))
    print(word.value, read(words))
else:
    names(driver.cuMemHostRegister(ADDRESS, SIZE, MAPPED), launch(increment, stream, ADDRESS))
    names(driver.cuStreamSynchronize(stream))
    second = [sys.executable, __file__, "second"]
    print(subprocess.run(second, check=True, capture_output=True, text=True).stdout)
    names(launch(increment, stream, ADDRESS), driver.cuStreamSynchronize(stream))
    names(driver.cuMemHostUnregister(ADDRESS))
    print(word.value)
