"""For each line of input 30 steps of 100 launches, with the host's work between, waited for in this WAY."""

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


def event_wait():
    done(driver.cuEventRecord(event, stream))
    done(driver.cuEventSynchronize(event))


def late():
    time.sleep(5e-3)
    done(driver.cuStreamSynchronize(stream))


def copy():
    done(driver.cuMemcpyDtoHAsync(into, memory, 4, stream))
    done(driver.cuStreamSynchronize(stream))


WAYS = {
    "stream": lambda: done(driver.cuStreamSynchronize(stream)),
    "context": lambda: done(driver.cuCtxSynchronize()),
    "event": event_wait,
    "copy": copy,
    "late": late,
    "default": lambda: read(memory),
}
if sys.argv[1] == "default":
    stream = 0
for _ in sys.stdin:
    for _ in range(30):
        for _ in range(100):
            launch(nothing, stream)
            time.sleep(1e-4)
        WAYS[sys.argv[1]]()
    print("stepped", flush=True)
