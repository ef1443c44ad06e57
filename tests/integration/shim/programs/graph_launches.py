"""For each line of input: one graph of 20 kernels, five times, in two streams by turns; what they counted."""

import sys

from calls import KERNELS, done, read, start
from cuda.bindings import driver

start()
increment = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNELS)), b"increment"))
memory = done(driver.cuMemAlloc(4))
done(driver.cuMemsetD32(memory, 0, 1))
streams = [done(driver.cuStreamCreate(1)) for _ in range(2)]
done(driver.cuStreamBeginCapture(streams[0], driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
for _ in range(20):
    done(driver.cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, streams[0], ((memory,), (None,)), 0))
ready = done(driver.cuGraphInstantiate(done(driver.cuStreamEndCapture(streams[0])), 0))
for _ in sys.stdin:
    for turn in range(5):
        done(driver.cuGraphLaunch(ready, streams[turn % 2]))
    done(driver.cuCtxSynchronize())
    print(int.from_bytes(read(memory), "little"), flush=True)
