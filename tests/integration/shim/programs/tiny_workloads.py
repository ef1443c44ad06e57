"""What bench.workloads steps where there is no PyTorch: a service of short kernels, a batch of long ones."""

from cuda.bindings import driver

SPIN = b"""
.version 7.8
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .b64 %rd<6>; .reg .pred %p1;
    ld.param.u64 %rd1, [nanoseconds];
    mov.u64 %rd2, %globaltimer;
L:  mov.u64 %rd3, %globaltimer;
    sub.s64 %rd4, %rd3, %rd2;
    setp.lt.s64 %p1, %rd4, %rd1;
    @%p1 bra L;
    ret;
}
"""


def checked(answer):
    assert int(answer[0]) == 0, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


def steps_of(kernels, blocks, nanoseconds):
    import ctypes

    checked(driver.cuInit(0))
    context = checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(0))))
    checked(driver.cuCtxSetCurrent(context))
    spin = checked(driver.cuModuleGetFunction(checked(driver.cuModuleLoadData(SPIN)), b"spin"))
    arguments = ((nanoseconds,), (ctypes.c_uint64,))

    def step():
        for _ in range(kernels):
            checked(driver.cuLaunchKernel(spin, blocks, 1, 1, 32, 1, 1, 0, 0, arguments, 0))
        checked(driver.cuCtxSynchronize())

    return step


WORKLOADS = {
    "service": lambda: steps_of(4, 8, 20_000),
    "batch": lambda: steps_of(8, 132, 200_000),
    "broken": lambda: steps_of(1, 0, 1),
}
