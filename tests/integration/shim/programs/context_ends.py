"""Deep stacks of contexts, and contexts that others destroy."""

import threading

from calls import done, names, start
from cuda.bindings import driver

CODE = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n"

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
for _ in range(20):  # nor does what else they have
    context = done(driver.cuCtxCreate(None, 0, device))
    for _ in range(220):
        module = done(driver.cuModuleLoadData(CODE))
        stream, event = done(driver.cuStreamCreate(1)), done(driver.cuEventCreate(0))
        done(driver.cuLaunchKernel(done(driver.cuModuleGetFunction(module, b"k")), *6 * [1], 0, stream, 0, 0))
        done(driver.cuEventRecord(event, stream))
    done(driver.cuCtxDestroy(context))
for flags in (1, 3, 8, 1 << 20):
    names(driver.cuDevicePrimaryCtxSetFlags(device, flags), driver.cuCtxSetFlags(flags))
