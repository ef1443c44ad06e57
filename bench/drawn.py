"""Programs drawn at random, as many as one likes: what a policy does to those that nobody had in view.

Lengths, grids, gaps and streams are drawn anew for each, wider than those of bench/made.py, and so is how
its iterations differ: not at all; in the pauses between them; in shape; or as a long phase and many short
ones do.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from fikitctl.demonstration.workloads import Workload

from bench.made import Recipe, make
from bench.replayed import Varied

HIGHS: Final = 24
LOWS: Final = 3
_PAUSES_US: Final = (0, 20, 50, 100, 300, 1000, 5000, 20000)


def _blocks(rng: random.Random) -> tuple[int, int]:
    least = int(2 ** rng.uniform(0, 8))
    return least, max(least + 1, int(least * 2 ** rng.uniform(0, 7)))


def _recipe(rng: random.Random, name: str, median_us: float, gaps_us: tuple[float, ...]) -> Recipe:
    return Recipe(
        name,
        rng.randrange(10**6),
        layers=rng.choice((1, 2, 4, 8, 16, 32)),
        kernels=rng.randint(2, 25),
        median_us=median_us,
        spread=rng.uniform(0.1, 1.2),
        gap_us=rng.choice(gaps_us),
        blocks=_blocks(rng),
        streams=rng.choice((1, 1, 1, 2, 3)),
        copies=rng.random() < 0.4,
    )


def _iteration(rng: random.Random, name: str, layers: int | None = None) -> Workload:
    recipe = _recipe(rng, name, 2 ** rng.uniform(0.5, 5), (0, 0, 2.5, 4, 6, 9, 15, 25))
    return make(recipe if layers is None else replace(recipe, layers=layers))


def _scaled(workload: Workload, scale: float, name: str) -> Workload:
    operations = (
        replace(
            each,
            name=f"{name} {each.name}",
            dur_us=max(1.2, each.dur_us * scale),
            grid=(max(1, int(each.grid[0] * scale)), 1, 1),
        )
        if each.grid is not None
        else each
        for each in workload.operations
    )
    return replace(workload, operations=tuple(operations))


def high_program(seed: int) -> Varied:
    """A high-priority one."""
    rng = random.Random(seed)
    name = f"drawn {seed}"

    def pause_us() -> float:
        return rng.choice(_PAUSES_US) * rng.uniform(0.5, 1.5)

    kind = rng.choice(("same", "pauses", "shapes", "phases"))
    base = _iteration(rng, name)
    if kind == "same":
        return Varied(name, (replace(base, pause_us=pause_us()),))
    if kind == "pauses":
        return Varied(name, tuple(replace(base, pause_us=pause_us()) for _ in range(rng.randint(2, 20))))
    if kind == "shapes":
        scales = [rng.uniform(0.3, 1.5) for _ in range(rng.randint(3, 30))]
        return Varied(name, tuple(_scaled(base, scale, str(at)) for at, scale in enumerate(scales)))
    short = _iteration(rng, f"{name} short", rng.choice((1, 2, 4)))
    last = replace(short, pause_us=pause_us())
    return Varied(name, (base, *[short] * rng.randint(2, 40), last))


def low_program(seed: int) -> Workload:
    """A low-priority one."""
    rng = random.Random(seed)
    return make(_recipe(rng, f"drawn low {seed}", 2 ** rng.uniform(1, 9), (0, 0, 2, 4, 8)))


def drawn() -> tuple[list[Varied], list[Workload]]:
    """The high and the low ones of the first seeds."""
    return [high_program(seed) for seed in range(HIGHS)], [low_program(1000 + seed) for seed in range(LOWS)]
