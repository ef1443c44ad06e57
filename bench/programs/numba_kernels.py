"""numba-cuda: kernels with shared memory, atomics, a reduction, a ufunc, streams, grid-wide barriers."""

import numpy

if not hasattr(numpy, "row_stack"):  # numba-cuda asks for it at its import, NumPy 2.5 has it no more
    numpy.row_stack = numpy.vstack
from numba import cuda, float32, vectorize


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@cuda.jit
def histogram(values, counts):
    part = cuda.shared.array(16, float32)
    if cuda.threadIdx.x < 16:
        part[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(part, values[i] % 16, 1)
    cuda.syncthreads()
    if cuda.threadIdx.x < 16:
        cuda.atomic.add(counts, cuda.threadIdx.x, part[cuda.threadIdx.x])


@cuda.jit
def around(values):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    for _ in range(5):
        following = values[(i + 1) % values.size]
        grid.sync()
        values[i] = following + 1
        grid.sync()


@cuda.reduce
def total(a, b):
    return a + b


@vectorize(["float32(float32, float32)"], target="cuda")
def mixed(a, b):
    return a * b + 1


x = numpy.arange(10_000, dtype=numpy.float32)
stream = cuda.stream()
with cuda.pinned(x):
    there = cuda.to_device(x, stream=stream)
    result = cuda.to_device(numpy.ones_like(x), stream=stream)
    axpy[40, 256, stream](2.0, there, result)
    back = result.copy_to_host(stream=stream)
    stream.synchronize()
print(back.sum(), back[:3].tolist(), total(there))
counts = cuda.to_device(numpy.zeros(16, numpy.float32))
histogram[40, 256](cuda.to_device(numpy.arange(10_000, dtype=numpy.int32) * 7), counts)
print(counts.copy_to_host().tolist())
print(mixed(x, x)[:4].tolist())
values = cuda.to_device(numpy.arange(1024, dtype=numpy.int32))
around[8, 128](values)
print(values.copy_to_host()[:3].tolist(), int(values.copy_to_host().sum()))
start, end = cuda.event(), cuda.event()
start.record()
axpy[40, 256](1.0, there, result)
end.record()
end.synchronize()
print(cuda.event_elapsed_time(start, end) > 0, result.copy_to_host().sum())
