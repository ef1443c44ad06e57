"""torch.compile's mode reduce-overhead: CUDA graphs over Triton kernels, in inference and in training."""

import torch

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 128)).cuda()
compiled = torch.compile(model, mode="reduce-overhead")
inputs = [torch.randn(32, 128, device="cuda") for _ in range(3)]
with torch.no_grad():
    for turn in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        print(compiled(inputs[turn % 3]).abs().mean().item())
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for turn in range(5):
    torch.compiler.cudagraph_mark_step_begin()
    loss = (compiled(inputs[turn % 3]) - 1).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(round(loss.item(), 4))
