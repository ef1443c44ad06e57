"""Sorting, searching, counting, gathering and scattering, some of it with deterministic algorithms."""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch

torch.manual_seed(15)
torch.use_deterministic_algorithms(True, warn_only=True)  # where they exist
x = torch.randn(300, 500, device="cuda")
numbers = torch.randint(0, 1000, (100_000,), device="cuda")
print(
    x.sort(1).indices.sum().item(), x.argsort(dim=0, stable=True).sum().item(), x.topk(7).indices.sum().item()
)
print(
    torch.msort(x).sum().item(),
    x.nanmedian().item(),
    x.kthvalue(50).values.sum().item(),
    x.median(0).values.sum().item(),
)
print(
    numbers.unique(return_counts=True)[1].max().item(),
    numbers.unique_consecutive().numel(),
    numbers.mode().values.item(),
)
print(
    torch.bincount(numbers).max().item(),
    torch.histc(x, 20).max().item(),
    torch.searchsorted(x.sort(1).values, x[:, :3].contiguous()).sum().item(),
)
print(
    torch.bucketize(x, torch.linspace(-2, 2, 9, device="cuda")).sum().item(),
    torch.isin(numbers, numbers[:50]).sum().item(),
)
index = torch.randint(0, 300, (1000,), device="cuda")
rows = torch.randn(1000, 500, device="cuda")
print(
    torch.zeros_like(x).index_add_(0, index, rows).sum().item(),
    torch.zeros_like(x).index_put_((index,), rows, accumulate=True).norm().item(),
)
print(
    x.gather(1, x.argsort(1)).sum().item(),
    torch.zeros(300, device="cuda").scatter_add_(0, index, rows[:, 0]).norm().item(),
)
print(
    x.cumsum(0).sum().item(),
    x.cumprod(1).sum().item(),
    x.logcumsumexp(1).sum().item(),
    x.cummax(1).indices.sum().item(),
)
print(
    torch.cdist(x, x[:50]).sum().item(),
    torch.pdist(x[:60]).sum().item(),
    torch.combinations(x[0, :30]).sum().item(),
)
print(
    torch.nonzero(x > 2).sum().item(),
    x[x > 2].sum().item(),
    torch.where(x > 0, x, -x).sum().item(),
    x.masked_select(x < -2).numel(),
)
print(
    torch.tril_indices(40, 40, device="cuda").sum().item(),
    x.roll(3, 1).diff().sum().item(),
    x.flip(0).rot90().trace().item(),
)
print(
    torch.einsum("ij,kj,k->i", x, rows, rows[:, 0]).sum().item(),
    torch.tensordot(x, rows, dims=([1], [1])).norm().item(),
)
print(
    torch.linalg.vector_norm(x, 3).item(),
    torch.logsumexp(x, 1).sum().item(),
    x.var(0, correction=0).sum().item(),
    torch.aminmax(x).max.item(),
)
several = torch._foreach_add([x, rows], 1.0)
print(
    sum(each.sum().item() for each in torch._foreach_mul(several, 2.0)),
    torch._foreach_norm([x, rows])[1].item(),
)
jagged = torch.nested.nested_tensor([x[:10, :7], x[:3, :7], x[:25, :7]], layout=torch.jagged)
print(torch.nn.functional.linear(jagged, rows[:4, :7]).values().sum().item(), jagged.sum(dim=1).sum().item())
values = torch.empty(0, 5, device="cuda")
print(
    values.sum().item(),
    torch.cat([values, x[:2, :5]]).shape,
    (values @ x[:5]).shape,
    values.max(1).values.numel(),
)
big = torch.zeros(1 << 31, dtype=torch.int8, device="cuda")
big[-1] = 3
print(big.sum().item(), int(big.argmax()), big.view(-1, 1 << 16).sum(1).max().item())
