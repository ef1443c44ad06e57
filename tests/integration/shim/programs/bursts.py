"""For each line of input 30 steps of 100 launches, with the host's work between, waited for in this WAY."""

import ctypes
import sys
import time

from calls import KERNELS, done, launch, read, start
from cuda.bindings import driver

start()
nothing = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNELS)), b"nothing"))
stream = done(driver.cuStreamCreate(1))
memory = done(driver.cuMemAlloc(4))
event = done(driver.cuEventCreate(0))
into = bytearray(4)
word = int(done(driver.cuMemHostAlloc(4, 0)))


def event_wait():
    done(driver.cuEventRecord(event, stream))
    done(driver.cuEventSynchronize(event))


def late():
    time.sleep(5e-3)
    done(driver.cuStreamSynchronize(stream))


def copy():
    done(driver.cuMemcpyDtoHAsync(into, memory, 4, stream))
    done(driver.cuStreamSynchronize(stream))


def poll(query):
    """It is not over when the program first asks."""
    turn = ctypes.c_uint32.from_address(word)
    done(driver.cuStreamWaitValue32(stream, word, turn.value + 1, 0))
    done(driver.cuEventRecord(event, stream))
    assert query() == driver.CUresult.CUDA_ERROR_NOT_READY
    turn.value += 1
    while query() == driver.CUresult.CUDA_ERROR_NOT_READY:
        pass


WAYS = {
    "polled event": lambda: poll(lambda: driver.cuEventQuery(event)[0]),
    "polled stream": lambda: poll(lambda: driver.cuStreamQuery(stream)[0]),
    "stream": lambda: done(driver.cuStreamSynchronize(stream)),
    "context": lambda: done(driver.cuCtxSynchronize()),
    "event": event_wait,
    "copy": copy,
    "late": late,
    "default": lambda: read(memory),
}
if sys.argv[1] == "default":
    stream = 0
launch(nothing, stream)
done(driver.cuCtxSynchronize())  # as most programs do while they start
for _ in sys.stdin:
    for _ in range(30):
        for _ in range(100):
            launch(nothing, stream)
            time.sleep(1e-4)
        WAYS[sys.argv[1]]()
    print("stepped", flush=True)
