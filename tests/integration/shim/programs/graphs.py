from calls import KERNELS, done, read, start
from cuda.bindings import driver

device, _ = start()
module = done(driver.cuModuleLoadData(KERNELS))
increment = done(driver.cuModuleGetFunction(module, b"increment"))
memory, other = (done(driver.cuMemAlloc(64)) for _ in range(2))
done(driver.cuMemsetD32(memory, 0, 1))
main, side = (done(driver.cuStreamCreate(1)) for _ in range(2))
event, back = (done(driver.cuEventCreate(2)) for _ in range(2))
mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
status = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE


def add(stream):
    done(driver.cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, stream, ((memory,), (None,)), 0))


print(driver.cuStreamBeginCapture(0, mode)[0].name)
done(driver.cuStreamBeginCapture(main, mode))
print(done(driver.cuStreamIsCapturing(main)) == status, done(driver.cuStreamIsCapturing(side)) == status)
for _ in range(3):
    add(main)
done(driver.cuEventRecord(event, main))
done(driver.cuStreamWaitEvent(side, event, 0))
print(done(driver.cuStreamIsCapturing(side)) == status)
done(driver.cuMemcpyDtoDAsync(other, memory, 4, side))
done(driver.cuMemsetD8Async(int(other) + 4, 7, 4, side))
done(driver.cuEventRecord(back, side))
done(driver.cuStreamWaitEvent(main, back, 0))
add(main)
graph = done(driver.cuStreamEndCapture(main))
print(done(driver.cuStreamIsCapturing(main)) == status, read(memory))  # nothing ran
print(done(driver.cuGraphGetNodes(graph))[1])
ready = done(driver.cuGraphInstantiate(graph, 0))
done(driver.cuGraphDestroy(graph))
for _ in range(4):
    done(driver.cuGraphLaunch(ready, main))
done(driver.cuStreamSynchronize(main))
print(read(memory), read(other, 8))
done(driver.cuGraphExecDestroy(ready))
print(driver.cuStreamEndCapture(main)[0].name)
