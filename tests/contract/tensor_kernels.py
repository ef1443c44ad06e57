"""Kernels in PTX that copy by tensor maps; see test_driver_tensor_maps.py."""

HEADER = ".version 8.3\n.target sm_90\n.address_size 64\n"
COORDINATES = ["%r10", "%r11", "%r12", "%r13", "%r14"]


def kernel(rank: int, name: str, copy: str) -> str:
    """Return a kernel (map, memory, bytes, coordinates): 32 threads, the tile at `tile` in shared memory.

    A load leaves the tile in `memory`, another instruction takes it from there.
    """
    coordinates = "{" + ", ".join(COORDINATES[:rank]) + "}"
    loads = ".mbarrier" in copy
    read = "".join(f"ld.param.u32 {COORDINATES[at]}, [start + {4 * at}];\n" for at in range(rank))
    move = (
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier], %r1;\n"
        f"{copy} [tile], [%rd1, {coordinates}], [barrier];"
        if loads
        else f"{copy} [%rd1, {coordinates}], [tile];\ncp.async.bulk.commit_group;\n"
        "cp.async.bulk.wait_group 0;"
    )
    to, source = ("[%rd3]", "[%r4]") if loads else ("[%r4]", "[%rd3]")
    states = ("global", "shared") if loads else ("shared", "global")
    between = f"""
    mov.u32 %r2, %tid.x;
AGAIN:
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
    mov.u32 %r4, tile;
    add.u32 %r4, %r4, %r2;
    cvt.u64.u32 %rd3, %r2;
    add.u64 %rd3, %rd3, %rd2;
    ld.{states[1]}.u8 %r5, {source};
    st.{states[0]}.u8 {to}, %r5;
    add.u32 %r2, %r2, 32;
    bra AGAIN;
DONE:
    bar.sync 0;
"""
    moved = f"""
    mov.u32 %r3, %tid.x;
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra MOVED;
    mbarrier.init.shared::cta.b64 [barrier], 1;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async;
    {move}
MOVED:
    bar.sync 0;
"""
    wait = """
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [barrier], 0;
    @!%p1 bra WAIT;
"""
    return f"""
.visible .entry {name}(.param .align 64 .b8 tensor[128], .param .u64 memory, .param .u32 bytes,
                       .param .align 4 .b8 start[20])
{{
    .reg .pred %p<3>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<6>;
    .shared .align 1024 .b8 tile[16384];
    .shared .align 8 .b64 barrier;
    mov.b64 %rd1, tensor;
    cvta.param.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [memory];
    ld.param.u32 %r1, [bytes];
    {read}
    {moved + wait + between if loads else between + moved}
    ret;
}}
"""


LOAD = "cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group"
REDUCE = "cp.reduce.async.bulk.tensor.{}d.global.shared::cta.{}.tile.bulk_group"

# One copy to both blocks of a cluster.
SEVERAL = """
.visible .entry several(.param .align 64 .b8 tensor[128], .param .u64 memory) .reqnctapercluster 2, 1, 1
{
    .reg .pred %p<3>;
    .reg .b16 %h<2>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<6>;
    .shared .align 128 .b8 tile[128];
    .shared .align 8 .b64 barrier;
    mov.b64 %rd1, tensor;
    cvta.param.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [memory];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %cluster_ctarank;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra READY;
    mbarrier.init.shared::cta.b64 [barrier], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier], 128;
READY:
    barrier.cluster.arrive;
    barrier.cluster.wait;
    or.b32 %r3, %r1, %r2;
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra WAIT;
    mov.b16 %h1, 3;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
        [tile], [%rd1, {4, 1}], [barrier], %h1;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [barrier], 0;
    @!%p2 bra WAIT;
    mov.u32 %r4, tile;
    mad.lo.u32 %r4, %r1, 4, %r4;
    ld.shared.u32 %r5, [%r4];
    mad.lo.u32 %r3, %r2, 32, %r1;
    mul.wide.u32 %rd3, %r3, 4;
    add.u64 %rd3, %rd3, %rd2;
    st.global.u32 [%rd3], %r5;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ret;
}
"""

# A map that is changed in shared memory and goes back.
REPLACED = """
.visible .entry change(.param .u64 tensor, .param .u64 address, .param .u64 stride)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    .shared .align 128 .b8 copy[128];
    ld.param.u64 %rd1, [tensor];
    ld.param.u64 %rd2, [address];
    ld.param.u64 %rd3, [stride];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, copy;
    mad.lo.u32 %r2, %r1, 4, %r2;
    mul.wide.u32 %rd4, %r1, 4;
    add.u64 %rd4, %rd4, %rd1;
    ld.global.u32 %r3, [%rd4];
    st.shared.u32 [%r2], %r3;
    bar.sync 0;
    tensormap.replace.tile.global_address.shared::cta.b1024.b64 [copy], %rd2;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [copy], 0, 24;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [copy], 1, 5;
    tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [copy], 0, %rd3;
    tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [copy], 0;
    bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
        [%rd1], [copy], 128;
    ret;
}
"""
