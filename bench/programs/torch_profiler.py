"""PyTorch's profiler beside the work: the program's results, and the host's side of what it measures."""

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

model = torch.nn.Linear(64, 64).cuda()
x = torch.ones(8, 64, device="cuda")
torch.nn.init.constant_(model.weight, 0.01)
torch.nn.init.zeros_(model.bias)
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
    record_shapes=True,
) as profiler:
    for _ in range(4):
        with record_function("step"):
            y = torch.relu(model(x)).sum()
        profiler.step()
print(y.item())
names = {event.key: event.count for event in profiler.key_averages()}
print(names.get("step"), names.get("aten::linear"), names.get("aten::relu"))
torch.cuda.nvtx.range_push("named")
print(torch.ones(4, device="cuda").sum().item())
torch.cuda.nvtx.range_pop()
torch.cuda.profiler.start()
torch.cuda.profiler.stop()
