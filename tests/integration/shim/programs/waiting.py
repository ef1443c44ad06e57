"""Streams that wait for words nobody writes, until it is killed."""

import sys

from calls import KERNELS, done, start
from cuda.bindings import driver

start()
module = done(driver.cuModuleLoadData(KERNELS))
nothing = done(driver.cuModuleGetFunction(module, b"nothing"))
memory = done(driver.cuMemAlloc(64))
done(driver.cuMemsetD32(memory, 0, 16))
pinned = int(done(driver.cuMemHostAlloc(4096, 2)))
for index in range(30):
    stream = done(driver.cuStreamCreate(index % 2))
    address, value = (pinned, index) if index % 3 == 0 else (int(memory), 1 + index)
    done(driver.cuStreamWaitValue32(stream, address + 4, value + 1, 1))
    done(driver.cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))
done(driver.cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
print(0, flush=True)
sys.stdin.read()
