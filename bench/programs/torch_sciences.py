"""Libraries on PyTorch: graph networks (PyG), Gaussian processes (GPyTorch), audio (torchaudio)."""

import math

import gpytorch
import torch
import torchaudio
from torch_geometric.nn import GATConv, GCNConv

torch.manual_seed(1)
edges = torch.stack([torch.arange(100), (torch.arange(100) * 7 + 1) % 100]).cuda()
x = torch.randn(100, 16, device="cuda")
for layer in (GCNConv(16, 8), GATConv(16, 8, heads=2)):
    out = layer.cuda()(x, edges)
    out.square().mean().backward()
    print(tuple(out.shape), round(out.square().mean().item(), 4))


class Process(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


points = torch.linspace(0, 1, 60, device="cuda", dtype=torch.float64)
values = torch.sin(points * 2 * math.pi)
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Process(points, values, likelihood).cuda().double()
optimizer = torch.optim.Adam(model.parameters(), 0.1)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
for _ in range(15):
    optimizer.zero_grad()
    loss = -objective(model(points), values)
    loss.backward()
    optimizer.step()
print(round(loss.item(), 3))
wave = torch.sin(torch.arange(16000, device="cuda") * 0.05)[None]
print(round(torchaudio.functional.resample(wave, 16000, 8000).square().mean().item(), 4))
print(round(torchaudio.transforms.MelSpectrogram(n_mels=32).cuda()(wave).mean().item(), 3))
