"""Graphs with work of two devices, launched by streams of both: nodes need what others left on the other."""

import ctypes
import time

from calls import KERNELS, done, read
from cuda.bindings import driver

DEVICE = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
done(driver.cuInit(0))
contexts = [done(driver.cuDevicePrimaryCtxRetain(device)) for device in range(2)]
streams, increments, memories, events = [], [], [], []
for context in contexts:
    done(driver.cuCtxSetCurrent(context))
    streams.append(done(driver.cuStreamCreate(1)))
    module = done(driver.cuModuleLoadData(KERNELS))
    increments.append(done(driver.cuModuleGetFunction(module, b"increment")))
    memories.append(int(done(driver.cuMemAlloc(64))))
    events.append(done(driver.cuEventCreate(0)))
    done(driver.cuMemsetD8(memories[-1], 0, 64))
    done(driver.cuCtxSynchronize())
calls = []


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def host(argument):
    calls.append(argument)


def kernel(device, offset=0):
    node = driver.CUDA_KERNEL_NODE_PARAMS()
    node.func = increments[device]
    node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1
    node.kernelParams = ((memories[device] + offset,), (ctypes.c_uint64,))
    return node


def add(graph, before, device):
    done(driver.cuCtxSetCurrent(contexts[device]))
    return done(driver.cuGraphAddKernelNode(graph, before, len(before), kernel(device)))


def add_copy(graph, before, to, source):
    copy = driver.CUDA_MEMCPY3D()
    copy.srcMemoryType = copy.dstMemoryType = DEVICE
    copy.srcDevice, copy.dstDevice = memories[source], memories[to]
    copy.WidthInBytes, copy.Height, copy.Depth = 4, 1, 1
    return done(driver.cuGraphAddMemcpyNode(graph, before, len(before), copy, contexts[source]))


def run(executable, times=1):
    """By a stream of each device, which has work of its own before and after."""
    for device, stream in enumerate(streams):
        done(driver.cuCtxSetCurrent(contexts[device]))
        done(driver.cuMemsetD32Async(memories[device], 100 * device, 1, stream))
        for _ in range(times):
            done(driver.cuGraphLaunch(executable, stream))
        done(driver.cuMemcpyDtoDAsync(memories[device] + 32, memories[device], 4, stream))
        done(driver.cuStreamSynchronize(stream))
        print([memoryview(read(memory, 64)).cast("I").tolist()[::8] for memory in memories], calls)


graph = done(driver.cuGraphCreate(0))
there = add_copy(graph, [add(graph, [], 0)], 1, 0)
last = add(graph, [add_copy(graph, [add(graph, [there], 1)], 0, 1)], 0)
executable = done(driver.cuGraphInstantiate(graph, 0))
run(executable)
run(executable, 20)

# With nodes that are the host's, and an event of the other device's.
function = driver.CUDA_HOST_NODE_PARAMS()
function.fn, function.userData = ctypes.cast(host, ctypes.c_void_p).value, 9
called = done(driver.cuGraphAddHostNode(graph, [last], 1, function))
done(driver.cuGraphAddEventRecordNode(graph, [add(graph, [called], 1)], 1, events[1]))
longer = done(driver.cuGraphInstantiate(graph, 0))
run(longer, 2)
print(driver.cuEventQuery(events[1])[0].name)

# Changed: a kernel's other memory, but to none of the other device's; switched off.
print(driver.cuGraphExecKernelNodeSetParams(executable, last, kernel(1, 4))[0].name)
run(executable)
done(driver.cuGraphExecKernelNodeSetParams(executable, last, kernel(0, 4)))
run(executable)
done(driver.cuGraphNodeSetEnabled(executable, last, 0))
run(executable)
print(memoryview(read(memories[0], 64)).cast("I").tolist()[1])

# Of one device, launched by the other's stream too.
alone = done(driver.cuGraphCreate(0))
add(alone, [add(alone, [], 1)], 1)
executable = done(driver.cuGraphInstantiate(alone, 0))
run(executable, 3)

# One launch comes behind the one before it, though that is in a stream of the other device, which waits.
for first in (0, 1):
    done(driver.cuCtxSetCurrent(contexts[1]))
    done(driver.cuMemsetD32(memories[1], 0, 1))
    done(driver.cuCtxSetCurrent(contexts[first]))
    pinned = int(done(driver.cuMemHostAlloc(8, 1)))
    gate, seen = (ctypes.c_uint32.from_address(pinned + 4 * number) for number in range(2))
    gate.value = seen.value = 0
    done(driver.cuStreamWaitValue32(streams[first], pinned, 1, 0))
    done(driver.cuGraphLaunch(executable, streams[first]))
    done(driver.cuCtxSetCurrent(contexts[1 - first]))
    done(driver.cuGraphLaunch(executable, streams[1 - first]))
    done(driver.cuMemcpyAsync(pinned + 4, memories[1], 4, streams[1 - first]))
    time.sleep(0.03)
    gate.value = 1
    for context, stream in zip(contexts, streams, strict=True):
        done(driver.cuCtxSetCurrent(context))
        done(driver.cuStreamSynchronize(stream))
    print(seen.value)
