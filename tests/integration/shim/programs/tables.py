"""What libraries ask of the driver's undocumented tables with handles of theirs."""

import ctypes

from calls import KERNELS, done, start
from cuda.bindings import driver

FUNCTIONS = bytes.fromhex("6e163fbeb958444d835ce182aff1991e")
CONTEXTS = bytes.fromhex("21318c60971432488ca641ff7324c8f2")
FEATURES = bytes.fromhex("cd3ea2c67076db4b882e52ae6c2d86f7")
VISITOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
POINTER = ctypes.c_void_p


def slot(table, index, *kinds):
    entries = ctypes.POINTER(POINTER)()
    assert ctypes.CDLL("libcuda.so.1").cuGetExportTable(ctypes.byref(entries), table) == 0
    return ctypes.CFUNCTYPE(ctypes.c_uint, *kinds)(entries[index])


device, context = start()
module = done(driver.cuModuleLoadData(KERNELS))
seen = []
visit = slot(FUNCTIONS, 7, POINTER, POINTER, VISITOR, POINTER)
each = VISITOR(lambda argument, function, _: seen.append((argument, driver.CUfunction(function))))
print(visit(int(context), int(module), each, 5))
print(sorted((argument, done(driver.cuFuncGetName(function))) for argument, function in seen))
print(visit(int(context), 0, each, 5))

number = ctypes.c_uint64()
asked = slot(CONTEXTS, 4, POINTER, POINTER)
print(asked(int(context), ctypes.addressof(number)), number.value == done(driver.cuCtxGetId(context)))
resolve, identify = (slot(CONTEXTS, index, POINTER, POINTER, POINTER) for index in (51, 39))
names, numbers = [], []
for handle in (0, 1, 2, *(int(done(driver.cuStreamCreate(1))) for _ in range(2))):
    name = ctypes.c_uint64()
    print(resolve(int(context), handle, ctypes.addressof(name)), end=" ")
    print(identify(int(context), name.value, ctypes.addressof(number)))
    names.append(name.value)
    numbers.append(number.value)
print(len(set(names)), len(set(numbers)))  # 0 and 1 are one stream
print(resolve(int(context), 2**64 - 1, ctypes.addressof(number)))
print(slot(CONTEXTS, 5)())
has_feature = slot(FEATURES, 1, ctypes.c_int, ctypes.c_uint, POINTER)
print([has_feature(0, feature, None) for feature in range(9)])
