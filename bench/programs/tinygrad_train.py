"""tinygrad: kernels that it writes, a training step, and the same from a graph (TinyJit)."""

import os

os.environ.setdefault("DEV", "CUDA")
os.environ.setdefault("CACHELEVEL", "0")  # compiles each time
import numpy
from tinygrad import Tensor, TinyJit, nn
from tinygrad.helpers import Context
from tinygrad.nn.optim import Adam

Tensor.manual_seed(5)
numbers = numpy.random.default_rng(5)
x = Tensor(numbers.standard_normal((64, 48), dtype=numpy.float32))
y = Tensor(numbers.integers(0, 10, 64).astype(numpy.int32))
print(Tensor.ones(2, 3).sum().item(), (x @ x.T).softmax().max(1).sum().item(), x.std().item())
print(x.sort()[1].sum().item(), x.topk(5)[0].sum().item(), x.cumsum(1).abs().mean().item())


class Net:
    def __init__(self) -> None:
        self.first = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm(4)
        self.last = nn.Linear(4 * 4 * 10, 10)

    def __call__(self, rows: Tensor) -> Tensor:
        hidden = self.norm(self.first(rows.reshape(-1, 1, 6, 8))).relu()
        hidden = hidden.pad((2, 2)).flatten(1)
        return self.last(hidden)


net = Net()
optimiser = Adam(nn.state.get_parameters(net), lr=0.01)


@TinyJit
def step(rows: Tensor, labels: Tensor) -> Tensor:
    optimiser.zero_grad()
    loss = net(rows).sparse_categorical_crossentropy(labels).backward()
    return loss.realize(*optimiser.schedule_step())


with Context(TRAINING=1):
    losses = [step(x, y).item() for _ in range(8)]
print(*(f"{loss:.4f}" for loss in losses))
print(net(x).argmax(1).sum().item(), net.last.weight.abs().sum().item())
