"""Kernels that PyTorch compiles while it runs: jiterator, NVRTC, custom operators, NVTX ranges about them."""

import torch

torch.manual_seed(4)
x, y = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
fused = torch.cuda.jiterator._create_jit_fn(
    "template <typename T> T fused(T x, T y, T factor) { return x * y + factor * x; }", factor=2.0
)
print(fused(x, y).sum().item(), fused(x, y, factor=0.5).sum().item())
print(fused(x.double(), y.double()).sum().item(), torch.allclose(fused(x, y), x * y + 2 * x))
several = torch.cuda.jiterator._create_multi_output_jit_fn(
    "template <typename T> void both(T x, T y, T& sum, T& difference) { sum = x + y; difference = x - y; }",
    num_outputs=2,
)
print([out.sum().item() for out in several(x, y)])
for function in (torch.special.bessel_j0, torch.special.i1e, torch.special.zeta, torch.special.gammaln):
    values = x.abs() + 1.5
    print(
        function.__name__,
        (function(values, values) if function is torch.special.zeta else function(values)).sum().item(),
    )


@torch.library.custom_op("mine::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


@cube.register_fake
def _(x):
    return torch.empty_like(x)


cube.register_autograd(
    lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)
w = x.clone().requires_grad_()
with torch.cuda.nvtx.range("cube"):
    torch.compile(lambda value: cube(value).sum())(w).backward()
print(torch.allclose(w.grad, 3 * x**2, atol=1e-5))
torch.cuda.nvtx.mark("here")
