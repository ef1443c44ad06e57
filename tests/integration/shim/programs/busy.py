"""Three threads with launches, copies, graphs, allocations until standard input ends; then the sum is right.

Prints a line now and then. A CUDA error ends it: its name is printed.
"""

import ctypes
import sys
import threading

from calls import KERNELS, start
from cuda.bindings import driver

ended = threading.Event()


def checked(answer):
    if int(answer[0]):
        raise RuntimeError(answer[0].name)
    return answer[1] if len(answer) == 2 else answer[1:]


def work(context, index):
    checked(driver.cuCtxSetCurrent(context))
    module = checked(driver.cuModuleLoadData(KERNELS))
    increment = checked(driver.cuModuleGetFunction(module, b"increment"))
    stream = checked(driver.cuStreamCreate(1))
    memory = checked(driver.cuMemAlloc(64))
    checked(driver.cuMemsetD32(memory, 0, 16))
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL  # others allocate meanwhile
    checked(driver.cuStreamBeginCapture(stream, mode))
    for _ in range(3):
        checked(driver.cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, stream, ((memory,), (None,)), 0))
    graph = checked(driver.cuGraphInstantiate(checked(driver.cuStreamEndCapture(stream)), 0))
    into = ctypes.c_uint32()
    rounds = 0
    while not ended.is_set() or rounds == 0:
        checked(driver.cuGraphLaunch(graph, stream))
        checked(driver.cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, stream, ((memory,), (None,)), 0))
        other = checked(driver.cuMemAlloc(1 << 16))
        checked(driver.cuMemsetD8Async(other, 1, 1 << 16, stream))
        checked(driver.cuMemFree(other))
        checked(driver.cuMemcpyDtoHAsync(ctypes.addressof(into), memory, 4, stream))
        checked(driver.cuStreamSynchronize(stream))
        rounds += 1
        assert into.value == 4 * rounds
        if index == 0 and rounds % 20 == 0:
            print(rounds, flush=True)


def guarded(context, index):
    try:
        work(context, index)
    except RuntimeError as error:
        errors.append(str(error))
        ended.set()


errors = []
_, context = start()
threads = [threading.Thread(target=guarded, args=(context, index)) for index in range(3)]
for thread in threads:
    thread.start()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
for thread in threads:
    thread.join()
print(" ".join(sorted(set(errors))) or "right")
