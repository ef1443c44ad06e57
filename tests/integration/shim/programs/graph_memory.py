"""Memory that graphs allocate, use, free, and leave to others to free."""

from calls import done, names, read, start
from cuda.bindings import driver

start()
stream = done(driver.cuStreamCreate(1))
MODE = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


def use():
    print([int(done(driver.cuDeviceGetGraphMemAttribute(0, kind))) for kind in driver.CUgraphMem_attribute])


out = done(driver.cuMemAlloc(16))
done(driver.cuMemsetD32(out, 0, 4))
done(driver.cuStreamBeginCapture(stream, MODE))
memory = done(driver.cuMemAllocAsync(1 << 16, stream))
done(driver.cuMemsetD32Async(memory, 9, 4, stream))
done(driver.cuMemcpyDtoDAsync(out, memory, 16, stream))
graph = done(driver.cuStreamEndCapture(stream))
once = done(driver.cuGraphInstantiate(graph, 0))
use()


def launch():
    return driver.cuGraphLaunch(once, stream)


names(launch(), launch(), driver.cuStreamSynchronize(stream))  # what is in use is not allocated again
print(read(out, 16), read(memory))
use()
names(driver.cuMemFreeAsync(memory, stream), launch(), driver.cuStreamSynchronize(stream))
names(driver.cuMemFree(memory), launch())
use()
names(driver.cuMemFreeAsync(memory, stream))
use()
names(driver.cuStreamSynchronize(stream))

# One executable at a time, and no copies.
names(driver.cuGraphInstantiate(graph, 1), driver.cuGraphClone(graph))
names(driver.cuGraphAddChildGraphNode(done(driver.cuGraphCreate(0)), None, 0, graph))
names(driver.cuGraphExecDestroy(once))
again = done(driver.cuGraphInstantiate(graph, 1))  # frees at each launch
names(driver.cuGraphLaunch(again, stream), driver.cuGraphLaunch(again, stream))
use()
names(driver.cuDeviceGraphMemTrim(0), driver.cuDeviceGraphMemTrim(7), driver.cuGraphExecUpdate(again, graph))
nodes = done(driver.cuGraphGetNodes(graph, 3))[0]
print([done(driver.cuGraphNodeGetType(node)).name for node in nodes])
told = done(driver.cuGraphMemAllocNodeGetParams(nodes[0]))
print(told.bytesize, int(told.dptr) == int(memory))
names(driver.cuStreamBeginCapture(stream, MODE), driver.cuMemFreeAsync(out, stream))  # not a graph's
names(driver.cuStreamEndCapture(stream))

# One graph allocates, another frees.
names(driver.cuGraphExecDestroy(again))
once = done(driver.cuGraphInstantiate(graph, 0))
names(driver.cuMemFreeAsync(memory, stream), driver.cuGraphLaunch(once, stream))
freeing = done(driver.cuGraphCreate(0))
node = done(driver.cuGraphAddMemFreeNode(freeing, None, 0, memory))
print(int(done(driver.cuGraphMemFreeNodeGetParams(node))) == int(memory))
names(driver.cuGraphLaunch(done(driver.cuGraphInstantiate(freeing, 0)), stream), launch())
names(driver.cuGraphAddMemFreeNode(freeing, None, 0, out), driver.cuGraphAddMemFreeNode(freeing, None, 0, 0))
done(driver.cuMemFreeAsync(memory, stream))
names(driver.cuGraphExecDestroy(once), driver.cuGraphDestroy(graph))
