"""CuPy: elementwise work, fused and own kernels, reductions, sorting, indexing, random numbers, streams."""

import cupy

print(cupy.cuda.runtime.getDeviceCount() > 0, cupy.cuda.Device(0).compute_capability)
x = cupy.arange(100_000, dtype=cupy.float32).reshape(100, 1000)
print(float((cupy.sin(x) * 2 + cupy.sqrt(x)).sum()), float(x.mean()), float(x.std()), int(x.argmax()))
squares = cupy.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squares")
print(float(squares(x, x[::-1]).max()))
length = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "length_of_row")
print([round(float(value), 1) for value in length(x, axis=1)[:3]])


@cupy.fuse()
def fused(a, b):
    return cupy.exp(-a / 1e5) * b + 1


print(float(fused(x, x).sum()))
generator = cupy.random.default_rng(5)
values = generator.standard_normal(10_000)
print(float(cupy.sort(values)[5000]), float(cupy.percentile(values, 90)), int((values > 1).sum()))
print(cupy.bincount(cupy.arange(1000) % 7).tolist(), cupy.unique(cupy.arange(50) % 9).tolist())
first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream()
event = cupy.cuda.Event()
with first:
    y = x * 3
    event.record()
second.wait_event(event)
with second:
    z = y.sum()
second.synchronize()
print(float(z), first.done, cupy.cuda.get_elapsed_time(event, event))
pinned = cupy.cuda.alloc_pinned_memory(1 << 20)
print(pinned.mem.size >= 1 << 20, cupy.asnumpy(x[0, :3]).tolist())
cupy.get_default_memory_pool().free_all_blocks()
with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
    print(float(cupy.ones((1000, 1000)).sum()))
