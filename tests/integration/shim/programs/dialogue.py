"""A kernel and the host hand words to each other while it runs, over mapped and over managed memory."""

import ctypes
import time

import numpy as np
from calls import done, names, start
from compiled import load
from cuda.bindings import driver

SOURCE = b"""
#include <cuda/atomic>
using Word = cuda::atomic_ref<unsigned, cuda::thread_scope_system>;

// A ring of 16 places: what the host has written, the kernel answers in order. Each counter has one writer.
struct Ring { unsigned asked, answered, total, pad[13]; unsigned question[16], answer[16]; };

extern "C" __global__ void serve(Ring* ring, int questions) {
    for (int number = 0; number < questions; ++number) {
        while (Word(ring->asked).load(cuda::memory_order_acquire) <= number) __nanosleep(200);
        const unsigned question = ring->question[number % 16];
        if (threadIdx.x == 0) ring->answer[number % 16] = question * question;
        atomicAdd_system(&ring->total, question);
        __syncwarp();
        if (threadIdx.x == 0) Word(ring->answered).store(number + 1, cuda::memory_order_release);
        __syncwarp();
    }
}
"""

start()
serve = done(driver.cuModuleGetFunction(load(SOURCE), b"serve"))
stream = done(driver.cuStreamCreate(1))
questions = 50


def hold(address):
    """Ask as many questions as there is room for, and take what is there of answers."""
    words = np.ctypeslib.as_array((ctypes.c_uint32 * 48).from_address(address))
    words[:] = 0
    stored = (ctypes.c_uint64(address), ctypes.c_int(questions))
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in stored))
    names(driver.cuLaunchKernel(serve, 1, 1, 1, 32, 1, 1, 0, stream, ctypes.addressof(pointers), 0))
    asked, answers = 0, []
    last = time.monotonic() + 30
    while len(answers) < questions and time.monotonic() < last:
        if asked < questions and asked - len(answers) < 16:
            words[16 + asked % 16] = asked + 3
            asked += 1
            words[0] = asked
        while len(answers) < words[1]:
            answers.append(int(words[32 + len(answers) % 16]))
    names(driver.cuStreamSynchronize(stream))
    print(answers == [(number + 3) ** 2 for number in range(questions)])
    print(words[2] == 32 * sum(range(3, questions + 3)))


hold(int(done(driver.cuMemHostAlloc(192, 2))))
hold(int(done(driver.cuMemAllocManaged(192, 1))))
