"""The replay of kernels whose lengths their keys do not tell: what comes before does."""

from __future__ import annotations

from random import Random

import pytest
from fikitctl.demonstration.workloads import Operation, Workload, load_workload

from bench.replay_results import more
from bench.replayed import Replayer, ReplayError, Setup, program

try:
    program()
except ReplayError:
    pytest.skip("the native replay is not installed", allow_module_level=True)


def kernel(name: str, dur_us: float, at_us: float = 0.0) -> Operation:
    """A block of it takes a whole SM."""
    return Operation("kernel", name, 0, at_us, dur_us, (132, 1, 1), (1024, 1, 1), regs=64)


def low_throughput(short: str, long: str) -> float:
    """With names for a kernel of 40 us and for one of 400, beside a service whose pauses only one fits."""
    row = [kernel("before short", 10.0), kernel(short, 40.0)]
    low = [*row * 4, kernel("before long", 10.0), kernel(long, 400.0)] * 5
    high = [kernel("high", 5.0, at * 15.0) for at in range(40)]
    workloads = [Workload("high", 1.0, tuple(high), 500.0), Workload("low", 1.0, tuple(low), 0.0)]
    result = Replayer(workloads).compare(["high"], ["low"], Setup(seconds=1.0, warmup=0.2))
    assert result["hp_p99_ratio"] < 1.06
    return float(result["lp_ratio"])


def test_one_name_is_as_good_as_two() -> None:
    assert low_throughput("tiles", "tiles") > 0.9 * low_throughput("short", "long")


@pytest.mark.parametrize(("high", "least_share"), [("lstm_inf", 0.9), ("wav2vec_inf", 0.9)])
def test_a_training_whose_products_have_one_grid_fills_what_it_can(high: str, least_share: float) -> None:
    highs, lows = more()
    chosen = [each for each in (*highs, *lows) if each.name in (high, "llama1b_train")]
    result = Replayer(chosen).compare([high], ["llama1b_train"], Setup(seconds=2.0, warmup=3.0))
    assert result["hp_p99_ratio"] < 1.05
    assert result["lp_of_bound"] > least_share


def short_and_long(blocks: int, lengths_us: list[float]) -> Workload:
    """A training of one kernel whose length its data says; eight blocks of it fit an SM."""
    row = [
        Operation("kernel", "data", 0, 3.0 * at, length, (blocks, 1, 1), (256, 1, 1), regs=32)
        for at, length in enumerate(lengths_us)
    ]
    return Workload("data", sum(lengths_us) / 1000, tuple(row), 0.0)


@pytest.mark.parametrize(
    ("blocks", "short", "long", "one_in", "in_a_row", "least_share"),
    [(264, 10, 3000, 50, 1, 0.95), (264, 10, 3000, 4000, 60, 0.95), (2112, 10, 1000, 1000, 1, 0.4)],
)
def test_what_mostly_is_short_makes_few_steps_late(
    blocks: int, short: float, long: float, one_in: int, in_a_row: int, least_share: float
) -> None:
    drawn = Random(9)
    lengths: list[float] = []
    while len(lengths) < 10_000:
        until = one_in if in_a_row > 1 else round(drawn.expovariate(1 / one_in))
        lengths += [short] * until + [long] * in_a_row
    high = load_workload("resnet50_inf")
    replayer = Replayer([high, short_and_long(blocks, lengths)])
    result = replayer.compare([high.name], ["data"], Setup(seconds=5.0, warmup=1.0))
    assert result["hp_p99_ratio"] < 1.03
    assert result["lp_of_bound"] > least_share
