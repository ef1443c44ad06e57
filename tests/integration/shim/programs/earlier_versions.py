"""The driver by its plain names: first versions of calls that have others today."""

import ctypes
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_void_p

from calls import KERNELS, done, read, start
from cuda.bindings import driver

cuda = ctypes.CDLL("libcuda.so.1")


class KernelNode(ctypes.Structure):
    _fields_ = (
        ("function", c_void_p),
        *((f"grid{axis}", c_uint) for axis in "xyz"),
        *((f"block{axis}", c_uint) for axis in "xyz"),
        ("shared", c_uint),
        ("parameters", POINTER(c_void_p)),
        ("extra", POINTER(c_void_p)),
    )


device, primary = start()
context, popped = c_void_p(), c_void_p()
# The very first versions of these are those of CUDA 3; on an H200 they leave no context current.
print(
    cuda.cuCtxCreate_v2(byref(context), 0, c_int(0)),
    cuda.cuCtxPopCurrent_v2(byref(popped)),
    popped.value == context.value,
)
print(
    cuda.cuCtxPushCurrent_v2(context),
    cuda.cuCtxDestroy_v2(context),
    int(done(driver.cuCtxGetCurrent())) == int(primary),
)

module = done(driver.cuModuleLoadData(KERNELS))
store = int(done(driver.cuModuleGetFunction(module, b"store")))
place = int(done(driver.cuMemAlloc(4)))


class Given(ctypes.Structure):
    _fields_ = (("place", ctypes.c_uint64), ("value", ctypes.c_uint32))


def packed(value):
    given = Given(place, value)
    size = c_size_t(12)
    words = (c_void_p * 5)(1, ctypes.addressof(given), 2, ctypes.addressof(size), 0)
    return given, size, words


def parameters(words):
    return KernelNode(store, 1, 1, 1, 1, 1, 1, 0, None, ctypes.cast(words, POINTER(c_void_p)))


graph, node, executable = c_void_p(), c_void_p(), c_void_p()
kept = packed(5)
print(cuda.cuGraphCreate(byref(graph), 0))
print(cuda.cuGraphAddKernelNode(byref(node), graph, None, c_size_t(0), byref(parameters(kept[2]))))
print(cuda.cuGraphAddKernelNode(byref(node), graph, None, c_size_t(0), None))
told = KernelNode()
print(
    cuda.cuGraphKernelNodeGetParams(node, byref(told)),
    told.function == store,
    told.gridx,
    told.blockz,
    bool(told.extra) or bool(told.parameters),
)
print(cuda.cuGraphInstantiateWithFlags(byref(executable), graph, ctypes.c_uint64(0)))
print(cuda.cuGraphLaunch(executable, None), read(place))
other = packed(6)
print(cuda.cuGraphExecKernelNodeSetParams(executable, node, byref(parameters(other[2]))))
print(cuda.cuGraphLaunch(executable, None), read(place))
print(cuda.cuGraphKernelNodeSetParams(node, byref(parameters(other[2]))))
for instantiate in (cuda.cuGraphInstantiate, cuda.cuGraphInstantiate_v2):
    for whole in (graph, None):
        culprit, log = c_void_p(5), ctypes.create_string_buffer(b"unset", 8)
        result = instantiate(byref(executable), whole, byref(culprit), log, c_size_t(8))
        print(result, culprit.value, log.value)

stream, event, copy = c_void_p(), c_void_p(), c_void_p()
print(cuda.cuStreamCreate(byref(stream), 1), cuda.cuEventCreate(byref(event), 0))
print(
    cuda.cuStreamBeginCapture(stream), cuda.cuMemsetD32Async(ctypes.c_uint64(place), 9, c_size_t(1), stream)
)
print(cuda.cuStreamEndCapture(stream, byref(copy)), bool(copy.value))
print(cuda.cuEventDestroy(event), cuda.cuStreamDestroy(stream), cuda.cuStreamDestroy(None))
text = KERNELS + b"\0"
state, image, size = c_void_p(), c_void_p(), c_size_t()
print(cuda.cuLinkCreate(0, None, None, byref(state)))
print(cuda.cuLinkAddData(state, 1, text, c_size_t(len(text)), b"kernels", 0, None, None))
print(cuda.cuLinkComplete(state, byref(image), byref(size)), size.value > 0, cuda.cuLinkDestroy(state))
