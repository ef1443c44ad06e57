"""Workloads that nobody recorded. Policies were adjusted with them in view: they are no hold-out.

Kernel lengths, grids, blocks, the structure of an iteration and its rate are drawn from seeded distributions
that they are the same everywhere.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from fikitctl.demonstration.workloads import Operation, Workload


@dataclass(frozen=True)
class Recipe:
    """What a workload is like."""

    name: str
    seed: int
    layers: int
    """Times that the middle of an iteration repeats."""
    kernels: int
    """In each of them."""
    median_us: float
    spread: float
    """Of the logarithm of a kernel's length."""
    gap_us: float
    """Between two launches; 0: as fast as they can be."""
    blocks: tuple[int, int]
    streams: int = 1
    copies: bool = False


HIGH: Final = (
    Recipe("made_small", 11, layers=6, kernels=9, median_us=3, spread=0.6, gap_us=9, blocks=(4, 200)),
    Recipe("made_bursty", 12, layers=12, kernels=14, median_us=5, spread=0.8, gap_us=4, blocks=(16, 400)),
    Recipe(
        "made_wide",
        13,
        layers=24,
        kernels=11,
        median_us=8,
        spread=0.7,
        gap_us=22,
        blocks=(64, 2000),
        copies=True,
    ),
)
LOW: Final = (
    Recipe("made_long", 21, layers=10, kernels=12, median_us=60, spread=1.3, gap_us=0, blocks=(132, 4000)),
    Recipe(
        "made_short",
        22,
        layers=40,
        kernels=20,
        median_us=7,
        spread=0.7,
        gap_us=3,
        blocks=(32, 3000),
        streams=2,
    ),
    Recipe(
        "made_mixed",
        23,
        layers=16,
        kernels=25,
        median_us=18,
        spread=1.5,
        gap_us=2,
        blocks=(8, 6000),
        copies=True,
    ),
)


def _kernel(recipe: Recipe, rng: random.Random, number: int) -> Operation:
    low, high = recipe.blocks
    blocks = int(low * (high / low) ** rng.random())
    length = max(1.2, min(3000.0, recipe.median_us * 2.718 ** rng.gauss(0, recipe.spread)))
    return Operation(
        kind="kernel",
        name=f"{recipe.name}_{number}",
        stream=number % recipe.streams,
        at_us=0.0,
        dur_us=length,
        grid=(blocks, 1, 1),
        block=(rng.choice((64, 128, 256, 256, 512, 1024)), 1, 1),
        shared_bytes=rng.choice((0, 0, 8192, 49152, 98304)),
        regs=rng.choice((24, 40, 64, 96, 128)) // 2,
    )


def make(recipe: Recipe) -> Workload:
    """One iteration: a head, the layers, a tail, and a copy at either end."""
    rng = random.Random(recipe.seed)
    kernels = [_kernel(recipe, rng, number) for number in range(recipe.kernels + 8)]
    layer, ends = kernels[: recipe.kernels], kernels[recipe.kernels :]
    order = [*ends[:4], *(layer * recipe.layers), *ends[4:]]
    if recipe.copies:
        copy = Operation(
            kind="gpu_memcpy", name="copy", stream=0, at_us=0.0, dur_us=4.0, bytes=65536, copy="to_device"
        )
        order = [copy, *order, replace(copy, copy="to_host")]
    at, operations = 0.0, []
    for each in order:
        operations.append(replace(each, at_us=at))
        at += recipe.gap_us * rng.uniform(0.7, 1.5) if recipe.gap_us else 2.5
    busy = sum(each.dur_us for each in order)
    length = max(at, busy if recipe in LOW else at) * 1.03
    return Workload(recipe.name, length / 1e3, tuple(operations), 20.0)


def made() -> tuple[list[Workload], list[Workload]]:
    """The high and the low ones."""
    return [make(recipe) for recipe in HIGH], [make(recipe) for recipe in LOW]
