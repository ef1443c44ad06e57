"""What a function in a stream gets from CUDA: no context, nor may it wait for its own stream; its order."""

import ctypes
import mmap
import time

from calls import done, read, start
from cuda.bindings import driver

start()
library = ctypes.CDLL("libcuda.so.1")
seen = []
word, other = ctypes.c_uint64(), ctypes.c_uint64()


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def function(argument):
    seen.append(("function", argument, library.cuMemAlloc_v2(ctypes.byref(word), 64)))
    seen.append((library.cuStreamSynchronize(None), library.cuMemGetInfo_v2(word, other)))


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
def callback(_stream, status, argument):
    seen.append(("callback", status, argument, library.cuStreamQuery(None), library.cuCtxSynchronize()))


stream = done(driver.cuStreamCreate(1))
handle = ctypes.c_void_p(int(stream))
assert library.cuLaunchHostFunc(handle, function, ctypes.c_void_p(5)) == 0
assert library.cuStreamAddCallback(handle, callback, ctypes.c_void_p(6), 0) == 0
done(driver.cuStreamSynchronize(stream))
print(seen)

# What copies behind a function read of registered memory it has written. Pageable memory is read before, when
# the graph is launched.
BYTES = 4096
own = mmap.mmap(-1, BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
registered = ctypes.addressof(ctypes.c_char.from_buffer(own))
done(driver.cuMemHostRegister(registered, BYTES, 0))
pageable = ctypes.addressof(buffer := ctypes.create_string_buffer(BYTES))
memory = int(done(driver.cuMemAlloc(BYTES)))


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def write(address):
    time.sleep(0.03)
    ctypes.memset(address, 5, BYTES)


def copy_line(address):
    done(driver.cuMemcpyHtoDAsync(memory, address, BYTES, stream))


def copy_rows(address):
    rows = driver.CUDA_MEMCPY2D()
    rows.srcMemoryType, rows.dstMemoryType = driver.CUmemorytype(1), driver.CUmemorytype(2)
    rows.srcHost, rows.dstDevice = address, memory
    rows.srcPitch, rows.dstPitch, rows.WidthInBytes, rows.Height = 128, 64, 64, 32
    done(driver.cuMemcpy2DAsync(rows, stream))


def written(address, copy, in_graph):
    ctypes.memset(address, 1, BYTES)
    done(driver.cuMemsetD8(memory, 1, BYTES))
    if in_graph:
        done(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode(2)))
    assert library.cuLaunchHostFunc(handle, write, ctypes.c_void_p(address)) == 0
    copy(address)
    if in_graph:
        graph = done(driver.cuGraphInstantiate(done(driver.cuStreamEndCapture(stream)), 0))
        done(driver.cuGraphLaunch(graph, stream))
    done(driver.cuStreamSynchronize(stream))
    return read(memory, 1)


for copy in (copy_line, copy_rows):
    print(*(written(*each) for each in ((pageable, copy, True), (registered, copy, True))))
done(driver.cuMemHostUnregister(registered))
done(driver.cuMemHostRegister(registered, BYTES, 0))  # as new: not one that kernels reach
print(written(registered, copy_line, False))
done(driver.cuMemHostUnregister(registered))
done(driver.cuMemHostRegister(registered, BYTES, 0))
print(written(registered, copy_rows, False))
