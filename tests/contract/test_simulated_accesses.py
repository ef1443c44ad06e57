"""The simulated GPU tells which bytes each launch read and wrote."""

import ctypes
import os

import pytest
from cuda_calls import Cuda

pytestmark = pytest.mark.skipif(
    os.environ.get("FIKIT_TEST_DEVICE", "sim") != "sim", reason="only the simulated GPU sees every access"
)

KERNEL = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 in, .param .u64 out, .param .u64 total)
{
    .reg .b32 %r<4>; .reg .b64 %rd<9>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; ld.param.u64 %rd3, [total];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd4, %r1, 4;
    add.u64 %rd5, %rd1, %rd4;
    add.u64 %rd6, %rd2, %rd4;
    ld.global.u32 %r2, [%rd5];
    setp.gt.u32 %p1, %r1, 15;
    @%p1 st.global.u32 [%rd6], %r2;
    red.global.add.u32 [%rd3], %r2;
    ret;
}
"""


def test_ranges_of_a_launch(cuda: Cuda) -> None:
    from fikitd.simcuda.accesses import recorded

    module = cuda.cuModuleLoadData(KERNEL)
    function = cuda.cuModuleGetFunction(module, b"scale")
    source, target, total = (cuda.device_words(64) for _ in range(3))
    with recorded() as log:
        cuda.launch_function(function, source, target, total, block=48)
        cuda.launch("store", target, ctypes.c_uint32(1))
        cuda.cuCtxSynchronize()
        first, second = log.launches()
    assert first.kernel == "scale"
    assert first.of("read") == [(source, source + 4 * 48)]
    assert first.of("write") == [(target + 4 * 16, target + 4 * 48)]
    assert first.of("atomic") == [(total, total + 4)]
    assert second.kernel == "store"
    assert second.of("write") == [(target, target + 4)]
    cuda.cuModuleUnload(module)


def test_nothing_is_kept_unless_asked_for(cuda: Cuda) -> None:
    from fikitd.simcuda.accesses import recorded

    with recorded() as log:
        pass
    cuda.launch("store", cuda.device_words(), ctypes.c_uint32(1))
    cuda.cuCtxSynchronize()
    assert log.launches() == []
