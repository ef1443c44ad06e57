"""Shapes and programs that change: dynamic compilation, graph breaks, checkpoints, functional transforms."""

import torch
from torch.func import grad, hessian, jacrev, vmap
from torch.utils.checkpoint import checkpoint

torch.manual_seed(5)


def work(x):
    y = x @ x.t()
    y = y.relu() if y.sum() > 0 else y.sigmoid()  # a graph break
    return torch.cat([y, y.flip(0)]).cumsum(0).argsort(dim=1)


compiled = torch.compile(work, dynamic=True)
for size in (3, 8, 17, 64, 65, 130):
    x = torch.randn(size, 16, device="cuda")
    print(size, torch.equal(compiled(x), work(x)))
    ragged = x[x[:, 0] > 0]
    print(ragged.shape[0], ragged.unique().numel(), torch.nonzero(ragged > 1).sum().item())

layers = torch.nn.Sequential(
    *[torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Dropout(0.3), torch.nn.Tanh()) for _ in range(4)]
).cuda()
x = torch.randn(8, 32, device="cuda", requires_grad=True)
torch.manual_seed(6)
plain = layers(x).sum()
plain.backward()
first = x.grad.clone()
x.grad = None
torch.manual_seed(6)
out = x
for layer in layers:
    out = checkpoint(layer, out, use_reentrant=False)
out.sum().backward()
print(plain.item(), torch.allclose(first, x.grad))


def loss(weights, sample):
    return (sample @ weights).tanh().square().sum()


weights, samples = torch.randn(16, 4, device="cuda"), torch.randn(10, 16, device="cuda")
print(vmap(grad(loss), (None, 0))(weights, samples).abs().sum().item())
print(jacrev(lambda v: (v @ weights).exp())(samples[0]).abs().sum().item())
print(hessian(lambda v: loss(weights, v))(samples[0]).abs().sum().item())


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


y = (samples * 3).requires_grad_()
(Straight.apply(y) * torch.arange(16, device="cuda")).sum().backward()
print(y.grad.sum().item())
with torch.autograd.detect_anomaly(check_nan=True):
    z = torch.zeros(3, device="cuda", requires_grad=True)
    try:
        (z.sqrt() * 0).sum().backward()
        print("no fault found")
    except RuntimeError as error:
        print("nan" in str(error))
handle = layers[1].register_full_backward_hook(lambda module, inputs, outputs: print("hook", inputs[0].shape))
layers(x).sum().backward()
handle.remove()
