"""Assertions of a kernel's fail: their text comes on the program's standard error, and the error stays."""

import ctypes

from calls import done, launch, names, start
from compiled import load
from cuda.bindings import driver

SOURCE = b"""
extern "C" __device__ void __assertfail(
    const char* message, const char* file, unsigned line, const char* function, size_t size);
#define assert(that) ((that) ? (void)0 : __assertfail(#that, __FILE__, __LINE__, __func__, 1))

__device__ void check(int number) { assert(number < 3 && "three are enough"); }
extern "C" __global__ void count(int most) { for (int i = 0; i < most; ++i) check(i); }
"""

start()
count = done(driver.cuModuleGetFunction(load(SOURCE), b"count"))
names(launch(count, 0, ctypes.c_int(3)), driver.cuCtxSynchronize())
names(launch(count, 0, ctypes.c_int(4)), driver.cuCtxSynchronize())
names(driver.cuCtxSynchronize(), driver.cuMemAlloc(4), launch(count, 0, ctypes.c_int(3)))
