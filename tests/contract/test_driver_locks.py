"""Threads of a grid that wait for each other: whoever can go on does, however the others wait meanwhile.

Each kernel in CUDA C adds one to out[0] for each of its threads (dining: for each of their meals), by a load
and a store that only a lock keeps apart.
"""

import ctypes

import pytest
from cuda_calls import Cuda
from kernel_corpus import compile_text

SOURCE = """
#define CRITICAL { unsigned seen = *out; REST *out = seen + 1; __threadfence(); }
#define REST if (nanoseconds) __nanosleep(nanoseconds);
typedef volatile unsigned* Words;
__device__ unsigned lock, taken, forks[256];
__device__ volatile unsigned served;

// Who holds the lock sleeps; the others look again and again.
extern "C" __global__ void spinning(Words out, unsigned nanoseconds) {
    bool done = false;
    while (!done) {
        if (atomicCAS(&lock, 0, 1) == 0) {
            CRITICAL
            atomicExch(&lock, 0);
            done = true;
        }
    }
}

// The others sleep, too, twice as long each time.
extern "C" __global__ void sleeping(Words out, unsigned nanoseconds) {
    for (unsigned pause = 8; atomicCAS(&lock, 0, 1) != 0; pause = pause < 256 ? 2 * pause : pause)
        __nanosleep(pause);
    CRITICAL
    atomicExch(&lock, 0);
}

// Holder and others wait by the clock.
extern "C" __global__ void by_the_clock(Words out, unsigned nanoseconds) {
    bool done = false;
    while (!done) {
        bool mine = atomicExch(&lock, 1) == 0;
        unsigned seen = *out;
        for (long long start = clock64(); clock64() - start < nanoseconds;) {
        }
        if (!mine) continue;
        *out = seen + 1;
        __threadfence();
        atomicExch(&lock, 0);
        done = true;
    }
}

// One after the other, by number.
extern "C" __global__ void in_turn(Words out, unsigned nanoseconds) {
    unsigned number = atomicAdd(&taken, 1);
    bool done = false;
    while (!done) {
        if (served != number) continue;
        CRITICAL
        served = number + 1;
        done = true;
    }
}

// Each needs its own fork and its neighbour's, three times.
extern "C" __global__ void dining(Words out, unsigned nanoseconds) {
    unsigned count = gridDim.x * blockDim.x, me = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned next = (me + 1) % count, first = min(me, next), second = max(me, next);
    for (int meal = 0; meal < 3; ++meal) {
        bool done = false;
        while (!done) {
            if (atomicCAS(&forks[first], 0, 1) != 0) continue;
            if (atomicCAS(&forks[second], 0, 1) == 0) {
                REST
                atomicAdd((unsigned*)out, 1);
                atomicExch(&forks[second], 0);
                done = true;
            }
            atomicExch(&forks[first], 0);
        }
    }
}
"""


@pytest.mark.parametrize("nanoseconds", [0, 20, 2000])
@pytest.mark.parametrize(("grid", "block"), [(1, 32), (2, 32), (4, 64)])
def test_a_lock_whose_holder_rests(cuda: Cuda, grid: int, block: int, nanoseconds: int) -> None:
    module = cuda.cuModuleLoadData(compile_text(SOURCE))
    out = cuda.device_words()
    entered = {}
    for name in ("spinning", "sleeping", "by_the_clock", "in_turn", "dining"):
        cuda.cuMemsetD32(out, 0, 1)
        kernel = cuda.cuModuleGetFunction(module, name.encode())
        cuda.launch_function(kernel, out, ctypes.c_uint32(nanoseconds), grid=grid, block=block)
        entered[name] = int(cuda.read(out)[0]) // (3 if name == "dining" else 1)
    cuda.cuMemFree(out)
    cuda.cuModuleUnload(module)
    assert entered == dict.fromkeys(entered, grid * block)
