"""Programs that do not simply repeat: what a policy meets that was adjusted on traces which do.

Made of the recorded workloads and of made-up ones, from seeds, so that they are the same everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from fikitctl.demonstration.workloads import Operation, Workload, load_workload

from bench.made import Recipe, make
from bench.replayed import Varied

HIGH: Final = ("resnet50_inf", "bert_inf", "llama1b_decode")
LOW: Final = ("resnet50_train", "gpt2_train", "bert_train")


def _paced(workload: Workload, rng: random.Random, least: float, most: float) -> Workload:
    """The same with every host gap longer or shorter."""
    at, before, moved = 0.0, 0.0, []
    for each in workload.operations:
        at += (each.at_us - before) * rng.uniform(least, most)
        before = each.at_us
        moved.append(replace(each, at_us=at))
    return replace(workload, operations=tuple(moved))


def _reshaped(workload: Workload, scale: float) -> Workload:
    """The same on other data: grids and durations go with its size."""

    def of(each: Operation) -> Operation:
        if each.kind != "kernel":
            return each
        blocks = max(1, round(each.grid[0] * scale))
        return replace(each, grid=(blocks, *each.grid[1:]), dur_us=max(1.2, each.dur_us * scale))

    return replace(workload, operations=tuple(map(of, workload.operations)))


def _named(workload: Workload, name: str) -> Workload:
    """The same with kernels of its own."""
    renamed = (replace(each, name=f"{name} {each.name}") for each in workload.operations)
    return replace(workload, operations=tuple(renamed))


def high() -> Iterable[Varied]:
    """The high-priority ones."""
    rng = random.Random(31)
    resnet, bert = load_workload("resnet50_inf"), load_workload("bert_inf")
    yield Varied("jittery", tuple(_paced(bert, rng, 0.4, 1.9) for _ in range(23)))
    yield Varied("two_models", (_named(resnet, "a"), _named(bert, "b"), _named(bert, "b")))
    quick = replace(resnet, pause_us=30.0)
    yield Varied("bursts", (*[quick] * 5, replace(resnet, pause_us=9000.0)))
    yield Varied("new_shapes", tuple(_reshaped(bert, rng.uniform(0.3, 1.0)) for _ in range(40)))
    tiny = Recipe("tiny", 33, layers=20, kernels=12, median_us=1.5, spread=0.2, gap_us=6, blocks=(1, 60))
    yield Varied("tiny_high", (make(tiny),))


def low() -> Iterable[Workload]:
    """The low-priority ones."""
    yield load_workload("gpt2_train")
    blocks = Recipe(
        "long_low", 34, layers=4, kernels=8, median_us=900, spread=0.4, gap_us=0, blocks=(132, 264)
    )
    yield make(blocks)
    tiny = Recipe("tiny_low", 35, layers=60, kernels=9, median_us=1.6, spread=0.3, gap_us=0, blocks=(1, 200))
    yield make(tiny)


def varied() -> tuple[list[Varied], list[Workload]]:
    """The high and the low ones."""
    return list(high()), list(low())


def quick() -> tuple[list[Workload], list[Workload]]:
    """Recorded inference whose host takes less time, as it does under fikitd, and recorded training."""
    rng = random.Random(36)

    def quicker(name: str, share: float) -> Workload:
        workload = load_workload(name)
        moved = _paced(workload, rng, share, share)
        return replace(
            moved,
            name=f"{name} at {share}",
            iter_ms=share * workload.iter_ms,
            pause_us=share * workload.pause_us,
        )

    high = [quicker(name, share) for share in (0.75, 0.55) for name in HIGH]
    return high, [load_workload(name) for name in LOW]


def requests() -> tuple[list[Varied], list[Workload]]:
    """Recorded inference that is asked every 5 ms, and at random about every 60 ms, and recorded training."""
    rng = random.Random(37)

    def asked(name: str, when: str, pauses_ms: list[float]) -> Varied:
        each = (replace(load_workload(name), pause_us=1e3 * pause) for pause in pauses_ms)
        return Varied(f"{name} {when}", tuple(each))

    high = [asked(name, "every 5 ms", [5.0]) for name in HIGH]
    high += [asked(name, "at random", [rng.expovariate(1 / 60) for _ in range(50)]) for name in HIGH]
    return high, [load_workload(name) for name in LOW]


def answers() -> tuple[list[Varied], list[Workload]]:
    """One short answer after another, asked for when no launch tells of it, and recorded training.

    At random, about every 8 ms; every 10 ms or so; after 2 or 12 ms; in bursts of 3 to 20, about every 40 ms;
    30 in a row, with 20 to 200 ms behind them, as tokens are.
    """
    rng = random.Random(43)
    recipe = Recipe("short", 77, layers=4, kernels=12, median_us=6, spread=0.6, gap_us=3, blocks=(20, 400))
    short = make(recipe)

    def asked(when: str, pauses_ms: Iterable[float]) -> Varied:
        return Varied(when, tuple(replace(short, pause_us=1e3 * pause) for pause in pauses_ms))

    def bursts() -> Iterable[float]:
        for _ in range(40):
            yield from [rng.uniform(0.01, 0.2)] * rng.randint(3, 20)
            yield rng.expovariate(1 / 40)

    def tokens() -> Iterable[float]:
        for _ in range(20):
            yield from (0.06 * rng.uniform(0.8, 1.2) for _ in range(30))
            yield rng.uniform(20, 200)

    high = [
        asked("at random", (rng.expovariate(1 / 8) for _ in range(400))),
        asked("every 10 ms or so", (max(0.0, rng.gauss(10, 1)) for _ in range(400))),
        asked("after 2 or 12 ms", (rng.choice((2, 12)) * rng.uniform(0.9, 1.1) for _ in range(400))),
        asked("in bursts", bursts()),
        asked("as tokens", tokens()),
    ]
    return high, [load_workload(name) for name in LOW]


def graphs() -> tuple[list[Varied], list[Workload]]:
    """Recorded inference, a graph for each answer, asked 2 or 10 ms after the last; recorded training."""

    def graphed(name: str, pause_ms: int) -> Varied:
        workload = load_workload(name)
        at_once = tuple(replace(each, at_us=0.0) for each in workload.operations)
        answer = replace(workload, operations=at_once, pause_us=1e3 * pause_ms)
        return Varied(f"{name} as a graph, {pause_ms} ms", (answer,), graphs=True)

    high = [graphed(name, pause_ms) for pause_ms in (2, 10) for name in HIGH]
    return high, [load_workload(name) for name in LOW]


def concurrent() -> tuple[list[Workload], list[Workload]]:
    """Inference on several streams, with quick hosts: two models at once, layers side by side, copies."""
    rng = random.Random(39)
    share = 0.4

    def quicker(name: str) -> Workload:
        workload = load_workload(name)
        paced = _paced(workload, rng, share, share)
        return replace(paced, iter_ms=share * workload.iter_ms, pause_us=share * workload.pause_us)

    resnet, bert, llama = (quicker(name) for name in HIGH)

    def both(name: str, one: Workload, other: Workload) -> Workload:
        until = one.operations[-1].at_us
        beside = [replace(each, stream=1) for each in other.operations if each.at_us < until]
        operations = sorted([*one.operations, *beside], key=lambda each: each.at_us)
        return replace(one, name=name, operations=tuple(operations))

    def spread(name: str, workload: Workload, streams: int, row: int) -> Workload:
        placed = (
            replace(each, stream=number // row % streams) for number, each in enumerate(workload.operations)
        )
        return replace(workload, name=name, operations=tuple(placed))

    def fed(name: str, workload: Workload, dur_us: float) -> Workload:
        copy = Operation(
            kind="gpu_memcpy", name="input", stream=1, at_us=0.0, dur_us=dur_us, bytes=int(dur_us * 5e4),
            copy="to_device",
        )  # fmt: skip
        return replace(workload, name=name, operations=(copy, *workload.operations))

    high = [
        both("two models at once", bert, llama),
        spread("resnet50_inf on 3 streams", resnet, 3, 4),
        spread("bert_inf on 2 streams", bert, 2, 1),
        fed("resnet50_inf with inputs", resnet, 400.0),
        fed("bert_inf with inputs", bert, 1500.0),
    ]
    return high, [load_workload(name) for name in LOW]


def services() -> tuple[list[Varied], list[Workload]]:
    """Services as C++ programs are (programs/workloads/services.cu), their groups as iterations; training."""
    rng = random.Random(38)

    def kernel(name: str, dur_us: float, blocks: int) -> Operation:
        return Operation(
            kind="kernel", name=name, stream=0, at_us=0.0, dur_us=dur_us, grid=(blocks, 1, 1),
            block=(256, 1, 1), shared_bytes=0, regs=16,
        )  # fmt: skip

    def iteration(*kernels: Operation, pause_us: float = 0.0) -> Workload:
        length_us = max(2.5 * len(kernels), sum(each.dur_us for each in kernels)) + pause_us
        return Workload("", length_us / 1e3, kernels, pause_us)

    def batch() -> Workload:
        blocks = rng.randrange(16, 216)
        return iteration(
            *(kernel("item", rng.choice((3, 4.5, 6, 7.5)), blocks) for _ in range(40)), pause_us=300
        )

    tell = kernel("tell", 1.8, 1)
    group = [*[kernel("work", 6, 66)] * 8, tell]
    high = [
        Varied("controlling", (iteration(kernel("work", 9, 32), tell),)),
        Varied("polling", (iteration(*group),)),
        Varied("thinking", tuple(iteration(*group, pause_us=rng.uniform(20, 150)) for _ in range(37))),
        Varied(
            "decoding", (iteration(*(kernel("token", 3, 24 + at % 5 * 8) for at in range(250)), pause_us=60),)
        ),
        Varied("batching", tuple(batch() for _ in range(40))),
    ]
    return high, [load_workload(name) for name in LOW]


def sizes() -> tuple[list[Workload], list[Workload]]:
    """Recorded inference and training on less data and on more, with which ResNet-50 fills the GPU itself."""

    def sized(name: str, scale: float) -> Workload:
        workload = load_workload(name)
        return replace(_reshaped(workload, scale), name=f"{name} x {scale:g}")

    high = [sized(name, scale) for scale in (0.5, 2, 4) for name in HIGH]
    return high, [sized(name, scale) for scale in (0.5, 2) for name in LOW]
