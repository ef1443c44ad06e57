"""A primary context that is current without having been retained by a call, as the runtime's is.

The runtime finds it by a table of the driver's. What it has there stays when others retain and release the
context.
"""

from calls import call, done
from cuda.bindings import driver

done(driver.cuInit(0))
device = done(driver.cuDeviceGet(0))
primary = done(driver.cuDevicePrimaryCtxRetain(device))
done(driver.cuDevicePrimaryCtxRelease(device))
call("cuCtxSetCurrent", primary)
print(done(driver.cuDevicePrimaryCtxGetState(device))[1], "active")
memory = int(done(driver.cuMemAlloc(64)))
for _ in range(2):
    call("cuDevicePrimaryCtxRetain", device)
    call("cuDevicePrimaryCtxRelease", device)
call("cuMemsetD8", memory, 1, 64)
call("cuCtxSynchronize")
call("cuMemFree", memory)
