"""A graph that is built node by node: launched, nested, cloned, changed, updated, taken apart."""

import ctypes

from calls import KERNELS, done, read, start
from cuda.bindings import driver

start()
context = done(driver.cuCtxGetCurrent())
module = done(driver.cuModuleLoadData(KERNELS))
increment, store = (done(driver.cuModuleGetFunction(module, name)) for name in (b"increment", b"store"))
memory = done(driver.cuMemAlloc(256))
done(driver.cuMemsetD8(memory, 0, 256))
stream = done(driver.cuStreamCreate(1))
calls = []


def kernel(function, *arguments):
    node = driver.CUDA_KERNEL_NODE_PARAMS()
    node.func = function
    node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1
    node.kernelParams = (arguments, (ctypes.c_uint64, ctypes.c_uint32)[: len(arguments)])
    return node


def add_kernel(graph, before, function, *arguments):
    return done(driver.cuGraphAddKernelNode(graph, before, len(before), kernel(function, *arguments)))


def run(executable, times=1):
    for _ in range(times):
        done(driver.cuGraphLaunch(executable, stream))
    done(driver.cuStreamSynchronize(stream))
    print(memoryview(read(memory, 64)).cast("I").tolist(), calls)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def host(argument):
    calls.append(argument)


fill = driver.CUDA_MEMSET_NODE_PARAMS()
fill.dst, fill.value, fill.elementSize, fill.width, fill.height, fill.pitch = memory, 5, 4, 4, 1, 16
copy = driver.CUDA_MEMCPY3D()
copy.srcMemoryType = copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
copy.srcDevice, copy.dstDevice = memory, int(memory) + 32
copy.WidthInBytes, copy.Height, copy.Depth = 16, 1, 1
function = driver.CUDA_HOST_NODE_PARAMS()
function.fn, function.userData = ctypes.cast(host, ctypes.c_void_p).value, 9

graph = done(driver.cuGraphCreate(0))
first = done(driver.cuGraphAddMemsetNode(graph, [], 0, fill, context))
left = add_kernel(graph, [first], increment, int(memory))
right = add_kernel(graph, [first], increment, int(memory) + 4)
both = done(driver.cuGraphAddEmptyNode(graph, [left, right], 2))
copied = done(driver.cuGraphAddMemcpyNode(graph, [both], 1, copy, context))
print([done(call(graph))[-1] for call in (driver.cuGraphGetNodes, driver.cuGraphGetRootNodes)])
print(done(driver.cuGraphGetEdges(graph))[-1], done(driver.cuGraphNodeGetDependencies(both))[-1])
print([int(done(driver.cuGraphNodeGetType(node))) for node in done(driver.cuGraphGetNodes(graph, 5))[0]])
ready = done(driver.cuGraphInstantiate(graph, 0))
run(ready, 2)

last = done(driver.cuGraphAddHostNode(graph, [copied], 1, function))
called = done(driver.cuGraphInstantiate(graph, 0))
run(called, 2)

parent = done(driver.cuGraphCreate(0))
child = done(driver.cuGraphAddChildGraphNode(parent, [], 0, graph))
add_kernel(parent, [child], increment, int(memory) + 8)
run(done(driver.cuGraphInstantiate(parent, 0)))
clone = done(driver.cuGraphClone(graph))
print(done(driver.cuGraphGetNodes(clone))[-1])
run(done(driver.cuGraphInstantiate(clone, 0)))

fill.value = 50
done(driver.cuGraphMemsetNodeSetParams(first, fill))
print(int(done(driver.cuGraphExecUpdate(called, graph)).result))
run(called)
fill.value = 70
done(driver.cuGraphExecMemsetNodeSetParams(ready, first, fill, context))
run(ready)
done(driver.cuGraphExecKernelNodeSetParams(ready, right, kernel(store, int(memory) + 4, 1234)))
run(ready)
done(driver.cuGraphNodeSetEnabled(ready, left, 0))
run(ready)
print(done(driver.cuGraphNodeGetEnabled(ready, left)), done(driver.cuGraphNodeGetEnabled(ready, right)))

done(driver.cuGraphDestroyNode(last))
print(done(driver.cuGraphGetNodes(graph))[-1])
done(driver.cuGraphAddDependencies(graph, [copied], [first], None, 1))
print(driver.cuGraphInstantiate(graph, 0)[0].name)  # a circle
done(driver.cuGraphExecDestroy(ready))
done(driver.cuGraphDestroy(graph))
run(called)

# Events: recorded and waited for by a graph, by hand and captured.
first, second = (done(driver.cuEventCreate(0)) for _ in range(2))
graph = done(driver.cuGraphCreate(0))
record = done(driver.cuGraphAddEventRecordNode(graph, None, 0, first))
add_kernel(graph, [record], increment, int(memory))
wait = done(driver.cuGraphAddEventWaitNode(graph, [record], 1, second))
print(
    [
        int(done(call(node))) == int(event)
        for call, node, event in (
            (driver.cuGraphEventRecordNodeGetEvent, record, first),
            (driver.cuGraphEventWaitNodeGetEvent, wait, second),
        )
    ]
)
executable = done(driver.cuGraphInstantiate(graph, 0))
run(executable)
done(driver.cuGraphEventRecordNodeSetEvent(record, second))
done(driver.cuGraphExecEventRecordNodeSetEvent(executable, record, second))
run(executable)
print(
    done(driver.cuEventElapsedTime(first, second)) > 0,
    driver.cuGraphAddEventWaitNode(graph, None, 0, None)[0].name,
)
done(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
done(driver.cuEventRecordWithFlags(first, stream, 1))
done(driver.cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, stream, ((memory,), (None,)), 0))
done(driver.cuStreamWaitEvent(stream, second, 1))
graph = done(driver.cuStreamEndCapture(stream))
nodes, count = done(driver.cuGraphGetNodes(graph, 4))
print([done(driver.cuGraphNodeGetType(node)).name for node in nodes[:count]])
run(done(driver.cuGraphInstantiate(graph, 0)), 2)
done(driver.cuEventSynchronize(first))

# Nodes of any kind by one call.
kinds = driver.CUgraphNodeType
graph = done(driver.cuGraphCreate(0))


def any_node(kind, **parts):
    given = driver.CUgraphNodeParams()
    given.type = getattr(kinds, "CU_GRAPH_NODE_TYPE_" + kind)
    for name, value in parts.items():
        setattr(given, name, value)
    return given


def add_any(before, given):
    return done(driver.cuGraphAddNode(graph, before, None, len(before), given))


def any_fill(value):
    given = any_node("MEMSET")
    given.memset.dst, given.memset.value, given.memset.elementSize = memory, value, 4
    given.memset.width, given.memset.height, given.memset.pitch, given.memset.ctx = 2, 1, 8, context
    return given


def any_event(kind, event):
    given = any_node(kind)
    (given.eventRecord if kind == "EVENT_RECORD" else given.eventWait).event = event
    return given


filled = add_any([], any_fill(100))
recorded = add_any([filled], any_event("EVENT_RECORD", first))
add_any([recorded], any_event("WAIT_EVENT", first))
add_any([recorded], any_node("EMPTY"))
called = any_node("HOST")
called.host.fn, called.host.userData = ctypes.cast(host, ctypes.c_void_p).value, 13
add_any([recorded], called)
executable = done(driver.cuGraphInstantiate(graph, 0))
run(executable)
done(driver.cuGraphExecNodeSetParams(executable, filled, any_fill(200)))
run(executable)
done(driver.cuGraphNodeSetParams(filled, any_fill(300)))
run(done(driver.cuGraphInstantiate(graph, 0)))
