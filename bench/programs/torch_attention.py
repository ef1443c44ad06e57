"""scaled_dot_product_attention with each of PyTorch's backends, forwards and backwards."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.manual_seed(1)
query, key, value = (
    torch.randn(2, 8, 256, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3)
)
for backend in ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"):
    for causal in (False, True):
        query.grad = key.grad = value.grad = None
        with sdpa_kernel(getattr(SDPBackend, backend)):
            out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
            out.float().square().mean().backward()
        sums = [round(each.grad.float().abs().mean().item() * 1e6, 2) for each in (query, key, value)]
        print(backend, causal, round(out.float().abs().mean().item(), 4), sums, flush=True)
