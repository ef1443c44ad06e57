"""For each line of input: a graph of 20 kernels, five times, in two streams by turns; whether the second
waits while the first is held up, and what they counted."""

import ctypes
import sys
import time

from calls import KERNELS, done, read, start
from cuda.bindings import driver

start()
increment = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNELS)), b"increment"))
memory = done(driver.cuMemAlloc(4))
done(driver.cuMemsetD32(memory, 0, 1))
gate = done(driver.cuMemHostAlloc(4, 2))
held = ctypes.c_uint32.from_address(int(gate))
streams = [done(driver.cuStreamCreate(1)) for _ in range(2)]
done(driver.cuStreamBeginCapture(streams[0], driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
for _ in range(20):
    done(driver.cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, streams[0], ((memory,), (None,)), 0))
ready = done(driver.cuGraphInstantiate(done(driver.cuStreamEndCapture(streams[0])), 0))
for _ in sys.stdin:
    held.value = 0
    done(driver.cuStreamWaitValue32(streams[0], gate, 1, 0))
    for turn in range(5):
        done(driver.cuGraphLaunch(ready, streams[turn % 2]))
    time.sleep(0.03)
    waits = driver.cuStreamQuery(streams[1])[0].name
    held.value = 1
    done(driver.cuCtxSynchronize())
    print(waits, int.from_bytes(read(memory), "little"), flush=True)
