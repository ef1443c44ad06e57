"""More of everything than a program usually has."""

import ctypes

from calls import KERNELS, done, read, start
from cuda.bindings import driver

start()
streams = [done(driver.cuStreamCreate(index % 2)) for index in range(4000)]
memory = done(driver.cuMemAlloc(4 * len(streams)))
for index, stream in enumerate(streams):
    done(driver.cuMemsetD32Async(int(memory) + 4 * index, index, 1, stream))
done(driver.cuCtxSynchronize())
values = memoryview(read(memory, 4 * len(streams))).cast("I")
print(all(value == index for index, value in enumerate(values)))
for stream in streams:
    done(driver.cuStreamDestroy(stream))

events = [done(driver.cuEventCreate(2)) for _ in range(10000)]
for event in events:
    done(driver.cuEventRecord(event, 0))
for event in events:
    done(driver.cuEventSynchronize(event))
    done(driver.cuEventDestroy(event))

modules = [done(driver.cuModuleLoadData(KERNELS)) for _ in range(5000)]
stores = [done(driver.cuModuleGetFunction(module, b"store")) for module in modules]
arguments = (memory, 77), (None, ctypes.c_uint32)
done(driver.cuLaunchKernel(stores[-1], 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0))
print(read(memory))
for module in modules:
    done(driver.cuModuleUnload(module))

for address in [done(driver.cuMemAlloc(100)) for _ in range(10000)]:
    done(driver.cuMemFree(address))
for address in [done(driver.cuMemAllocHost(4096)) for _ in range(300)]:
    done(driver.cuMemFreeHost(address))
for _ in range(20):
    done(driver.cuCtxDestroy(done(driver.cuCtxCreate(None, 0, 0))))
print(driver.cuCtxSynchronize()[0].name)
