"""Triton beyond its tutorials: tuning, atomics, sorting, descriptors, persistent and cooperative grids."""

import torch
import triton
import triton.language as tl

torch.manual_seed(12)


@triton.autotune(
    [triton.Config({"block_size": block}, num_warps=warps) for block in (128, 512) for warps in (2, 4)],
    key=["n"],
)
@triton.jit
def scaled(x, y, n, factor, block_size: tl.constexpr):
    at = tl.program_id(0) * block_size + tl.arange(0, block_size)
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def histogram(x, out, n, block_size: tl.constexpr, bins: tl.constexpr):
    at = tl.program_id(0) * block_size + tl.arange(0, block_size)
    counts = tl.histogram(tl.load(x + at, mask=at < n, other=0), bins)
    tl.atomic_add(out + tl.arange(0, bins), counts)


@triton.jit
def sorted_rows(x, y, length: tl.constexpr):
    at = tl.program_id(0) * length + tl.arange(0, length)
    row = tl.sort(tl.load(x + at))
    tl.store(y + at, tl.cumsum(row, 0))


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def scan(x, y, total, length: tl.constexpr):
    at = tl.arange(0, length)
    row = tl.load(x + at)
    tl.store(y + at, tl.associative_scan(row, 0, add))
    tl.store(total, tl.reduce(row, 0, add))


@triton.jit
def persistent(a, b, c, height, width, depth, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr):
    tiles = tl.cdiv(height, bm) * tl.cdiv(width, bn)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        m = tile // tl.cdiv(width, bn) * bm + tl.arange(0, bm)
        n = tile % tl.cdiv(width, bn) * bn + tl.arange(0, bn)
        total = tl.zeros((bm, bn), tl.float32)
        for k in tl.range(0, depth, bk, num_stages=3):
            ks = k + tl.arange(0, bk)
            total = tl.dot(
                tl.load(a + m[:, None] * depth + ks[None, :]),
                tl.load(b + ks[:, None] * width + n[None, :]),
                total,
            )
        tl.store(c + m[:, None] * width + n[None, :], total)


@triton.jit
def barrier(counter, out):
    tl.atomic_add(counter, 1, sem="release")
    while tl.atomic_add(counter, 0, sem="acquire") < tl.num_programs(0):
        pass
    tl.store(out + tl.program_id(0), tl.load(counter))


@triton.jit
def bits(x, y, block_size: tl.constexpr):
    at = tl.arange(0, block_size)
    value = tl.inline_asm_elementwise(
        "popc.b32 $0, $1;", "=r,r", [tl.load(x + at)], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(y + at, value)


x = torch.randn(10_000, device="cuda")
y = torch.empty_like(x)
for n in (10_000, 5_000):
    scaled[lambda meta, n=n: (triton.cdiv(n, meta["block_size"]),)](x, y, n, 2.0)
    print(torch.equal(y[:n], x[:n] * 2))
values = torch.randint(0, 64, (8192,), device="cuda", dtype=torch.int32)
out = torch.zeros(64, device="cuda", dtype=torch.int32)
histogram[(8,)](values, out, 8192, block_size=1024, bins=64)
print(torch.equal(out, torch.bincount(values, minlength=64).int()))
rows = torch.randint(0, 1000, (16, 256), device="cuda", dtype=torch.int32)
sums = torch.empty_like(rows)
sorted_rows[(16,)](rows, sums, length=256)
print(torch.equal(sums, rows.sort(1).values.cumsum(1).int()))
line = torch.arange(512, device="cuda")
scanned = torch.empty(512, device="cuda", dtype=torch.int64)
total = torch.zeros(1, device="cuda", dtype=torch.int64)
scan[(1,)](line, scanned, total, length=512)
print(torch.equal(scanned, line.cumsum(0)), total.item())
a = torch.randn(256, 128, device="cuda", dtype=torch.float16)
b = torch.randn(128, 192, device="cuda", dtype=torch.float16)
c = torch.empty(256, 192, device="cuda", dtype=torch.float32)
persistent[(5,)](a, b, c, 256, 192, 128, bm=64, bn=64, bk=32)
print(torch.allclose(c, a.float() @ b.float(), atol=1e-2))
counter = torch.zeros(1, device="cuda", dtype=torch.int32)
seen = torch.zeros(64, device="cuda", dtype=torch.int32)
barrier[(64,)](counter, seen, launch_cooperative_grid=True)
print(seen.unique().tolist())
words = torch.randint(0, 1 << 30, (256,), device="cuda", dtype=torch.int32)
counts = torch.empty(256, device="cuda", dtype=torch.int32)
bits[(1,)](words, counts, block_size=256)
print(counts.sum().item())
try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:
    print("no descriptors")
else:

    @triton.jit
    def turned(source, target, rows: tl.constexpr):
        block = source.load([tl.program_id(0) * rows, 0])
        target.store([0, tl.program_id(0) * rows], block.T)

    matrix = torch.randn(128, 64, device="cuda")
    flipped = torch.empty(64, 128, device="cuda")
    turned[(4,)](
        TensorDescriptor.from_tensor(matrix, [32, 64]),
        TensorDescriptor.from_tensor(flipped, [64, 32]),
        rows=32,
    )
    print(torch.equal(flipped, matrix.t()))
