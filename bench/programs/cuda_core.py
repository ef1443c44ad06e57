"""cuda.core: programs, launches, buffers and memory resources, streams, events, a graph built by capture."""

import ctypes
import re

import cuda.core as core

if not hasattr(core, "Device"):  # before 0.5
    import cuda.core.experimental as core

SOURCE = r"""
template <typename T> __global__ void scale(T* values, T by, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= by;
}
extern "C" __global__ void sum(const float* values, float* out, unsigned count) {
    __shared__ float part[128];
    float own = 0;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) own += values[i];
    part[threadIdx.x] = own;
    for (unsigned step = 64; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    }
    if (threadIdx.x == 0) *out = part[0];
}
"""
COUNT = 1000
device = core.Device(0)
device.set_current()
print(device.name, device.compute_capability, device.properties.multiprocessor_count > 0)
options = core.ProgramOptions(std="c++17", arch="compute_80")
names = ("scale<float>", "scale<double>", "sum")
compiled = core.Program(SOURCE, "c++", options=options).compile("ptx", name_expressions=names)
# An NVRTC newer than the driver marks its text with a version that the driver refuses; 9.0 is CUDA 13.0's.
version = re.search(rb"\.version (\d+\.\d+)", compiled.code)
text = compiled.code
if float(version[1]) > 9.0:
    text = text.replace(version[0], b".version 9.0", 1)
module = core.ObjectCode.from_ptx(text, symbol_mapping=compiled.symbol_mapping)
scale, scale_double, total = (module.get_kernel(name) for name in names)
print(scale.num_arguments, total.num_arguments)
stream = device.create_stream(options=core.StreamOptions(nonblocking=True))
other = device.create_stream(options=core.StreamOptions(priority=-1))
memory = device.allocate(4 * COUNT, stream=stream)
result = device.allocate(4, stream=stream)
values = (ctypes.c_float * COUNT)(*[i % 10 for i in range(COUNT)])
pinned = core.LegacyPinnedMemoryResource()
source = pinned.allocate(4 * COUNT)
ctypes.memmove(int(source.handle), values, 4 * COUNT)
memory.copy_from(source, stream=stream)
grid = core.LaunchConfig(grid=-(-COUNT // 128), block=128)
one = core.LaunchConfig(grid=1, block=128)
before = stream.record(options=core.EventOptions(timing_enabled=True))
for _ in range(3):
    core.launch(stream, grid, scale, memory, ctypes.c_float(2.0), ctypes.c_uint(COUNT))
after = stream.record(options=core.EventOptions(timing_enabled=True))
other.wait(after)
core.launch(other, one, total, memory, result, ctypes.c_uint(COUNT))
other.sync()


def read(buffer, count):
    there = pinned.allocate(buffer.size)
    buffer.copy_to(there, stream=stream)
    stream.sync()
    return (ctypes.c_float * count).from_address(int(there.handle))[:]


print(read(result, 1), read(memory, 4), (after - before) >= 0, before.is_done)
memory.fill(b"\0\0\x80\x3f", stream=stream)  # 1.0
print(read(memory, 2))
doubles = device.allocate(8 * 64, stream=stream)
doubles.fill(0, stream=stream)
core.launch(
    stream,
    core.LaunchConfig(grid=1, block=64),
    scale_double,
    doubles,
    ctypes.c_double(1.5),
    ctypes.c_uint(64),
)
stream.sync()
builder = device.create_graph_builder()
builder.begin_building()
for _ in range(2):
    core.launch(builder, grid, scale, memory, ctypes.c_float(3.0), ctypes.c_uint(COUNT))
core.launch(builder, one, total, memory, result, ctypes.c_uint(COUNT))
graph = builder.end_building().complete()
for _ in range(2):
    graph.upload(stream)
    graph.launch(stream)
    stream.sync()
    print(read(result, 1))

# Memory that the host has at the same address, from pools. Kernels do not reach PinnedMemoryResource.
ways = ({}, {"preferred_location": 0}) if hasattr(core, "ManagedMemoryResource") else ()
for how in ways:
    options = core.ManagedMemoryResourceOptions(**how) if how else None
    resource = core.ManagedMemoryResource(options)
    shared = resource.allocate(4 * COUNT, stream=stream)
    stream.sync()
    ctypes.memmove(int(shared.handle), values, 4 * COUNT)
    core.launch(stream, grid, scale, shared, ctypes.c_float(5.0), ctypes.c_uint(COUNT))
    memory.copy_from(shared, stream=stream)
    stream.sync()
    print(
        (ctypes.c_float * 4).from_address(int(shared.handle))[:], read(memory, 3), shared.is_host_accessible
    )
    shared.close(stream)
    resource.close()
for buffer in (memory, result, doubles):
    buffer.close(stream)
stream.sync()
print("done")
