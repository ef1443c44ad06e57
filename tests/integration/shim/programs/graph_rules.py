"""How much of a graph has run whose launch fails, by its shape and by the node that cannot be issued.

A line for each: what the launch returned, what waiting for it did, and words of memory afterwards. `a` to `e`
add one to the words 0 to 4, `f` fills word 5, `x` and `y` are the nodes that it is about. Each graph is
launched into two streams, without and behind an upload: that changes nothing, else a line would have several
answers.
"""

import ctypes
import itertools

from calls import KERNELS, done, read, short, start
from cuda.bindings import driver

_, context = start()
increment = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNELS)), b"increment"))
own = done(driver.cuStreamCreate(1))
memory = int(done(driver.cuMemAlloc(4096)))
pooled = int(done(driver.cuMemAllocAsync(4096, 0)))  # of which streams take no word
done(driver.cuMemsetD8(pooled, 9, 4096))
done(driver.cuCtxSynchronize())
kept: list = []  # what parameters point to


def kernel(graph, before, word):
    value = ctypes.c_uint64(memory + word * 4)
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    kept.append((value, pointers))
    parameters = driver.CUDA_KERNEL_NODE_PARAMS()
    parameters.func = increment
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1
    parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1
    parameters.kernelParams = ctypes.addressof(pointers)
    return done(driver.cuGraphAddKernelNode(graph, before, len(before), parameters))


def fill(graph, before):
    parameters = driver.CUDA_MEMSET_NODE_PARAMS()
    parameters.dst, parameters.value = memory + 20, 9
    parameters.elementSize, parameters.width, parameters.height = 1, 4, 1
    return done(driver.cuGraphAddMemsetNode(graph, before, len(before), parameters, context))


def operation(place, kind="WRITE"):
    entry = driver.CUstreamBatchMemOpParams()
    value = entry.writeValue if kind == "WRITE" else entry.waitValue
    value.operation = getattr(driver.CUstreamBatchMemOpType, f"CU_STREAM_MEM_OP_{kind}_VALUE_32")
    value.address, value.value, value.flags = place, 5, 0
    return entry


def batch(graph, before, *operations):
    parameters = driver.CUDA_BATCH_MEM_OP_NODE_PARAMS()
    parameters.ctx, parameters.flags = context, 0
    parameters.count, parameters.paramArray = len(operations), list(operations)
    kept.append(parameters)
    return done(driver.cuGraphAddBatchMemOpNode(graph, before, len(before), parameters))


def captured(graph, before):
    stream = done(driver.cuStreamCreate(1))
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    done(driver.cuStreamBeginCaptureToGraph(stream, graph, before, None, len(before), relaxed))
    done(driver.cuStreamWriteValue32(stream, pooled, 5, 0))
    added = done(driver.cuStreamGetCaptureInfo(stream))[3][0]
    done(driver.cuStreamEndCapture(stream))
    done(driver.cuStreamDestroy(stream))
    return added


KINDS = {
    "write pool": captured,
    "write two, 2nd pool": lambda *to: batch(*to, operation(memory + 400), operation(pooled)),
    "batch pool": lambda *to: batch(*to, operation(pooled)),
    "wait pool": lambda *to: batch(*to, operation(pooled, "WAIT")),
    "write fine": lambda *to: batch(*to, operation(memory + 404)),
}
# Nodes in the order in which they are added, each with those that it depends on.
SHAPES = {
    "a>x>b": ("a", "xa", "bx"),
    "x>a": ("x", "ax"),
    "a|x|b": ("a", "x", "b"),
    "x|a|b": ("x", "a", "b"),
    "a>(x|b)": ("a", "xa", "ba"),
    "a>(b|x)": ("a", "ba", "xa"),
    "(a>b>c)|x": ("a", "ba", "cb", "x"),
    "x|(a>b>c)": ("x", "a", "ba", "cb"),
    "(a>x)|(b>c)": ("a", "xa", "b", "cb"),
    "(b>c)|(a>x)": ("b", "cb", "a", "xa"),
    "(a,b)>x>c": ("a", "b", "xab", "cx"),
    "f>a>x>b": ("f", "af", "xa", "bx"),
    "a>x>b>y>c": ("a", "xa", "bx", "yb", "cy"),
    "a>b>c>d>e>x": ("a", "ba", "cb", "dc", "ed", "xe"),
}


def built(shape, kind):
    graph, nodes = done(driver.cuGraphCreate(0)), {}
    for name, *before in shape:
        to = graph, [nodes[each] for each in before]
        if name in "abcde":
            nodes[name] = kernel(*to, "abcde".index(name))
        else:
            nodes[name] = fill(*to) if name == "f" else kind(*to)
    return graph


def launched(executable, stream, upload):
    done(driver.cuMemsetD8(memory, 0, 4096))
    if upload:
        done(driver.cuGraphUpload(executable, own))
    done(driver.cuCtxSynchronize())
    results = short(driver.cuGraphLaunch(executable, stream)), short(driver.cuCtxSynchronize())
    words = memoryview(read(memory, 408)).cast("I")
    return f"{' '.join(results)} {[words[i] for i in (0, 1, 2, 3, 4, 5, 100, 101)]}"


for (kind, add), (name, shape) in itertools.product(KINDS.items(), SHAPES.items()):
    graph = built(shape, add)
    executable = done(driver.cuGraphInstantiate(graph, 0))
    ways = itertools.product((False, True), (0, own))
    answers = dict.fromkeys(launched(executable, stream, upload) for upload, stream in ways)
    print(f"{kind}, {name}:", *answers)
    done(driver.cuGraphExecDestroy(executable))
    done(driver.cuGraphDestroy(graph))
