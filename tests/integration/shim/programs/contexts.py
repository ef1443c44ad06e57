import threading

from calls import done, names, start
from cuda.bindings import driver

print(driver.cuDeviceGetCount()[0].name)  # before cuInit
print(driver.cuInit(1)[0].name)
device, primary = start()
print(done(driver.cuDeviceGetCount()), driver.cuDeviceGet(1)[0].name)
print(done(driver.cuDeviceGetName(64, device)).split(b"\0")[0], done(driver.cuDriverGetVersion()))
print(done(driver.cuDeviceTotalMem(device)), done(driver.cuDeviceGetUuid(device)).bytes.hex())
print(done(driver.cuDeviceGetPCIBusId(32, device)).split(b"\0")[0])
for number in (1, 2, 8, 10, 13, 16, 39, 75, 76, 81, 97, 106):
    attribute = driver.CUdevice_attribute(number)
    print(number, done(driver.cuDeviceGetAttribute(attribute, device)))
print(done(driver.cuDevicePrimaryCtxGetState(device)), done(driver.cuCtxGetDevice()) == device)
print(done(driver.cuCtxGetStreamPriorityRange()), done(driver.cuCtxGetApiVersion(primary)))
own = done(driver.cuCtxCreate(None, 0, device))
print(int(done(driver.cuCtxGetCurrent())) == int(own), int(done(driver.cuCtxPopCurrent())) == int(own))
print(int(done(driver.cuCtxGetCurrent())) == int(primary))
done(driver.cuCtxPushCurrent(own))
done(driver.cuCtxDestroy(own))
print(int(done(driver.cuCtxGetCurrent())) == int(primary))


def elsewhere():
    print(int(done(driver.cuCtxGetCurrent())), driver.cuMemAlloc(16)[0].name)


thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
for number in (0, 1, 2, 3, 100, 700, 999):
    print(number, driver.cuGetErrorName(driver.CUresult(number))[1])
done(driver.cuDevicePrimaryCtxRelease(device))
print(driver.cuDevicePrimaryCtxRelease(device)[0].name)

device, primary = start()
memory = done(driver.cuMemAlloc(1 << 20))
names(driver.cuDevicePrimaryCtxReset(device))
print(done(driver.cuDevicePrimaryCtxGetState(device))[1])
names(driver.cuDevicePrimaryCtxReset(device), driver.cuDevicePrimaryCtxRelease(device))
device, again = start()
print(int(again) == int(primary), done(driver.cuDevicePrimaryCtxGetState(device))[1])
names(driver.cuMemFree(memory), driver.cuMemAlloc(1 << 20), driver.cuDevicePrimaryCtxRelease(device))
print(done(driver.cuDevicePrimaryCtxGetState(device))[1])
