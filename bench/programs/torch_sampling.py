"""Random numbers on the GPU: distributions, sampling with and without return, generators of one's own."""

import torch
from torch import distributions

torch.manual_seed(13)
ones = torch.ones(5000, device="cuda")
for name, sample in (
    ("normal", lambda: torch.normal(ones, 2 * ones)),
    ("poisson", lambda: torch.poisson(4 * ones)),
    ("bernoulli", lambda: torch.bernoulli(0.3 * ones)),
    ("exponential", lambda: torch.empty_like(ones).exponential_(2)),
    ("geometric", lambda: torch.empty_like(ones).geometric_(0.2)),
    ("cauchy", lambda: torch.empty_like(ones).cauchy_().atan()),
    ("log_normal", lambda: torch.empty_like(ones).log_normal_()),
    ("gamma", lambda: torch._standard_gamma(3 * ones)),
    ("binomial", lambda: torch.binomial(10 * ones, 0.4 * ones)),
    ("randint", lambda: torch.randint(0, 9, (5000,), device="cuda").float()),
    ("dirichlet", lambda: distributions.Dirichlet(ones[:50].view(10, 5)).sample()),
    ("student", lambda: distributions.StudentT(5 * ones).sample().tanh()),
    ("beta", lambda: distributions.Beta(2 * ones, 3 * ones).sample()),
    ("von_mises", lambda: distributions.VonMises(ones[:200], 2 * ones[:200]).sample()),
):
    value = sample()
    print(name, value.double().mean().item(), value.double().std().item())
weights = torch.arange(1.0, 101, device="cuda")
print(
    torch.multinomial(weights, 50).sum().item(),
    torch.multinomial(weights, 500, replacement=True).sum().item(),
)
print(
    torch.randperm(100_000, device="cuda")[:100].sum().item(), torch.randperm(50, device="cuda").sum().item()
)
generator = torch.Generator("cuda").manual_seed(14)
first = torch.randn(1000, device="cuda", generator=generator)
state = generator.get_state()
second = torch.randn(1000, device="cuda", generator=generator)
generator.set_state(state)
print(torch.equal(second, torch.randn(1000, device="cuda", generator=generator)), first.sum().item())
with torch.random.fork_rng(devices=[0]):
    inside = torch.rand(10, device="cuda").sum().item()
print(inside == torch.rand(10, device="cuda").sum().item())
dropped = torch.nn.functional.dropout(torch.ones(100_000, device="cuda"), 0.25)
print((dropped == 0).float().mean().item(), torch.nn.functional.alpha_dropout(ones, 0.5).mean().item())
print(
    torch.nn.functional.gumbel_softmax(torch.randn(50, 10, device="cuda"), hard=True).argmax(1).sum().item()
)
logits = torch.randn(4, 1000, device="cuda")
kept = logits.masked_fill(logits < logits.topk(40).values[:, -1:], -torch.inf)
print(torch.multinomial(kept.softmax(-1), 1).flatten().tolist())
