"""The driver API's questions about the device, by ctypes alone."""

import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
number = ctypes.c_int()
text = ctypes.create_string_buffer(100)
assert cuda.cuInit(0) == 0
for ask in ("cuDriverGetVersion", "cuDeviceGetCount"):
    print(ask, getattr(cuda, ask)(ctypes.byref(number)), number.value)
print(cuda.cuDeviceGetName(text, 100, 0), text.value.decode())
print(cuda.cuDeviceGetPCIBusId(text, 100, 0), text.value.decode())
for attribute in (1, 2, 8, 9, 10, 13, 16, 33, 38, 39, 75, 76, 81, 97, 106, 111):
    print(attribute, cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, 0), number.value)
total = ctypes.c_size_t()
print(cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0), total.value)
