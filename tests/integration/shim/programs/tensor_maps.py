"""Tensor maps are the driver's own, also where it is another process that has the context."""

import ctypes

from calls import start
from cuda.bindings import driver

start()
library = ctypes.CDLL("libcuda.so.1")
ADDRESS = 0x7F0000000000  # a map is made for an address, whatever is there
FLOAT32, PLAIN, SWIZZLE_128B, PROMOTION_128B = 7, 0, 3, 2
room = ctypes.create_string_buffer(4 * 128 + 64)
aligned = (ctypes.addressof(room) + 63) & ~63
first, again, other, pixels = (aligned + 128 * index for index in range(4))


def words(*values):
    return (ctypes.c_uint32 * len(values))(*values)


def longs(*values):
    return (ctypes.c_uint64 * len(values))(*values)


def tiled(to, box, address=ADDRESS):
    result = library.cuTensorMapEncodeTiled(
        ctypes.c_void_p(to), FLOAT32, 2, ctypes.c_void_p(address), longs(256, 64), longs(1024), words(*box),
        words(1, 1), PLAIN, SWIZZLE_128B, PROMOTION_128B, 0,
    )  # fmt: skip
    return driver.CUresult(result).name


def shown(at):
    return ctypes.string_at(at, 128).hex()


print(tiled(first, (32, 64)), tiled(again, (32, 64)), tiled(other, (32, 16)))
print(shown(first), shown(first) == shown(again), shown(first) == shown(other))
print(library.cuTensorMapReplaceAddress(ctypes.c_void_p(other), ctypes.c_void_p(ADDRESS + 4096)))
print(tiled(first, (32, 16), ADDRESS + 4096), shown(other) == shown(first))
print(tiled(first, (512, 1)), tiled(first, (32, 64), ADDRESS + 4), tiled(first + 8, (32, 64)))
result = library.cuTensorMapEncodeIm2col(
    ctypes.c_void_p(pixels), FLOAT32, 4, ctypes.c_void_p(ADDRESS), longs(32, 16, 16, 4),
    longs(128, 2048, 32768), (ctypes.c_int * 2)(-1, -1), (ctypes.c_int * 2)(1, 1), 32, 16,
    words(1, 1, 1, 1), PLAIN, SWIZZLE_128B, PROMOTION_128B, 0,
)  # fmt: skip
print(result, shown(pixels))
