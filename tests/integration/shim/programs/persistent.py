"""Kernels that run until they are told to end; copies of another stream feed them, and kernels look on."""

import ctypes
import sys
import time

from calls import done, read, start
from cuda.bindings import driver

KERNEL = b"""
.version 7.8
.target sm_80
.address_size 64
// Counts each new word that it finds, until that is all ones.
.visible .entry serve(.param .u64 words, .param .u64 counts)
{
    .reg .b64 %rd<3>; .reg .b32 %r<4>; .reg .pred %p<3>;
    ld.param.u64 %rd1, [words];
    ld.param.u64 %rd2, [counts];
    mov.u32 %r1, 0;
LOOK:
    ld.volatile.global.u32 %r2, [%rd1];
    setp.ne.u32 %p1, %r2, %r1;
    @%p1 bra FOUND;
    nanosleep.u32 20000;  // so that the simulated GPU takes no long wait for an endless loop
    bra LOOK;
FOUND:
    setp.eq.u32 %p2, %r2, 0xffffffff;
    @%p2 ret;
    mov.u32 %r1, %r2;
    atom.global.add.u32 %r3, [%rd2], 1;
    bra LOOK;
}
.visible .entry look(.param .u64 count)
{
    .reg .b64 %rd<2>; .reg .b32 %r<2>;
    ld.param.u64 %rd1, [count];
    atom.global.add.u32 %r1, [%rd1], 1;
    ret;
}
"""
SERVERS, BLOCKS = 14, 2
start()
module = done(driver.cuModuleLoadData(KERNEL))
serve = done(driver.cuModuleGetFunction(module, b"serve"))
look = done(driver.cuModuleGetFunction(module, b"look"))
streams = [done(driver.cuStreamCreate(1)) for _ in range(SERVERS)]
feeding = done(driver.cuStreamCreate(1))
words = int(done(driver.cuMemAlloc(256)))
counts, looks = words + 128, words + 192
pinned = int(done(driver.cuMemHostAlloc(64, 0)))
word = ctypes.c_uint32.from_address(pinned)


def over(stream):
    end = time.monotonic() + 20
    while driver.cuStreamQuery(stream)[0] == driver.CUresult.CUDA_ERROR_NOT_READY:
        if time.monotonic() > end:
            sys.exit("what would end it is kept back")
    done(driver.cuStreamSynchronize(stream))


def feed(value):
    word.value = value
    for place in range(SERVERS):
        done(driver.cuMemcpyHtoDAsync(words + 4 * place, pinned, 4, feeding))
    done(driver.cuLaunchKernel(look, 1, 1, 1, 1, 1, 1, 0, feeding, ((looks,), (ctypes.c_void_p,)), 0))
    over(feeding)


for _ in range(4):  # how long they last is known after the first time
    done(driver.cuMemsetD32Async(words, 0, 64, feeding))
    over(feeding)
    for place, stream in enumerate(streams):
        values = ((words + 4 * place, counts + 4 * place), (ctypes.c_void_p, ctypes.c_void_p))
        done(driver.cuLaunchKernel(serve, BLOCKS, 1, 1, 32, 1, 1, 0, stream, values, 0))
    for value in (1, 2, 0xFFFFFFFF):
        time.sleep(0.05)
        feed(value)
    for stream in streams:
        over(stream)
    print(read(looks, 4).hex())
