"""PyTorch on stream-ordered allocation (backend:cudaMallocAsync), also across streams and with statistics."""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
os.environ["PYTORCH_ALLOC_CONF"] = "backend:cudaMallocAsync"
import torch

torch.manual_seed(1)
print(torch.cuda.get_allocator_backend())
side = torch.cuda.Stream()
total = torch.zeros((), device="cuda")
for turn in range(20):
    x = torch.randn(200 + 50 * turn, 300, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = (x @ x.t()).relu()
        x.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    total += y.mean()
    y.record_stream(torch.cuda.current_stream())
    del x, y
print(total.item(), torch.cuda.memory_allocated() > 0, torch.cuda.max_memory_allocated() > 1 << 20)
del total
torch.cuda.synchronize()
torch.cuda.empty_cache()
print(torch.cuda.memory_allocated())
