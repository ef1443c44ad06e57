"""Convolutions through cuDNN, forwards and backwards."""

import torch

torch.manual_seed(1)
torch.backends.cudnn.allow_tf32 = False
layer = torch.nn.Conv2d(16, 32, 3, padding=1).cuda()
x = torch.randn(8, 16, 32, 32, device="cuda", requires_grad=True)
y = torch.nn.functional.batch_norm(layer(x), None, None, training=True)
y.square().mean().backward()
print(y.abs().mean().item(), x.grad.abs().sum().item(), layer.weight.grad.abs().sum().item())
with torch.autocast("cuda", dtype=torch.float16):
    print(layer(x).float().abs().mean().item())
