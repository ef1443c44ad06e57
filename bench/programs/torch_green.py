"""PyTorch's green contexts: products, sums and a convolution on parts of the GPU, in turns with the whole."""

import torch

Green = getattr(torch.cuda, "GreenContext", None) or torch.cuda.green_contexts.GreenContext

torch.manual_seed(1)
x = torch.randn(512, 512, device="cuda")
image = torch.randn(2, 8, 64, 64, device="cuda")
filters = torch.randn(16, 8, 3, 3, device="cuda")
whole = (x @ x).abs().sum().item()
for multiprocessors in (8, 32, 64):
    part = Green.create(multiprocessors, 0)
    part.set_context()
    y = x @ x
    z = torch.nn.functional.conv2d(image, filters)
    print(multiprocessors, y.abs().sum().item(), z.abs().sum().item())
    part.pop_context()
    # Made in the part, used outside of it.
    print("whole", (y + 1).sum().item(), (x @ x).abs().sum().item() == whole)
parts = [Green.create(16, 0) for _ in range(2)]
sums = torch.zeros(2, device="cuda")
for turn in range(20):
    part = parts[turn % 2]
    part.set_context()
    sums[turn % 2] += (x[turn] * turn).sum()
    part.pop_context()
print(sums.tolist())
