"""What the programs here share: a call of cuda-python's that must succeed, and kernels."""

import ctypes

from cuda.bindings import driver

KERNELS = b"""
.version 7.8
.target sm_80
.address_size 64
.global .u32 seen = 7;
.visible .entry nothing() { ret; }
.visible .entry store(.param .u64 address, .param .u32 value)
{
    .reg .b64 %rd<2>; .reg .b32 %r<2>;
    ld.param.u64 %rd1, [address];
    ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry increment(.param .u64 address)
{
    .reg .b64 %rd<2>; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [address];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""


def done(answer):
    """What a call returned besides success."""
    assert int(answer[0]) == 0, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


def start():
    """The device's primary context, current."""
    done(driver.cuInit(0))
    device = done(driver.cuDeviceGet(0))
    context = done(driver.cuDevicePrimaryCtxRetain(device))
    done(driver.cuCtxSetCurrent(context))
    return device, context


def read(address, size=4):
    """Bytes of device memory."""
    into = bytearray(size)
    done(driver.cuMemcpyDtoH(into, address, size))
    return bytes(into)


def short(answer):
    """The name of what a call answered, or of its result, without what all begin with."""
    result = answer[0] if isinstance(answer, tuple) else answer
    return result.name.removeprefix("CUDA_").removeprefix("ERROR_")


def names(*answers):
    """Print the names of results."""
    print(*map(short, answers))


def call(name, *arguments):
    """Print what a call's result is called; return what else it gives, nothing if it failed."""
    result, *values = getattr(driver, name)(*arguments)
    print(name, result.name.removeprefix("CUDA_"))
    if int(result) != 0:
        return None
    return values[0] if len(values) == 1 else values or True


def launch(function, stream, *values):
    """Launch one thread; integers are u64, ctypes values what they are."""
    stored = [value if hasattr(value, "_type_") else ctypes.c_uint64(int(value)) for value in values]
    pointers = (ctypes.c_void_p * max(len(stored), 1))(*(ctypes.addressof(value) for value in stored))
    return driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, ctypes.addressof(pointers), 0)
