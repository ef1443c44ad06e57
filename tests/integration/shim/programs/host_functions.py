"""What a function in a stream gets from CUDA: it has no context, and must not wait for its own stream."""

import ctypes

from calls import done, start
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
