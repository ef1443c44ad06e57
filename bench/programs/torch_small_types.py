"""Small number types: products in FP8 and int8, semi-structured sparsity, bit packing."""

import torch

torch.manual_seed(1)
a = torch.randn(64, 128, device="cuda")
b = torch.randn(96, 128, device="cuda")
one = torch.ones((), device="cuda")
for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
    low = b.to(torch.float8_e4m3fn).t()
    product = torch._scaled_mm(a.to(kind), low, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    print(kind, product.float().abs().sum().item(), a.to(kind).float().sum().item())
rows = torch.rand(64, 1, device="cuda") + 0.5
columns = torch.rand(1, 96, device="cuda") + 0.5
product = torch._scaled_mm(
    a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t(), scale_a=rows, scale_b=columns,
    out_dtype=torch.bfloat16, use_fast_accum=True,
)  # fmt: skip
print(product.float().abs().sum().item())
x = torch.randint(-100, 100, (64, 128), device="cuda", dtype=torch.int8)
y = torch.randint(-100, 100, (128, 96), device="cuda", dtype=torch.int8)
print(torch._int_mm(x, y).sum().item(), torch.equal(torch._int_mm(x, y).cpu(), x.cpu().int() @ y.cpu().int()))

mask = torch.tensor([0, 0, 1, 1], device="cuda", dtype=torch.bool).tile((128, 32))
dense = torch.randn(128, 128, device="cuda", dtype=torch.float16) * mask
right = torch.randn(128, 64, device="cuda", dtype=torch.float16)
sparse = torch.sparse.to_sparse_semi_structured(dense)
print((torch.mm(sparse, right) - dense @ right).abs().max().item() < 0.1, sparse.to_dense().equal(dense))

quantized = torch.quantize_per_tensor(a.cpu(), 0.05, 0, torch.qint8).cuda()
print(quantized.dequantize().sum().item())
packed = torch.randint(0, 256, (32, 64), device="cuda", dtype=torch.uint8)
print((packed & 15).sum().item(), (packed >> 4).sum().item(), torch.bitwise_xor(packed, 85).sum().item())
for kind in (torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128, torch.bool):
    print(kind, torch.arange(100, device="cuda").to(kind).to(torch.float64).real.sum().item())
