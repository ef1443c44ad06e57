"""PyTorch's first steps: tensors there and back, arithmetic, reductions, indexing, random numbers."""

import torch

torch.manual_seed(1)
print(torch.cuda.get_device_name(), torch.cuda.get_device_capability())
x = torch.arange(1000, device="cuda", dtype=torch.float32)
y = (x * 2 + 1).cpu()
print(y.sum().item(), x.mean().item(), x[x > 990].tolist())
print(torch.randn(4, device="cuda").tolist(), torch.sort(torch.rand(64, device="cuda")).values[:3].tolist())
print(torch.cuda.memory_allocated() > 0, torch.cuda.mem_get_info()[1] > 0)
pinned = torch.ones(1 << 20).pin_memory()
print(pinned.is_pinned(), pinned.cuda(non_blocking=True).sum().item())
