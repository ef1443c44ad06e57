"""A primary context as the CUDA runtime uses it: found by a table of the driver's, not retained by a call.

What it has there stays when others retain and release the context; and who asks what is current is told the
name that the table gave.
"""

import ctypes

from calls import call, done
from cuda.bindings import driver

RUNTIME = bytes.fromhex("6bd5fb6c5bf4e74a8987d93912fd9df9")
STORAGE = bytes.fromhex("c693336e1121df11a8c368f355d89593")


def entries_of(table):
    identifier = driver.CUuuid()
    ctypes.memmove(identifier.getPtr(), table, len(table))
    place = int(done(driver.cuGetExportTable(identifier)))
    return ctypes.cast(place, ctypes.POINTER(ctypes.c_void_p))


done(driver.cuInit(0))
entries = entries_of(RUNTIME)
name_primary = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int)(entries[2])
name = ctypes.c_void_p()
assert name_primary(ctypes.byref(name), 0) == 0

call("cuCtxSetCurrent", driver.CUcontext(name.value))
print(done(driver.cuDevicePrimaryCtxGetState(0))[1], "active")
memory = int(done(driver.cuMemAlloc(64)))
owner = done(driver.cuPointerGetAttribute(driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT, memory))
print("of memory", int(owner) == name.value)
for _ in range(2):
    print("retained", int(call("cuDevicePrimaryCtxRetain", 0)) == name.value)
    call("cuDevicePrimaryCtxRelease", 0)
call("cuMemsetD8", memory, 1, 64)
call("cuCtxSynchronize")
call("cuMemFree", memory)
stream = done(driver.cuStreamCreate(0))
print("of a stream", int(call("cuStreamGetCtx", stream)) == name.value)
print("current", int(call("cuCtxGetCurrent")) == name.value)
print("popped", int(call("cuCtxPopCurrent")) == name.value)
call("cuCtxPushCurrent", driver.CUcontext(name.value))

# What it keeps with the context ends while that is there; then it looks again, and begins anew.
storage = entries_of(STORAGE)
put = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(storage[0])
get = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(storage[2])
END = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)
end = END(lambda _context, _key, _value: call("cuStreamSynchronize", 0))
value = ctypes.c_void_p()
assert put(None, 8, 16, ctypes.cast(end, ctypes.c_void_p)) == 0
assert (get(ctypes.byref(value), None, 8), value.value) == (0, 16)
call("cuDevicePrimaryCtxReset", 0)
assert get(ctypes.byref(value), None, 8) == 400
call("cuDevicePrimaryCtxRetain", 0)
call("cuMemAlloc", 64)
call("cuDevicePrimaryCtxReset", 0)
call("cuCtxSetCurrent", driver.CUcontext(name.value))
call("cuMemAlloc", 64)
