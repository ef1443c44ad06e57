"""Triton in the style of its tutorials: softmax, a tuned matrix product, layer norm with gradients, TMA."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def softmax_kernel(out, x, stride, count, block: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, block)
    inside = columns < count
    values = tl.load(x + row * stride + columns, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + columns, powers / tl.sum(powers, axis=0), mask=inside)


@triton.autotune(
    configs=[
        triton.Config({"bm": 64, "bn": 64, "bk": 32}, num_warps=4, num_stages=3),
        triton.Config({"bm": 128, "bn": 64, "bk": 32}, num_warps=8, num_stages=3),
    ],
    key=["m", "n", "k"],
)
@triton.jit
def product_kernel(a, b, c, m, n, k, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr):
    rows = tl.program_id(0) * bm + tl.arange(0, bm)
    columns = tl.program_id(1) * bn + tl.arange(0, bn)
    sums = tl.zeros((bm, bn), tl.float32)
    for start in range(0, k, bk):
        inner = start + tl.arange(0, bk)
        tile_a = tl.load(
            a + rows[:, None] * k + inner[None, :], mask=(rows < m)[:, None] & (inner < k)[None, :]
        )
        tile_b = tl.load(
            b + inner[:, None] * n + columns[None, :], mask=(inner < k)[:, None] & (columns < n)[None, :]
        )
        sums = tl.dot(tile_a, tile_b, sums)
    at = c + rows[:, None] * n + columns[None, :]
    tl.store(at, sums.to(tl.float16), mask=(rows < m)[:, None] & (columns < n)[None, :])


@triton.jit
def norm_kernel(x, out, weight, mean, deviation, count, block: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, block)
    inside = columns < count
    values = tl.load(x + row * count + columns, mask=inside, other=0.0)
    middle = tl.sum(values, axis=0) / count
    centred = tl.where(inside, values - middle, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / count + 1e-5)
    tl.store(mean + row, middle)
    tl.store(deviation + row, scale)
    tl.store(
        out + row * count + columns, centred * scale * tl.load(weight + columns, mask=inside), mask=inside
    )


@triton.jit
def norm_gradient_kernel(x, upstream, mean, deviation, gradient, count, block: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, block)
    inside = columns < count
    values = tl.load(x + row * count + columns, mask=inside, other=0.0)
    normal = (values - tl.load(mean + row)) * tl.load(deviation + row)
    given = tl.load(upstream + row * count + columns, mask=inside, other=0.0)
    tl.atomic_add(gradient + columns, given * normal, mask=inside)


@triton.jit
def tile_kernel(source, target, rows: tl.constexpr, columns: tl.constexpr):
    y, x = tl.program_id(0) * rows, tl.program_id(1) * columns
    target.store([y, x], source.load([y, x]) * 2)


torch.manual_seed(1)
x = torch.randn(128, 500, device="cuda")
out = torch.empty_like(x)
softmax_kernel[(128,)](out, x, x.stride(0), 500, block=512)
print((out - x.softmax(1)).abs().max().item() < 1e-6, out.max().item())
a, b = (torch.randn(size, device="cuda", dtype=torch.float16) for size in ((300, 200), (200, 400)))
c = torch.empty(300, 400, device="cuda", dtype=torch.float16)
product_kernel[lambda size: (triton.cdiv(300, size["bm"]), triton.cdiv(400, size["bn"]))](
    a, b, c, 300, 400, 200
)
print((c.float() - (a.float() @ b.float())).abs().max().item() < 0.1, c.float().abs().mean().item())
weight, upstream = torch.randn(500, device="cuda"), torch.randn_like(x)
mean, deviation = torch.empty(128, device="cuda"), torch.empty(128, device="cuda")
gradient = torch.zeros(500, device="cuda")
norm_kernel[(128,)](x, out, weight, mean, deviation, 500, block=512)
norm_gradient_kernel[(128,)](x, upstream, mean, deviation, gradient, 500, block=512)
print(out.abs().mean().item(), gradient.abs().mean().item())
square = torch.arange(256 * 256, device="cuda", dtype=torch.float32).reshape(256, 256)
twice = torch.zeros_like(square)
source, target = (TensorDescriptor.from_tensor(each, [64, 32]) for each in (square, twice))
tile_kernel[(4, 8)](source, target, rows=64, columns=32)
print(torch.equal(twice, square * 2))
