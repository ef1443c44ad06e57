"""CuPy's RawKernel and RawModule: NVRTC, constants, templates, shared memory, cooperative launch, graphs."""

import cupy

SOURCE = r"""
__constant__ float weights[4];
extern "C" __global__ void weigh(const float* in, float* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = in[i] * weights[i & 3];
}
template <typename T> __global__ void reverse(T* values) {
    extern __shared__ char memory[];
    T* part = reinterpret_cast<T*>(memory);
    part[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
}
"""
add = cupy.RawKernel(
    r'extern "C" __global__ void add(const float* a, const float* b, float* c) {'
    " const int i = blockIdx.x * blockDim.x + threadIdx.x; c[i] = a[i] + b[i]; }",
    "add",
)
a = cupy.arange(1024, dtype=cupy.float32)
c = cupy.empty_like(a)
add((4,), (256,), (a, a, c))
print(float(c.sum()), add.attributes["max_threads_per_block"], add.num_regs > 0)
module = cupy.RawModule(
    code=SOURCE, options=("-std=c++17",), name_expressions=["reverse<int>", "reverse<double>"]
)
weights = cupy.ndarray((4,), cupy.float32, module.get_global("weights"))
weights[...] = cupy.array([1, 2, 3, 4], dtype=cupy.float32)
module.get_function("weigh")((4,), (256,), (a, c, cupy.int32(1024)))
print(float(c.sum()), c[:6].tolist())
for kind, name in ((cupy.int32, "reverse<int>"), (cupy.float64, "reverse<double>")):
    values = cupy.arange(64, dtype=kind)
    module.get_function(name)((1,), (64,), (values,), shared_mem=64 * values.itemsize)
    print(values[:3].tolist())
grid = cupy.RawKernel(
    r"""
#include <cooperative_groups.h>
extern "C" __global__ void around(int* values, int count) {
    const auto grid = cooperative_groups::this_grid();
    const int i = grid.thread_rank();
    for (int turn = 0; turn < 10; ++turn) {
        const int next = values[(i + 1) % count];
        grid.sync();
        values[i] = next + 1;
        grid.sync();
    }
}""",
    "around",
    enable_cooperative_groups=True,
)
values = cupy.arange(2048, dtype=cupy.int32)
grid((16,), (128,), (values, cupy.int32(2048)))
print(values[:3].tolist(), int(values.sum()))
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    stream.begin_capture()
    add((4,), (256,), (a, c, c))
    graph = stream.end_capture()
    for _ in range(3):
        graph.launch()
stream.synchronize()
print(float(c.sum()))
