"""The allocator with expandable segments: the program maps memory itself."""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
import torch

parts = [torch.full((size, 1 << 18), 1.0, device="cuda") for size in (1, 40, 3)]
print([part.sum().item() for part in parts])
del parts
torch.cuda.empty_cache()
print(torch.ones(1 << 24, device="cuda").sum().item())
