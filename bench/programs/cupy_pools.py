"""CuPy's allocators (pools, stream-ordered, managed), JIT kernels, sparse matrices, captured streams."""

import cupy
import cupyx
import cupyx.scipy.sparse
import numpy
from cupyx import jit

pool = cupy.cuda.MemoryPool()
cupy.cuda.set_allocator(pool.malloc)
a = cupy.arange(1 << 20, dtype=cupy.float32)
print(float(a.sum()), pool.used_bytes(), pool.total_bytes() >= pool.used_bytes())
del a
pool.free_all_blocks()
print(pool.total_bytes())
cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    b = cupy.full(1 << 18, 2.0)
    c = (b * b).sum()
stream.synchronize()
print(float(c))
cupy.cuda.set_allocator(cupy.cuda.malloc_managed)
d = cupy.ones(1000, dtype=cupy.int32)
print(int(d.sum()))
cupy.cuda.set_allocator(None)


@jit.rawkernel()
def total(x, y, size):
    i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    shared = jit.shared_memory(cupy.float32, 256)
    shared[jit.threadIdx.x] = x[i] if i < size else 0
    jit.syncthreads()
    if jit.threadIdx.x == 0:
        whole = cupy.float32(0)
        for k in range(256):
            whole += shared[k]
        jit.atomic_add(y, 0, whole)


x = cupy.arange(1000, dtype=cupy.float32)
y = cupy.zeros(1, dtype=cupy.float32)
total[4, 256](x, y, 1000)
print(float(y[0]))
matrix = cupyx.scipy.sparse.random(200, 200, density=0.05, random_state=3, format="csr")
print(round(float((matrix @ cupy.ones(200)).sum()), 4), matrix.nnz)
pinned = cupyx.empty_pinned(1000, dtype=numpy.float32)
pinned[...] = numpy.arange(1000)
x.set(pinned, stream=stream)
begin, end = cupy.cuda.Event(), cupy.cuda.Event()
begin.record(stream)
with stream:
    x *= 3
end.record(stream)
end.synchronize()
print(float(x[-1]), cupy.cuda.get_elapsed_time(begin, end) >= 0)
with stream:
    stream.begin_capture()
    x += 1
    x *= 2
    graph = stream.end_capture()
    for _ in range(3):
        graph.launch()
stream.synchronize()
print(float(x[1]))
with cupy.cuda.Device(0):
    print(cupy.cuda.runtime.getDeviceCount() >= 1, cupy.cuda.Device(0).compute_capability)
print(cupyx.profiler.benchmark(lambda: x.sum(), n_repeat=2).gpu_times.shape)
