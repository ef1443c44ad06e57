"""libcuda by its soname and by the name that some open instead: one driver, whichever comes first."""

import ctypes
import os

child = os.fork()
names = ("libcuda.so.1", "libcuda.so") if child else ("libcuda.so", "libcuda.so.1")
if child:
    os.waitpid(child, 0)
first, second = map(ctypes.CDLL, names)
print(names[0], first.cuInit(0))
context = ctypes.c_void_p()
print(first.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), first.cuCtxSetCurrent(context))
address = ctypes.c_uint64()
print(first.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)), second.cuMemFree_v2(address))
places = {ctypes.cast(each.cuInit, ctypes.c_void_p).value for each in (first, second)}
print(len(places), flush=True)
