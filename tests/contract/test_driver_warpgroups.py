"""Products of a warpgroup (wgmma)."""

import numpy as np
from cuda_calls import Cuda

# Ones times ones, 64 x 16 by 16 x 8. Who has waited changes shared memory at once, as one thread of CUTLASS's
# consumers hands a stage back on behalf of its warpgroup.
EARLY = """
.version 8.0
.target sm_90a
.address_size 64
.shared .align 128 .b8 right[1024];
.visible .entry early(.param .u64 out) {
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<4>;
    .reg .pred %p<3>;
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, right;
    mad.lo.u32 %r2, %r0, 8, %r1;
    st.shared.b64 [%r2], 0x3c003c003c003c00;
    fence.proxy.async;
    bar.sync 0;
    shr.u32 %r3, %r1, 4;
    cvt.u64.u32 %rd1, %r3;
    or.b64 %rd1, %rd1, 0x1000080000;
    mov.b32 %r4, 0x3c003c00;
    mov.f32 %f0, 0f00000000;
    mov.f32 %f1, %f0;
    mov.f32 %f2, %f0;
    mov.f32 %f3, %f0;
    setp.eq.u32 %p0, %r0, %r0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
        {%f0, %f1, %f2, %f3}, {%r4, %r4, %r4, %r4}, %rd1, %p0, 1, 1, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    setp.ne.u32 %p1, %r0, 0;
    @%p1 bra DONE;
    mov.u32 %r5, 0;
AGAIN:
    add.u32 %r2, %r1, %r5;
    st.shared.b64 [%r2], 0;
    add.u32 %r5, %r5, 8;
    setp.lt.u32 %p2, %r5, 1024;
    @%p2 bra AGAIN;
DONE:
    ld.param.u64 %rd2, [out];
    mul.wide.u32 %rd3, %r0, 16;
    add.u64 %rd2, %rd2, %rd3;
    st.global.v4.f32 [%rd2], {%f0, %f1, %f2, %f3};
    ret;
}
"""


def test_a_product_that_one_warp_waited_for_is_over_for_all_four(cuda: Cuda) -> None:
    function = cuda.cuModuleGetFunction(cuda.cuModuleLoadData(EARLY.encode()), b"early")
    out = cuda.device_words(512)
    cuda.launch_function(function, out, block=128)
    np.testing.assert_array_equal(cuda.read(out, 512).view(np.float32), np.full(512, 16, dtype=np.float32))
