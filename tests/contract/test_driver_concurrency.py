"""Kernels that compute for long, or look over and over: beside others, other calls and new mappings."""

import time
from typing import Any

import numpy as np
import pytest
from cuda_calls import Cuda

MIB = 1 << 20
SOURCE = b"""
.version 8.0
.target sm_90
.address_size 64

// Each thread adds its number to *place so many times.
.visible .entry add(.param .u64 place, .param .u64 times)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [place];
    ld.param.u64 %rd2, [times];
    mov.u32 %r1, %tid.x;
    cvt.u64.u32 %rd3, %r1;
AGAIN:
    red.global.add.u64 [%rd1], %rd3;
    sub.u64 %rd2, %rd2, 1;
    setp.ne.u64 %p1, %rd2, 0;
    @%p1 bra AGAIN;
    ret;
}

// Writes what so many steps of x = 5 x + 1 make of the thread's number.
.visible .entry step(.param .u64 out, .param .u64 times)
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [times];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd1, %rd1, %rd3;
AGAIN:
    mad.lo.u32 %r1, %r1, 5, 1;
    sub.u64 %rd2, %rd2, 1;
    setp.ne.u64 %p1, %rd2, 0;
    @%p1 bra AGAIN;
    st.global.u32 [%rd1], %r1;
    ret;
}

// Looks at a word, and sleeps, until somebody writes it.
.visible .entry look(.param .u64 place)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [place];
AGAIN:
    nanosleep.u32 20;
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    ret;
}
"""
STEPS = 1 << 21
THREADS = 256


@pytest.fixture(name="kernel")
def load_kernels(cuda: Cuda) -> Any:
    """Return a function from a kernel's name to the kernel."""
    module = cuda.cuModuleLoadData(SOURCE)
    yield lambda name: cuda.cuModuleGetFunction(module, name)
    cuda.cuCtxSynchronize()
    cuda.cuModuleUnload(module)


def stepped(start: int, times: int) -> int:
    """Return what `step` writes."""
    power = pow(5, times, 4 << 32)
    return (start * power + (power - 1) // 4) % (1 << 32)


def test_a_kernel_that_computes_holds_up_no_other_call(cuda: Cuda, kernel: Any) -> None:
    out, place = cuda.device_words(THREADS), cuda.device_words()
    slow, quick = cuda.stream(), cuda.stream()
    cuda.launch("count", place, stream=quick)  # loads it, which would wait for a kernel
    cuda.cuStreamSynchronize(quick)
    cuda.launch_function(kernel(b"step"), out, STEPS, block=THREADS, stream=slow)
    cuda.launch("count", place, stream=quick)
    cuda.cuStreamSynchronize(quick)
    assert cuda.result("cuStreamQuery", slow) == "ERROR_NOT_READY"
    assert cuda.read(out, THREADS).tolist() == [stepped(thread, STEPS) for thread in range(THREADS)]
    assert cuda.read(place)[0] == 2


def test_a_kernel_that_looks_and_sleeps_in_turn_holds_up_no_other_call(cuda: Cuda, kernel: Any) -> None:
    place = cuda.device_words()
    waits, sets = cuda.stream(), cuda.stream()
    cuda.launch("count", place, stream=sets)  # loads it, which would wait for a kernel
    assert cuda.read(place)[0] == 1
    cuda.cuMemsetD32(place, 0, 1)
    cuda.launch_function(kernel(b"look"), place, stream=waits)
    began = time.monotonic()
    while time.monotonic() < began + 0.3:
        assert cuda.result("cuStreamQuery", waits) == "ERROR_NOT_READY"
    assert time.monotonic() < began + 5
    cuda.launch("count", place, stream=sets)
    cuda.cuStreamSynchronize(waits)
    assert cuda.read(place)[0] == 1


def test_atomics_of_kernels_that_run_together(cuda: Cuda, kernel: Any) -> None:
    place = cuda.device_words(2)
    times = 5000
    streams = [cuda.stream() for _ in range(3)]
    for stream in streams:
        cuda.launch_function(kernel(b"add"), place, times, grid=2, block=64, stream=stream)
    assert cuda.read(place, 1, np.uint64)[0] == times * 2 * sum(range(64)) * len(streams)


def test_mappings_change_while_a_kernel_runs(cuda: Cuda, kernel: Any) -> None:
    out = cuda.device_words(THREADS)
    stream = cuda.stream()
    start = int(cuda.cuMemAddressReserve(4 * MIB, 0, 0, 0))
    cuda.launch_function(kernel(b"step"), out, STEPS, block=THREADS, stream=stream)
    rounds = 0
    while rounds < 3 or (rounds < 50 and cuda.result("cuStreamQuery", stream) == "ERROR_NOT_READY"):
        handle = cuda.cuMemCreate(2 * MIB, cuda.properties(), 0)
        cuda.cuMemMap(start, 2 * MIB, 0, handle, 0)
        cuda.allow(start, 2 * MIB)
        cuda.cuMemUnmap(start, 2 * MIB)
        cuda.cuMemRelease(handle)
        rounds += 1
    cuda.cuMemAddressFree(start, 4 * MIB)
    assert cuda.read(out, THREADS).tolist() == [stepped(thread, STEPS) for thread in range(THREADS)]
