"""A CUDA graph, captured and replayed."""

import torch

x = torch.zeros(1000, device="cuda")
graph = torch.cuda.CUDAGraph()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        y = x * 2 + 1
torch.cuda.current_stream().wait_stream(side)
with torch.cuda.graph(graph):
    y = x * 2 + 1
for value in (1.0, 5.0):
    x.fill_(value)
    graph.replay()
    print(y.sum().item())
