"""A model exported, saved and loaded, with other batches; TorchScript; weights of a mapped file."""

import tempfile
from pathlib import Path

import torch
from torch import nn

torch.manual_seed(3)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))

    def forward(self, x):
        return self.layers(x).softmax(-1) + x.mean(-1, keepdim=True)


model = Model().cuda().eval()
x = torch.randn(16, 32, device="cuda")
with torch.no_grad():
    expected = model(x)
    batch = torch.export.Dim("batch", min=2, max=1024)
    program = torch.export.export(model, (x,), dynamic_shapes={"x": {0: batch}})
    print(torch.allclose(program.module()(x), expected, atol=1e-5))
    with tempfile.TemporaryDirectory() as folder:
        torch.export.save(program, Path(folder) / "model.pt2")
        loaded = torch.export.load(Path(folder) / "model.pt2").module()
        for size in (2, 7, 300):
            more = torch.randn(size, 32, device="cuda")
            print(size, torch.allclose(loaded(more), model(more), atol=1e-5))
        traced = torch.jit.freeze(torch.jit.trace(model, x))
        traced.save(str(Path(folder) / "traced.pt"))
        again = torch.jit.load(str(Path(folder) / "traced.pt"), map_location="cuda")
        for _ in range(4):  # the third run is the fused one
            out = again(x)
        print(torch.allclose(out, expected, atol=1e-5))
        torch.save(model.state_dict(), Path(folder) / "state.pt")
        state = torch.load(Path(folder) / "state.pt", map_location="cuda:0", mmap=True, weights_only=True)
        print(sum(value.double().sum().item() for value in state.values()))
