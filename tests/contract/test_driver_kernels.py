"""Kernels in CUDA C and instructions one by one: the same results on both drivers.

What the real GPU gave lies in tests/data/kernels/expected.json, which record_kernels.py writes; NumPy judges
some kernels as well.
"""

import json
import os
from typing import Any

import kernel_corpus as corpus
import numpy as np
import ptx_sequences as sequences
import pytest
from cuda_calls import Alone, Cuda
from kernel_references import REFERENCES

FUSED = (
    "mul and add without a rounding modifier may be fused (PTX ISA, half precision add): the driver's "
    "compiler does, the simulation rounds twice"
)
ABS_DROPPED = (
    "the driver's compiler drops abs.f16x2 of what an f32 instruction with .sat gave: no sign is lost"
)
# Results that differ on the simulated GPU, and why; docs/simulated-gpu.md tells of them.
KNOWN_DIFFERENCES = {
    "halves.half_arithmetic": FUSED,
    "halves.bfloat_arithmetic": FUSED,
    "sequence 2": ABS_DROPPED,
    "sequence 23": ABS_DROPPED,
}
EXPECTED = json.loads(corpus.EXPECTED.read_text())


def differs(cuda: Cuda, name: str) -> bool:
    """Whether a result must differ from what the real GPU gave."""
    return cuda.simulated and name in KNOWN_DIFFERENCES


def check(cuda: Cuda, kernel: corpus.Kernel, values: Any) -> None:
    """Against the record; against NumPy where there is none yet."""
    if kernel.key not in EXPECTED:
        check_against_numpy(kernel, values)
        return
    found = corpus.difference(kernel, values, EXPECTED[kernel.key])
    assert bool(found) == differs(cuda, kernel.key), f"{kernel.key}: {found or 'differs no more'}"


def check_against_numpy(kernel: corpus.Kernel, values: Any) -> None:
    expected = REFERENCES[kernel.key](corpus.input_values(kernel))
    if kernel.approx:
        np.testing.assert_allclose(values, expected, rtol=kernel.approx, atol=max(kernel.absolute, 1e-30))
    else:
        np.testing.assert_array_equal(values, expected)


def output_of(cuda: Cuda, kernel: corpus.Kernel, ptx: bytes) -> Any:
    module = cuda.cuModuleLoadData(ptx)
    try:
        return corpus.run(cuda, cuda.cuModuleGetFunction(module, kernel.name.encode()), kernel)
    finally:
        cuda.cuModuleUnload(module)


@pytest.mark.parametrize("key", corpus.KERNELS)
def test_a_kernel_of_the_corpus(cuda: Cuda, key: str) -> None:
    kernel = corpus.KERNELS[key]
    values = output_of(cuda, kernel, corpus.stored_ptx(kernel.group))
    check(cuda, kernel, values)
    assert values.any()


@pytest.mark.parametrize("group", sequences.GROUPS)
def test_instructions_one_by_one_and_in_sequences(cuda: Cuda, group: str) -> None:
    results = sequences.run_group(cuda, group)
    different = [name for name, values in results.items() if sequences.record(name, values) != EXPECTED[name]]
    assert different == [name for name in results if differs(cuda, name)]
    assert len(results) == len(sequences.FORMS.get(group, range(sequences.SEQUENCES)))


@pytest.mark.parametrize("source", corpus.SOURCES, ids=lambda source: source.stem)
def test_what_nvrtc_makes_today_runs_as_well(cuda: Cuda, source: Any) -> None:
    ptx = corpus.compile_source(source)
    for kernel in corpus.kernels_of(source):
        values = output_of(cuda, kernel, ptx)
        check(cuda, kernel, values)


@pytest.mark.parametrize("key", REFERENCES)
def test_a_kernel_against_numpy(cuda: Cuda, key: str) -> None:
    kernel = corpus.KERNELS[key]
    check_against_numpy(kernel, output_of(cuda, kernel, corpus.stored_ptx(kernel.group)))


TILES = """.version 8.0
.target sm_90
.address_size 64
.visible .entry tiles(.param .u64 out)
{
    .reg .b32 %lane, %mask, %seen, %turns, %value, %tile;
    .reg .b64 %to, %at;
    .reg .pred %p, %odd;
    .shared .align 4 .b32 come;
    ld.param.u64 %to, [out];
    mov.u32 %lane, %tid.x;
    mul.wide.u32 %at, %lane, 4;
    add.u64 %at, %at, %to;
    and.b32 %tile, %lane, 24;
    shl.b32 %mask, 0xff, %tile;
    st.shared.u32 [come], 0;
    bar.warp.sync 0xffffffff;
    mov.u32 %turns, 0;
    and.b32 %value, %lane, 28;
    setp.ne.u32 %p, %value, 4;
    mov.u32 %seen, 1;
    @%p bra VOTE;
LATE:  // lanes 4 to 7 come when the second tile has voted
    ld.volatile.shared.u32 %seen, [come];
    add.u32 %turns, %turns, 1;
    setp.lt.u32 %p, %turns, 100000;
    setp.eq.and.u32 %p, %seen, 0, %p;
    @%p bra LATE;
VOTE:
    mul.lo.u32 %value, %lane, 0x9e3779b1;
    setp.lt.s32 %odd, %value, 0;
    vote.sync.ballot.b32 %value, %odd, %mask;
    setp.eq.u32 %p, %lane, 8;
    @%p st.volatile.shared.u32 [come], 1;
    st.global.u32 [%at], %value;
    redux.sync.add.u32 %value, %lane, %mask;
    st.global.u32 [%at+128], %value;
    and.b32 %value, %lane, 5;
    match.any.sync.b32 %value, %value, %mask;
    st.global.u32 [%at+256], %value;
    st.global.u32 [%at+384], %seen;
    ret;
}
"""


def test_tiles_of_a_warp_vote_by_themselves(cuda: Cuda) -> None:
    module = cuda.cuModuleLoadData(TILES.encode())
    result = np.zeros((4, 32), dtype=np.uint32)
    target = cuda.cuMemAlloc(result.nbytes)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"tiles"), target, block=32)
    cuda.cuCtxSynchronize()
    cuda.cuMemcpyDtoH(result.ctypes.data, target, result.nbytes)
    cuda.cuMemFree(target)
    cuda.cuModuleUnload(module)
    lane = np.arange(32)
    same_tile = lane[:, None] // 8 == lane // 8
    bits = np.uint32(1) << lane.astype(np.uint32)

    def mask(chosen: Any) -> Any:
        return (same_tile & chosen) @ bits

    np.testing.assert_array_equal(result[0], mask(lane * 0x9E3779B1 & 0x80000000 != 0))
    np.testing.assert_array_equal(result[1], same_tile @ lane)
    np.testing.assert_array_equal(result[2], mask(lane[:, None] & 5 == lane & 5))
    np.testing.assert_array_equal(result[3], 1)


STACK = """.version 8.0
.target sm_90
.address_size 64
// Each thread has numbers on a stack that grows and shrinks in turns.
.func (.reg .b32 sum) fill(.reg .b32 %count, .reg .b32 %start)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    mul.wide.u32 %rd1, %count, 4;
    alloca.u64 %rd2, %rd1, 8;
    cvta.local.u64 %rd2, %rd2;
    mov.u32 %r1, 0;
    mov.u64 %rd3, %rd2;
FILL:
    add.u32 %r2, %r1, %start;
    st.u32 [%rd3], %r2;
    add.u64 %rd3, %rd3, 4;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p, %r1, %count;
    @%p bra FILL;
    mov.u32 sum, 0;
BACK:
    sub.u64 %rd3, %rd3, 4;
    ld.u32 %r2, [%rd3];
    mad.lo.u32 sum, sum, 3, %r2;
    setp.gt.u64 %p, %rd3, %rd2;
    @%p bra BACK;
    ret;
}
.visible .entry stacks(.param .u64 out)
{
    .reg .pred %p;
    .reg .b32 %lane, %count, %sum, %turn, %kept;
    .reg .b64 %to, %at, %mine, %saved;
    ld.param.u64 %to, [out];
    mov.u32 %lane, %tid.x;
    mul.wide.u32 %at, %lane, 4;
    add.u64 %to, %to, %at;
    add.u32 %count, %lane, 1;
    alloca.u64 %mine, 16, 16;
    mul.lo.u32 %kept, %lane, 1000;
    st.local.u32 [%mine], %kept;
    mov.u32 %turn, 0;
AGAIN:
    stacksave.u64 %saved;
    alloca.u64 %at, 6000;
    st.local.u32 [%at+5996], %turn;
    call (%sum), fill, (%count, %turn);
    ld.local.u32 %kept, [%at+5996];
    add.u32 %sum, %sum, %kept;
    ld.local.u32 %kept, [%mine];
    add.u32 %sum, %sum, %kept;
    st.local.u32 [%mine], %sum;
    stackrestore.u64 %saved;
    add.u32 %turn, %turn, 1;
    setp.lt.u32 %p, %turn, 40;
    @%p bra AGAIN;
    st.global.u32 [%to], %sum;
    ret;
}
"""


def stacks(cuda: Cuda) -> None:
    from test_driver_kernels import STACK

    function = cuda.cuModuleGetFunction(cuda.cuModuleLoadData(STACK.encode()), b"stacks")
    target = cuda.device_words(32)
    if os.environ["STACK_BYTES"]:
        cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_STACK_SIZE, int(os.environ["STACK_BYTES"]))
    cuda.launch_function(function, target, block=32)
    if (result := cuda.result("cuCtxSynchronize")) == "SUCCESS":
        print(*cuda.read(target, 32))
    else:
        print(result)


def test_stacks_beyond_the_limit(alone: Alone) -> None:
    assert alone(stacks, STACK_BYTES="") == "ERROR_ILLEGAL_ADDRESS\n"


def test_stacks_that_grow_at_run_time(alone: Alone) -> None:
    found = alone(stacks, STACK_BYTES="16384")
    wanted = []
    for lane in range(32):
        kept = lane * 1000
        for turn in range(40):
            total = 0
            for number in reversed(range(lane + 1)):
                total = total * 3 + number + turn
            kept = (kept + total + turn) % 2**32
        wanted.append(kept)
    assert [int(word) for word in found.split()] == wanted


def heap(cuda: Cuda) -> None:
    text = b"""
.version 7.8
.target sm_80
.address_size 64
.extern .func (.param .b64 place) malloc (.param .b64 bytes);
.visible .entry take(.param .u64 to, .param .u64 bytes)
{
    .reg .b64 %to, %bytes, %got;
    .reg .pred %none;
    ld.param.u64 %to, [to];
    ld.param.u64 %bytes, [bytes];
    {
        .param .b64 asked, place;
        st.param.b64 [asked], %bytes;
        call.uni (place), malloc, (asked);
        ld.param.b64 %got, [place];
    }
    setp.eq.u64 %none, %got, 0;
    @%none ret;
    st.u8 [%got], 1;
    red.global.add.u64 [%to], 1;
    ret;
}
"""
    if os.environ["HEAP_BYTES"]:
        cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE, int(os.environ["HEAP_BYTES"]))
    function = cuda.cuModuleGetFunction(cuda.cuModuleLoadData(text), b"take")
    target = cuda.device_words(2)
    for _ in range(40):
        cuda.launch_function(function, target, 1 << 20)
    print(cuda.read(target)[0])


def test_kernels_take_from_a_heap_that_is_as_large_as_was_asked_for(alone: Alone) -> None:
    assert int(alone(heap, HEAP_BYTES="")) < 9
    assert int(alone(heap, HEAP_BYTES=str(64 << 20))) == 40


BYTES_OF_BFLOATS = """
#include <cuda_bf16.h>
extern "C" __global__ void k(signed char* whole, unsigned char* positive) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    whole[i] = __bfloat162char_rz(__ushort_as_bfloat16(i));
    positive[i] = __bfloat162uchar_rz(__ushort_as_bfloat16(i));
}
"""


def test_bytes_of_every_bfloat(cuda: Cuda) -> None:
    module = cuda.cuModuleLoadData(corpus.compile_text(BYTES_OF_BFLOATS))
    target = cuda.cuMemAlloc(1 << 17)
    kernel = cuda.cuModuleGetFunction(module, b"k")
    cuda.launch_function(kernel, target, int(target) + (1 << 16), grid=64, block=1024)
    found = cuda.read(target, 1 << 17, np.uint8).reshape(2, -1)
    cuda.cuMemFree(target)
    cuda.cuModuleUnload(module)
    value = np.nan_to_num((np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32), nan=0)
    np.testing.assert_array_equal(found[0].view(np.int8), np.trunc(value).clip(-128, 127))
    np.testing.assert_array_equal(found[1], np.trunc(value).clip(0, 255))


VOLATILE_LOCALS = """
extern "C" __global__ void k(unsigned* out) {
    volatile unsigned words[8] = {1, 2, 3, 4};
    volatile float2 pair = {0.5f, 1.5f};
    for (unsigned turn = 0; turn < 8; ++turn) words[(turn + threadIdx.x) % 8] += turn * 10 + words[turn];
    out[threadIdx.x] = words[threadIdx.x % 8] + (unsigned)(pair.x + pair.y);
}
"""


def test_volatile_local_variables(cuda: Cuda) -> None:
    module = cuda.cuModuleLoadData(corpus.compile_text(VOLATILE_LOCALS))
    target = cuda.device_words(32)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"k"), target, block=32)
    found = cuda.read(target, 32)
    cuda.cuMemFree(target)
    cuda.cuModuleUnload(module)
    for thread, result in enumerate(found):
        words = [1, 2, 3, 4, 0, 0, 0, 0]
        for turn in range(8):
            words[(turn + thread) % 8] += turn * 10 + words[turn]
        assert result == words[thread % 8] + 2
