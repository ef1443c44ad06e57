"""cuda.core's graphs: built node by node or captured, with memory, callbacks, conditions, graphs within."""

import ctypes
import re
import tempfile
from pathlib import Path

import cuda.core as core
from cuda.core.graph import GraphBuilder, GraphDefinition

SOURCE = r"""
extern "C" __device__ __cudart_builtin__ void cudaGraphSetConditional(cudaGraphConditionalHandle, unsigned);
extern "C" __global__ void add(int* values, int by) { values[threadIdx.x] += by; }
extern "C" __global__ void again(int* values, cudaGraphConditionalHandle condition, int most) {
    cudaGraphSetConditional(condition, ++values[0] < most);
}
extern "C" __global__ void choose(cudaGraphConditionalHandle condition, unsigned which) {
    cudaGraphSetConditional(condition, which);
}
"""
BYTES = 64
device = core.Device(0)
device.set_current()
stream = device.create_stream()
options = core.ProgramOptions(std="c++17", arch="compute_90")
text = core.Program(SOURCE, "c++", options=options).compile("ptx").code
# An NVRTC newer than the driver marks its text with a version that the driver refuses; 9.0 is CUDA 13.0's.
if float((version := re.search(rb"\.version (\d+\.\d+)", text))[1]) > 9.0:
    text = text.replace(version[0], b".version 9.0", 1)
module = core.ObjectCode.from_ptx(text)
add, again, choose = (module.get_kernel(name) for name in ("add", "again", "choose"))
one, all_of_it = core.LaunchConfig(grid=1, block=1), core.LaunchConfig(grid=1, block=BYTES // 4)
shared = core.LegacyPinnedMemoryResource().allocate(BYTES)
values = (ctypes.c_int * (BYTES // 4)).from_address(int(shared.handle))
memory = device.allocate(BYTES, stream=stream)
stream.sync()
seen = []


def run(graph, times=1):
    for _ in range(times):
        graph.launch(stream)
    stream.sync()
    print(values[:3], seen)


def on(condition):
    return ctypes.c_ulonglong(int(condition.handle))


definition = GraphDefinition()
kernel = definition.memset(int(memory.handle), 1, BYTES).launch(all_of_it, add, memory, ctypes.c_int(4))
copy = kernel.memcpy(int(shared.handle), int(memory.handle), BYTES)
event = device.create_event()
copy.callback(lambda: seen.append(values[0])).record(event).wait(event)
print(len(definition.nodes()), len(definition.edges()), kernel.grid, kernel.block, copy.size)
with tempfile.TemporaryDirectory() as folder:
    picture = Path(folder, "graph.dot")
    definition.debug_dot_print(str(picture))
    print(picture.read_text().count("->"))
graph = definition.instantiate()
graph.upload(stream)
run(graph, 2)
if hasattr(kernel, "update"):
    kernel.update(config=all_of_it, kernel=add, args=(memory, ctypes.c_int(5)))
    graph.update(definition)
    run(graph)

definition = GraphDefinition()
own = definition.allocate(256)
filled = own.memset(own.dptr, 7, 256)
filled.memcpy(int(shared.handle), own.dptr, BYTES).deallocate(own.dptr)
run(definition.instantiate(), 2)

inner = GraphDefinition()
inner.launch(all_of_it, add, shared, ctypes.c_int(1)).launch(all_of_it, add, shared, ctypes.c_int(2))
definition = GraphDefinition()
definition.memset(int(shared.handle), 0, BYTES).embed(inner).embed(inner)
run(definition.instantiate())

definition = GraphDefinition()
condition = definition.create_condition(default_value=1)
loop = definition.memset(int(shared.handle), 0, BYTES).while_loop(condition)
loop.body.launch(one, again, shared, on(condition), ctypes.c_int(5))
run(definition.instantiate(), 2)

for which in range(3):
    definition = GraphDefinition()
    condition, other = (definition.create_condition(default_value=0) for _ in range(2))
    start = definition.launch(one, choose, on(condition), ctypes.c_uint(which))
    cases = start.switch(condition, 2)
    for place, branch in enumerate(cases.branches):
        branch.launch(all_of_it, add, shared, ctypes.c_int(10 * (place + 1)))
    decision = cases.launch(one, choose, on(other), ctypes.c_uint(which % 2)).if_else(other)
    decision.then.launch(all_of_it, add, shared, ctypes.c_int(100))
    decision.else_.launch(all_of_it, add, shared, ctypes.c_int(1000))
    run(definition.instantiate())

# By capture, on two streams.
builder = device.create_graph_builder().begin_building("relaxed")
scratch = core.GraphMemoryResource(device).allocate(BYTES, stream=builder)
scratch.copy_from(shared, stream=builder)
left, right = builder.split(2)
core.launch(left, all_of_it, add, scratch, ctypes.c_int(2))
right.callback(lambda: seen.append("right"))
builder = GraphBuilder.join(left, right)
shared.copy_from(scratch, stream=builder)
scratch.close()
captured = builder.end_building()
run(captured.complete(), 2)
memory.close(stream)
stream.sync()
print("done")
