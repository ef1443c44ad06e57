"""Graphs whose kernels decide what else of them runs, and how often."""

import ctypes
import os

import nvidia.cu13
from calls import done, launch, names, read, start
from cuda.bindings import driver

KERNELS = b"""
.version 8.4
.target sm_90
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 a, .param .b32 b);
.visible .entry say(.param .u64 handle, .param .u64 place, .param .u32 step)
{
    .reg .b64 %handle, %place;
    .reg .b32 %value, %step;
    ld.param.u64 %handle, [handle];
    ld.param.u64 %place, [place];
    ld.param.u32 %step, [step];
    ld.global.u32 %value, [%place];
    add.u32 %value, %value, %step;
    st.global.u32 [%place], %value;
    {
        .param .b64 first;
        .param .b32 second;
        st.param.b64 [first], %handle;
        st.param.b32 [second], %value;
        call.uni cudaGraphSetConditional, (first, second);
    }
    ret;
}
.visible .entry add(.param .u64 place, .param .u32 step)
{
    .reg .b64 %place;
    .reg .b32 %step;
    ld.param.u64 %place, [place];
    ld.param.u32 %step, [step];
    red.global.add.u32 [%place], %step;
    ret;
}
"""
KINDS = driver.CUgraphConditionalNodeType
IF, WHILE, SWITCH = (getattr(KINDS, f"CU_GRAPH_COND_TYPE_{kind}") for kind in ("IF", "WHILE", "SWITCH"))
ASSIGN, LESS = 1, 2**32 - 1

device, context = start()
inputs = driver.CUjitInputType
folders = [os.path.join(folder, "lib") for folder in nvidia.cu13.__path__]
runtime = next(filter(os.path.exists, (os.path.join(folder, "libcudadevrt.a") for folder in folders)))
state = done(driver.cuLinkCreate(0, [], []))
done(driver.cuLinkAddData(state, inputs.CU_JIT_INPUT_PTX, KERNELS, len(KERNELS), b"kernels", 0, [], []))
done(driver.cuLinkAddFile(state, inputs.CU_JIT_INPUT_LIBRARY, os.fsencode(runtime), 0, [], []))
linked, size = done(driver.cuLinkComplete(state))
module = done(driver.cuModuleLoadData(ctypes.string_at(linked, size)))
done(driver.cuLinkDestroy(state))
say, add = (done(driver.cuModuleGetFunction(module, name)) for name in (b"say", b"add"))
place = int(done(driver.cuMemAlloc(16)))
stream = done(driver.cuStreamCreate(1))


def kernel(graph, after, function, *values):
    stored = [ctypes.c_uint64(value) for value in values[:-1]] + [ctypes.c_uint32(values[-1])]
    pointers = (ctypes.c_void_p * len(stored))(*(ctypes.addressof(value) for value in stored))
    params = driver.CUDA_KERNEL_NODE_PARAMS()
    params.func = function
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    params.kernelParams = ctypes.addressof(pointers)
    return done(driver.cuGraphAddKernelNode(graph, after, len(after), params))


def condition(graph, initial=0, flags=0):
    return int(done(driver.cuGraphConditionalHandleCreate(graph, context, initial, flags)))


def params_of(handle, kind, size):
    params = driver.CUgraphNodeParams()
    params.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    params.conditional.handle = handle
    params.conditional.type = kind
    params.conditional.size = size
    params.conditional.ctx = context
    return params


def decide(graph, after, handle, kind, size=1):
    params = params_of(handle, kind, size)
    node = done(driver.cuGraphAddNode(graph, after, None, len(after), params))
    return node, *params.conditional.phGraph_out


def run(executable, *values):
    words = (ctypes.c_uint32 * 4)(*values)
    given = bytes(words)  # a copy from such memory may still be under way when its call is over
    done(driver.cuMemcpyHtoDAsync(place, given, 16, stream))
    done(driver.cuGraphLaunch(executable, stream))
    done(driver.cuStreamSynchronize(stream))
    return list((ctypes.c_uint32 * 4).from_buffer_copy(read(place, 16)))


def made(graph):
    return done(driver.cuGraphInstantiate(graph, 0))


# What is done if it holds, and else.
graph = done(driver.cuGraphCreate(0))
handle = condition(graph)
first = kernel(graph, [], say, handle, place, 1)
node, body, other = decide(graph, [first], handle, IF, 2)
kernel(body, [], add, place + 4, 10)
kernel(other, [], add, place + 4, 20)
kernel(graph, [node], add, place + 8, 100)
executable = made(graph)
print(run(executable, 5), run(executable, LESS), run(executable, 0))
print(len(done(driver.cuGraphGetNodes(graph, 8))[0]), done(driver.cuGraphNodeGetType(node)).name)
names(driver.cuGraphInstantiate(graph, 0))  # one at a time
done(driver.cuGraphExecDestroy(executable))
executable = made(graph)
print(run(executable, LESS), run(executable, 7))

# A graph that is changed, after it has run.
kernel(body, [], add, place + 12, 1000)
print(run(executable, 5))
done(driver.cuGraphExecDestroy(executable))
executable = made(graph)
print(run(executable, 5), run(executable, LESS))
names(driver.cuGraphDestroy(body))
done(driver.cuGraphExecDestroy(executable))
done(driver.cuGraphDestroy(graph))

# As long as it holds; what it is at first is said when it is made.
graph = done(driver.cuGraphCreate(0))
handle = condition(graph, 1, ASSIGN)
node, body = decide(graph, [], handle, WHILE)
counted = kernel(body, [], add, place + 4, 3)
kernel(body, [counted], say, handle, place, LESS)
executable = made(graph)
done(driver.cuGraphDestroy(graph))
print(run(executable, 5), run(executable, 1))
done(driver.cuGraphExecDestroy(executable))

# Bodies that decide, copy and fill; one of many.
graph = done(driver.cuGraphCreate(0))
outer, inner = condition(graph), condition(graph)
first = kernel(graph, [], say, outer, place, 0)
node, *bodies = decide(graph, [first], outer, SWITCH, 3)
kernel(bodies[0], [], add, place + 4, 1)
asked = kernel(bodies[1], [], say, inner, place + 12, 0)
choice, deep = decide(bodies[1], [asked], inner, IF)
kernel(deep, [], add, place + 8, 50)
kernel(bodies[1], [choice], add, place + 4, 2)
fill = driver.CUDA_MEMSET_NODE_PARAMS()
fill.dst, fill.value, fill.elementSize, fill.width, fill.height = place + 4, 9, 4, 1, 1
filled = done(driver.cuGraphAddMemsetNode(bodies[2], [], 0, fill, context))
copy = driver.CUDA_MEMCPY3D()
copy.srcMemoryType = copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
copy.srcDevice, copy.dstDevice, copy.WidthInBytes, copy.Height, copy.Depth = place + 4, place + 8, 4, 1, 1
done(driver.cuGraphAddMemcpyNode(bodies[2], [filled], 1, copy, context))
executable = made(graph)
print(
    run(executable, 0),
    run(executable, 1, 0, 0, 1),
    run(executable, 1),
    run(executable, 2),
    run(executable, 3),
)
done(driver.cuGraphExecDestroy(executable))
done(driver.cuGraphDestroy(graph))

# Captured: the body from a stream, the node into the graph that is being captured.
relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
aside = done(driver.cuStreamCreate(1))
done(driver.cuStreamBeginCapture(stream, relaxed))
captured = done(driver.cuStreamGetCaptureInfo(stream))[2]
handle = condition(captured)
done(launch(say, stream, handle, place, ctypes.c_uint32(1)))
before = done(driver.cuStreamGetCaptureInfo(stream))
node, body = decide(captured, list(before[3][: before[-1]]), handle, IF)
done(driver.cuStreamUpdateCaptureDependencies(stream, [node], None, 1, 1))
done(driver.cuStreamBeginCaptureToGraph(aside, body, None, None, 0, relaxed))
done(launch(add, aside, place + 4, ctypes.c_uint32(70)))
done(driver.cuStreamEndCapture(aside))
done(launch(add, stream, place + 8, ctypes.c_uint32(1)))
graph = done(driver.cuStreamEndCapture(stream))
executable = made(graph)
print(run(executable, 3), run(executable, LESS))
for _ in range(30):
    done(driver.cuGraphLaunch(executable, stream))
done(driver.cuStreamSynchronize(stream))
print(read(place, 16).hex(), run(executable, 1))
done(driver.cuGraphExecDestroy(executable))
done(driver.cuGraphDestroy(graph))

# What is no decision.
graph, stranger = done(driver.cuGraphCreate(0)), done(driver.cuGraphCreate(0))
handle = condition(graph)
for params in (params_of(handle, WHILE, 2), params_of(handle, IF, 3), params_of(handle, SWITCH, 0)):
    names(driver.cuGraphAddNode(graph, None, None, 0, params))
names(driver.cuGraphAddNode(stranger, None, None, 0, params_of(handle, IF, 1)))
names(driver.cuGraphConditionalHandleCreate(graph, context, 0, 8))
done(driver.cuGraphDestroy(graph))
done(driver.cuGraphDestroy(stranger))
done(driver.cuModuleUnload(module))
