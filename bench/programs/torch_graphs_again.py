"""CUDA graphs as PyTorch's users make them: graphed callables, random numbers, shared pools, streams."""

import torch

torch.manual_seed(7)
model = torch.nn.Sequential(
    torch.nn.Linear(64, 128), torch.nn.Dropout(0.2), torch.nn.GELU(), torch.nn.Linear(128, 16)
).cuda()
sample = torch.randn(32, 64, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(model, (sample,))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad(set_to_none=True)
    x = torch.full((32, 64), step + 1.0, device="cuda", requires_grad=True)
    loss = graphed(x).square().mean()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4), x.grad.shape)

noise = torch.zeros(1000, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    noise.copy_(torch.randn(1000, device="cuda"))
seen = []
for _ in range(3):
    graph.replay()
    seen.append(noise.sum().item())
print(len(set(seen)))
torch.manual_seed(8)
graph.replay()
first = noise.clone()
torch.manual_seed(8)
graph.replay()
print(torch.equal(first, noise))

pool = torch.cuda.graph_pool_handle()
static = torch.zeros(256, device="cuda")
graphs = []
for factor in range(8):
    each = torch.cuda.CUDAGraph()
    with torch.cuda.graph(each, pool=pool):
        out = (static * factor).sort(descending=True).values.cumsum(0)
    graphs.append((each, out))
results = []
for each, out in graphs:
    static.copy_(torch.arange(256.0, device="cuda"))
    each.replay()
    results.append(out[-1].item())
print(results)
side, other = torch.cuda.Stream(), torch.cuda.Stream()
for _ in range(20):
    for stream, (each, _) in zip((side, other), graphs, strict=False):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            each.replay()
torch.cuda.synchronize()
print(graphs[1][1][-1].item())
with torch.cuda.stream(side):
    forked = torch.cuda.CUDAGraph()
    with torch.cuda.graph(forked, stream=side):
        a = static * 2
        other.wait_stream(side)
        with torch.cuda.stream(other):
            b = static.pow(2).sum()
        c = a.mean()
        side.wait_stream(other)
        total = b + c
    forked.replay()
torch.cuda.synchronize()
print(total.item())
try:
    broken = torch.cuda.CUDAGraph()
    with torch.cuda.graph(broken):
        static.sum().item()
except RuntimeError as error:
    print("capture" in str(error).lower())
torch.cuda.synchronize()
print((static + 1).sum().item())
del graphs, graph, forked, graphed
torch.cuda.empty_cache()
