"""Threads with default streams of their own, and many objects that end while they are in use."""

import threading

from calls import KERNELS, done, launch, names, read, start
from cuda.bindings import driver

_, context = start()
OWN = 2  # CU_STREAM_PER_THREAD
module = done(driver.cuModuleLoadData(KERNELS))
increment = done(driver.cuModuleGetFunction(module, b"increment"))
memory = int(done(driver.cuMemAlloc(64)))
done(driver.cuMemsetD32(memory, 0, 16))


def count(place, rounds):
    driver.cuCtxSetCurrent(context)
    for _ in range(rounds):
        done(launch(increment, OWN, place))
    done(driver.cuStreamSynchronize(OWN))


for threads in ([(memory + 4 * index, 200) for index in range(8)], *([(memory, 1)] for _ in range(200))):
    running = [threading.Thread(target=count, args=arguments) for arguments in threads]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
print([int.from_bytes(read(memory + 4 * index), "little") for index in range(8)])

for _ in range(50):
    stream, event = done(driver.cuStreamCreate(0)), done(driver.cuEventCreate(2))
    for _ in range(20):
        done(launch(increment, stream, memory))
    done(driver.cuEventRecord(event, stream))
    done(driver.cuStreamWaitEvent(0, event, 0))
    done(driver.cuStreamDestroy(stream))
    done(driver.cuEventDestroy(event))
modules = [done(driver.cuModuleLoadData(KERNELS)) for _ in range(200)]
for other in [*modules, module]:
    done(driver.cuModuleUnload(other))
names(driver.cuCtxSynchronize())
print(int.from_bytes(read(memory), "little"))
for _ in range(10):
    streams = [done(driver.cuStreamCreate(1)) for _ in range(300)]
    for stream in streams:
        done(driver.cuStreamDestroy(stream))
for _ in range(20000):
    done(driver.cuEventDestroy(done(driver.cuEventCreate(0))))

total = done(driver.cuMemGetInfo())[1]
held = []
while int((answer := driver.cuMemAlloc(total // 8))[0]) == 0:
    held.append(answer[1])
print(len(held), answer[0].name)
for each in held:
    done(driver.cuMemFree(each))
names(driver.cuMemAlloc(total // 8), driver.cuMemAlloc(2 * total), driver.cuMemAllocAsync(2 * total, 0))
