"""Kernels with more than 4 KB of parameters."""

import ctypes

from calls import done, read, start
from cuda.bindings import driver

start()
COUNT = 1100
HEAD = ".version 8.1\n.target sm_90\n.address_size 64\n"
out = int(done(driver.cuMemAlloc(8)))


def run(text, name, *values):
    module = done(driver.cuModuleLoadData((HEAD + text).encode() + b"\0"))
    function = done(driver.cuModuleGetFunction(module, name))
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    done(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(pointers), 0))
    print(int.from_bytes(read(out, 8), "little"), driver.cuFuncGetParamInfo(function, 1)[1:])


done(driver.cuMemsetD32(out, 0, 2))
run(
    ".visible .entry many(.param .u64 out"
    + "".join(f", .param .u32 p{index}" for index in range(COUNT))
    + ") {\n.reg .b32 %sum, %value; .reg .b64 %out; ld.param.u64 %out, [out]; mov.u32 %sum, 0;\n"
    + "".join(f"ld.param.u32 %value, [p{i}]; add.u32 %sum, %sum, %value;\n" for i in range(COUNT))
    + "st.global.u32 [%out], %sum; ret; }\n",
    b"many",
    ctypes.c_uint64(out),
    *(ctypes.c_uint32(index) for index in range(COUNT)),
)
words = (ctypes.c_uint64 * 511)()
words[510] = 0x1234567890ABCDEF
run(
    ".visible .entry large(.param .u64 out, .param .align 8 .b8 all[4088]) {\n.reg .b64 %out, %value;\n"
    "ld.param.u64 %out, [out]; ld.param.u64 %value, [all+4080]; st.global.u64 [%out], %value; ret; }\n",
    b"large",
    ctypes.c_uint64(out),
    words,
)
