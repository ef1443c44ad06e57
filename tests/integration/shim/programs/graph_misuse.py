"""Graphs cloned, updated and built wrongly."""

import ctypes

from calls import KERNELS, done, names, read, start
from cuda.bindings import driver

_, context = start()
module = done(driver.cuModuleLoadData(KERNELS))
store = done(driver.cuModuleGetFunction(module, b"store"))
memory = int(done(driver.cuMemAlloc(64)))
done(driver.cuMemsetD32(memory, 0, 16))


def storing(place, value, block=1):
    """Parameters of a kernel's node, and what they point to."""
    values = [ctypes.c_uint64(place), ctypes.c_uint32(value)]
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in values))
    parameters = driver.CUDA_KERNEL_NODE_PARAMS()
    parameters.func = store
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1
    parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = block, 1, 1
    parameters.kernelParams = ctypes.addressof(pointers)
    return parameters, values, pointers


graph = done(driver.cuGraphCreate(0))
one = storing(memory, 1)
kernel = done(driver.cuGraphAddKernelNode(graph, None, 0, one[0]))
empty = done(driver.cuGraphAddEmptyNode(graph, [kernel], 1))
clone = done(driver.cuGraphClone(graph))
cloned = done(driver.cuGraphNodeFindInClone(kernel, clone))
ready = done(driver.cuGraphInstantiate(graph, 0))
five = storing(memory + 4, 5)
for node in (kernel, cloned, empty):  # only one of its own graph can be set
    names(driver.cuGraphExecKernelNodeSetParams(ready, node, five[0]))
names(driver.cuGraphLaunch(ready, 0), driver.cuCtxSynchronize())
print(read(memory, 8))


def update(graph):
    answer = driver.cuGraphExecUpdate(ready, graph)
    print(answer[0].name, answer[1].result if answer[1] else None)


update(clone)
done(driver.cuGraphDestroyNode(done(driver.cuGraphNodeFindInClone(empty, clone))))
update(clone)
other = done(driver.cuGraphCreate(0))
first = done(driver.cuGraphAddEmptyNode(other, None, 0))
second = done(driver.cuGraphAddEmptyNode(other, [first], 1))
update(other)
names(driver.cuGraphAddDependencies(other, [second], [first], None, 1), driver.cuGraphInstantiate(other, 0))
names(driver.cuGraphAddDependencies(other, [first], [first], None, 1))
names(driver.cuGraphAddDependencies(other, [kernel], [first], None, 1))
names(driver.cuGraphAddEmptyNode(other, [kernel], 1), driver.cuGraphAddEmptyNode(other, [first, first], 2))
names(driver.cuGraphAddKernelNode(other, None, 0, driver.CUDA_KERNEL_NODE_PARAMS()))
wide = storing(memory, 1, 2000)
names(driver.cuGraphAddKernelNode(other, None, 0, wide[0]))
fill = driver.CUDA_MEMSET_NODE_PARAMS()
fill.dst, fill.elementSize, fill.width, fill.height = memory + 1, 4, 1, 1
names(driver.cuGraphAddMemsetNode(other, None, 0, fill, context))
names(driver.cuGraphInstantiate(clone, 1 << 30))
names(driver.cuGraphExecDestroy(ready), driver.cuGraphDestroy(graph), driver.cuModuleUnload(module))

# What an H200 says: cuGraphInstantiate has no stream to upload to, and what was uploaded is not told of.
UPLOAD = 2
plain = done(driver.cuGraphCreate(0))
for flags, told in {0: 0, 1: 1, UPLOAD: 0, 1 | UPLOAD: 1, 8: 0, 8 | UPLOAD: 0}.items():
    result, executable = driver.cuGraphInstantiate(plain, flags)
    assert (int(result) != 0) == bool(flags & UPLOAD), flags
    wish = driver.CUDA_GRAPH_INSTANTIATE_PARAMS()
    wish.flags, wish.hUploadStream = flags, done(driver.cuStreamCreate(1))
    executable = done(driver.cuGraphInstantiateWithParams(plain, wish))
    assert int(done(driver.cuGraphExecGetFlags(executable))) == told, flags
