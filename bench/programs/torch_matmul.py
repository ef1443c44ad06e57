"""Matrix products: cuBLAS and cuBLASLt, three types, batched, with a bias."""

import torch

torch.manual_seed(1)
for kind in (torch.float32, torch.float16, torch.bfloat16):
    a, b = (torch.randn(512, 768, device="cuda").to(kind), torch.randn(768, 256, device="cuda").to(kind))
    print(kind, (a @ b).float().abs().mean().item())
    print(
        torch.nn.functional.linear(a, b.t(), torch.ones(256, device="cuda", dtype=kind)).float().sum().item()
    )
print(torch.bmm(torch.ones(8, 64, 32, device="cuda"), torch.ones(8, 32, 16, device="cuda")).sum().item())
