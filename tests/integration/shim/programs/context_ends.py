"""Deep stacks of contexts, and contexts that others destroy."""

import threading

from calls import done, names, start
from cuda.bindings import driver

device, primary = start()
own = done(driver.cuCtxCreate(None, 0, device))
for index in range(200):
    done(driver.cuCtxPushCurrent(own if index % 2 else primary))
depth = 0
while int(driver.cuCtxPopCurrent()[0]) == 0:
    depth += 1
print(depth)
names(driver.cuMemAlloc(4), driver.cuCtxGetDevice())

done(driver.cuCtxPushCurrent(own))
memory = int(done(driver.cuMemAlloc(1 << 20)))
pinned = int(done(driver.cuMemHostAlloc(4096, 0)))
thread = threading.Thread(target=lambda: names(driver.cuCtxDestroy(own)))
thread.start()
thread.join()
names(driver.cuMemAlloc(16), driver.cuCtxSynchronize(), driver.cuMemsetD8(memory, 0, 4))
names(driver.cuStreamCreate(0), driver.cuCtxGetDevice(), driver.cuCtxPopCurrent())
done(driver.cuCtxSetCurrent(primary))
names(driver.cuMemFree(memory), driver.cuMemFreeHost(pinned))  # gone with their context

before = done(driver.cuMemGetInfo())[0]
for _ in range(100):  # whose memory does not pile up
    context = done(driver.cuCtxCreate(None, 0, device))
    done(driver.cuMemAlloc(64 << 20))
    done(driver.cuCtxDestroy(context))
print(before - done(driver.cuMemGetInfo())[0] <= 64 << 20)
for flags in (1, 3, 8, 1 << 20):
    names(driver.cuDevicePrimaryCtxSetFlags(device, flags), driver.cuCtxSetFlags(flags))
