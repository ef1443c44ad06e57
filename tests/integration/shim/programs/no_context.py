"""What calls say of a context that has ended, and of what never was one."""

from calls import done, names, start
from cuda.bindings import driver

device, primary = start()
own = done(driver.cuCtxCreate(None, 0, device))
done(driver.cuCtxDestroy(own))
for named in (own, driver.CUcontext(id(own))):
    names(driver.cuCtxSynchronize_v2(named), driver.cuCtxGetDevice_v2(named), driver.cuCtxGetId(named))
