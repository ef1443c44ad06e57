"""PyTorch's own samples of its operators, modules and optimisers, forwards and backwards; four processes."""

import importlib.util
import random
import subprocess
import sys
import types
import unittest
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy
import torch
from torch.utils._pytree import tree_leaves

if importlib.util.find_spec("expecttest") is None:  # PyTorch's test cases derive from its; no sample needs it
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    vars(sys.modules["expecttest"])["TestCase"] = unittest.TestCase
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

SECONDS = 150
PROCESSES = 4
SAMPLES = 4
TYPES = [torch.float32, torch.bfloat16, torch.complex64, torch.int64]
BY_CHANCE = ("empty", "new_empty", "meshgrid.variadic", "torch.ops.aten._efficient_attention_forward")
"""What natively gives something else each time: memory as it is, an order, a seed that nobody set."""


def told(values: object) -> Iterator[str]:
    """Of each tensor its shape, the sum of what is finite, and how much is not."""
    for leaf in tree_leaves(values):
        if not isinstance(leaf, torch.Tensor):
            yield repr(leaf)[:60].replace(" ", "_")
            continue
        dense = leaf.detach() if leaf.layout == torch.strided else leaf.detach().to_dense()
        numbers = dense.resolve_conj().resolve_neg().cpu()
        sizes = numbers.abs().double() if numbers.dtype != torch.bool else numbers.double()
        finite = torch.isfinite(sizes)
        yield "x".join(map(str, leaf.shape)) or "one"
        yield f"{sizes[finite].sum().item():.6g}"
        if not finite.all():
            yield f"{(~finite).sum().item()}_not_finite"


def needing_gradients(values: object) -> list[torch.Tensor]:
    """The tensors among these that do."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def backwards(results: object, inputs: object) -> Iterator[str]:
    """The gradients of the results' sum."""
    outs, ins = needing_gradients(results), [leaf for leaf in needing_gradients(inputs) if leaf.is_leaf]
    if outs and ins:
        sums = (out.abs().sum() if out.is_complex() else out.float().sum() for out in outs)
        total = sum(sums, start=torch.zeros((), device=outs[0].device))
        yield from told(torch.autograd.grad(total, ins, allow_unused=True))


def show(name: str, samples: Callable[[], Iterable[Callable[[], Iterable[str]]]]) -> None:
    """Print a line of what the first samples give; a mistake is a result."""
    for seed in (torch.manual_seed, random.seed, numpy.random.seed):
        seed(7)
    line = [name]
    for sample in islice(samples(), SAMPLES):
        try:
            line += sample()
        except Exception as mistake:
            line += [type(mistake).__name__, *str(mistake).split("\n")[0][:120].split()]
    print(*line, flush=True)


def operator(op: Any, dtype: torch.dtype) -> Iterator[Callable[[], Iterable[str]]]:
    """An operator's samples."""
    learns = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    for sample in op.sample_inputs("cuda", dtype, requires_grad=learns):

        def run(sample: Any = sample) -> Iterator[str]:
            result = op(sample.input, *sample.args, **sample.kwargs)
            yield from told(result)
            if learns:
                yield from backwards(result, (sample.input, sample.args, sample.kwargs))

        yield run


def module(info: Any, dtype: torch.dtype, training: bool) -> Iterator[Callable[[], Iterable[str]]]:
    """A module's samples."""
    for sample in info.module_inputs_func(
        info, device="cuda", dtype=dtype, requires_grad=True, training=training
    ):

        def run(sample: Any = sample) -> Iterator[str]:
            made = sample.constructor_input
            layer = info.module_cls(*made.args, **made.kwargs).to("cuda", dtype).train(training)
            result = layer(*sample.forward_input.args, **sample.forward_input.kwargs)
            yield from told(result)
            yield from backwards(result, list(layer.parameters()))

        yield run


def optimiser(info: Any, way: str) -> Iterator[Callable[[], Iterable[str]]]:
    """Four steps of an optimiser with each of its settings."""
    for sample in info.optim_inputs_func(device="cuda"):

        def run(sample: Any = sample) -> Iterator[str]:
            weights = [torch.randn(shape, device="cuda", requires_grad=True) for shape in ((7, 9), (33,))]
            settings = {**sample.kwargs, way: True} if way in ("foreach", "fused") else sample.kwargs
            chosen = info.optim_cls(weights, **settings)

            def loss() -> torch.Tensor:
                chosen.zero_grad()
                total = torch.stack([(each * each.sin()).sum() for each in weights]).sum()
                total.backward()
                return total

            for _ in range(4):
                chosen.step(loss)
            yield from told(weights)

        yield run


def part(number: int) -> None:
    """Every fourth of all of them."""
    every = slice(number, None, PROCESSES)
    for op in sorted(op_db, key=lambda each: (each.name, each.variant_test_name))[every]:
        name = f"{op.name}.{op.variant_test_name}"
        for dtype in TYPES if not name.startswith(BY_CHANCE) else []:
            if dtype in op.supported_dtypes("cuda"):
                show(f"{name}.{dtype}", lambda op=op, dtype=dtype: operator(op, dtype))
    for info in module_db[every]:
        for training in (True, False):
            show(
                f"{info.name}.{training}",
                lambda info=info, training=training: module(info, torch.float32, training),
            )
    for info in optim_db[every]:
        for way in info.supported_impls:
            show(f"{info.optim_cls.__name__}.{way}", lambda info=info, way=way: optimiser(info, way))
    torch.cuda.synchronize()


if len(sys.argv) > 1:
    part(int(sys.argv[1]))
else:
    parts = [
        subprocess.Popen([sys.executable, __file__, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    for each in parts:
        print(each.communicate()[0])
    sys.exit(any(each.returncode for each in parts))
