"""What graphs keep alive; capture into a graph that is there; a child's nodes changed when made."""

import ctypes
import threading

from calls import KERNELS, done, read, start
from cuda.bindings import driver

start()
context = done(driver.cuCtxGetCurrent())
module = done(driver.cuModuleLoadData(KERNELS))
increment, store = (done(driver.cuModuleGetFunction(module, name)) for name in (b"increment", b"store"))
memory = done(driver.cuMemAlloc(64))
done(driver.cuMemsetD8(memory, 0, 64))
stream = done(driver.cuStreamCreate(1))
library = ctypes.CDLL("libcuda.so.1")
ended, over = [], threading.Semaphore(0)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def destroy(value):
    ended.append(value)
    over.release()


def kept(value, references):
    handle = ctypes.c_void_p()
    assert (
        library.cuUserObjectCreate(ctypes.byref(handle), ctypes.c_void_p(value), destroy, references, 1) == 0
    )
    return driver.CUuserObject(handle.value)


def kernel(function, *arguments):
    node = driver.CUDA_KERNEL_NODE_PARAMS()
    node.func = function
    node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1
    node.kernelParams = (arguments, (ctypes.c_uint64, ctypes.c_uint32)[: len(arguments)])
    return node


def run(executable, times=1):
    for _ in range(times):
        done(driver.cuGraphLaunch(executable, stream))
    done(driver.cuStreamSynchronize(stream))
    print(memoryview(read(memory, 32)).cast("I").tolist())


print(driver.cuUserObjectCreate(1, driver.CUhostFn(0), 1, 1)[0].name)
one, two = kept(1, 1), kept(2, 2)
done(driver.cuUserObjectRetain(one, 2))
done(driver.cuUserObjectRelease(one, 2))
graph = done(driver.cuGraphCreate(0))
first = done(driver.cuGraphAddKernelNode(graph, [], 0, kernel(increment, int(memory))))
done(driver.cuGraphRetainUserObject(graph, one, 1, 0))
done(driver.cuGraphRetainUserObject(graph, two, 2, 1))
print(driver.cuGraphReleaseUserObject(graph, two, 3)[0].name)
done(driver.cuGraphReleaseUserObject(graph, two, 1))
clone = done(driver.cuGraphClone(graph))
ready = done(driver.cuGraphInstantiate(clone, 0))
done(driver.cuGraphDestroy(graph))
done(driver.cuGraphDestroy(clone))
run(ready)
print(ended)
done(driver.cuGraphExecDestroy(ready))
over.acquire()
print(ended)  # the program has a reference to one
done(driver.cuUserObjectRelease(one, 1))
over.acquire()
print(ended)

graph = done(driver.cuGraphCreate(0))
first = done(driver.cuGraphAddKernelNode(graph, [], 0, kernel(store, int(memory) + 4, 40)))
apart = done(driver.cuGraphAddKernelNode(graph, [], 0, kernel(store, int(memory) + 8, 80)))
mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
done(driver.cuStreamBeginCaptureToGraph(stream, graph, [first], None, 1, mode))
for _ in range(2):
    arguments = ((int(memory) + 4,), (ctypes.c_uint64,))
    done(driver.cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))
print(int(done(driver.cuStreamEndCapture(stream))) == int(graph))
print([done(call(graph))[-1] for call in (driver.cuGraphGetNodes, driver.cuGraphGetRootNodes)])
run(done(driver.cuGraphInstantiate(graph, 0)))

parent = done(driver.cuGraphCreate(0))
child = done(driver.cuGraphAddChildGraphNode(parent, [], 0, graph))
inner = done(driver.cuGraphChildGraphNodeGetGraph(child))
nodes = done(driver.cuGraphGetNodes(inner, 4))[0]
ready = done(driver.cuGraphInstantiate(parent, 0))
run(ready)
done(driver.cuGraphExecKernelNodeSetParams(ready, nodes[1], kernel(store, int(memory) + 8, 90)))
run(ready)
done(driver.cuGraphKernelNodeSetParams(apart, kernel(store, int(memory) + 8, 100)))
done(driver.cuGraphExecChildGraphNodeSetParams(ready, child, graph))
run(ready)
done(driver.cuGraphExecKernelNodeSetParams(ready, nodes[0], kernel(store, int(memory) + 4, 7)))
run(ready)
print(driver.cuGraphExecChildGraphNodeSetParams(ready, child, parent)[0].name)


def any_kind(kind, **fields):
    given = driver.CUgraphNodeParams()
    given.type = getattr(driver.CUgraphNodeType, f"CU_GRAPH_NODE_TYPE_{kind}")
    for name, value in fields.items():
        setattr(given, name, value)
    return given


def add(into, before, given):
    return done(driver.cuGraphAddNode(into, before, None, len(before), given))


fill = driver.CUDA_MEMSET_NODE_PARAMS_v2()
fill.dst, fill.value, fill.elementSize, fill.width, fill.height, fill.ctx = memory, 3, 4, 8, 1, context
launch = driver.CUDA_KERNEL_NODE_PARAMS_v3()
launch.func = increment
launch.gridDimX = launch.gridDimY = launch.gridDimZ = 1
launch.blockDimX = launch.blockDimY = launch.blockDimZ = 1
launch.kernelParams = ((int(memory) + 8,), (ctypes.c_uint64,))
nested = done(driver.cuGraphCreate(0))
bump = add(nested, [], any_kind("KERNEL", kernel=launch))
outer = done(driver.cuGraphCreate(0))
filled = add(outer, [], any_kind("MEMSET", memset=fill))
moved = driver.CUDA_CHILD_GRAPH_NODE_PARAMS()
moved.graph = nested
moved.ownership = driver.CUgraphChildGraphNodeOwnership.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
child = add(outer, [filled], any_kind("GRAPH", graph=moved))
add(outer, [child], any_kind("EMPTY"))
print(driver.cuGraphDestroy(nested)[0].name)  # it is the node's
ready = done(driver.cuGraphInstantiate(outer, 0))
run(ready)
launch.kernelParams = ((int(memory) + 12,), (ctypes.c_uint64,))
done(driver.cuGraphExecNodeSetParams(ready, bump, any_kind("KERNEL", kernel=launch)))
fill.value = 9
done(driver.cuGraphExecNodeSetParams(ready, filled, any_kind("MEMSET", memset=fill)))
run(ready)
done(driver.cuGraphNodeSetParams(filled, any_kind("MEMSET", memset=fill)))
run(done(driver.cuGraphInstantiate(outer, 0)))
print(driver.cuGraphNodeSetParams(filled, any_kind("KERNEL", kernel=launch))[0].name)
done(driver.cuGraphDestroy(outer))
run(ready)
