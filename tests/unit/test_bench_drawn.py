"""What the policies do to traces that were drawn at random in the form of the recorded ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from fikitctl.demonstration.workloads import load_workloads

from bench.replayed import Replayer, ReplayError, Setup, program

try:
    program()
except ReplayError:
    pytest.skip("the native replay is not installed", allow_module_level=True)

TRACES = Path(__file__).parent / "traces"


@pytest.mark.parametrize(
    ("file", "high", "low", "least_share"),
    [
        # When a long row of a decoder's kernels is over is unsure, and answers of 0.17 ms are soon too late.
        ("short-answers", "recsys12", "decode1", 0.9),
        # What outlasts a step, and begins in its middle, is over when the program tells that it waited.
        ("long-kernels", "recsys11", "gaps2", 0.9),
        # Kernels of one key that last 0.3 and 1 ms: longer than a step by their worst, not by their median.
        ("bursts", "bursts4", "diff13", 0.6),
        # The wait behind a last copy is told of with the next launch, behind kernels that came in the pause.
        ("pauses", "asked19", "long19", 0.7),
        # Kernels that a pause has room for, but that last longer than an answer.
        ("room", "asked108", "long108", 0.9),
    ],
)
def test_drawn_traces_are_held_to_their_bound(file: str, high: str, low: str, least_share: float) -> None:
    """Their p99 was 2.0, 2.2, 1.25, 17 and 1.26."""
    replayer = Replayer(load_workloads([high, low], TRACES / f"{file}.json.gz"))
    for seed in (1, 4):
        result = replayer.compare([high], [low], Setup(seconds=3.0, warmup=3.0, seed=seed))
        assert result["hp_p50_ratio"] < 1.03, result
        assert result["hp_p99_ratio"] < 1.15, result
        assert result["lp_of_bound"] > least_share, result


def test_what_is_overdue_beside_another_high_program_is_not_over_yet() -> None:
    # Copies of a millisecond went before the last one of an answer that the other's kernels held up: p99 6.2.
    high, low = ["speech117", "asked117"], ["copies117", "tiny117"]
    replayer = Replayer(load_workloads([*high, *low], TRACES / "two-highs.json.gz"))
    for seed in (1, 4):
        result = replayer.compare(high, low, Setup(seconds=2.0, warmup=3.0, seed=seed))
        assert result["hp_p99_ratio"] < 1.15, result
        assert result["lp_of_bound"] > 0.5, result


def test_who_comes_behind_another_high_program_waits_as_long_as_that_one() -> None:
    # The low kernels leave room for those of `quick`, but not for those of `wide`, behind which they come:
    # p99 1.46.
    high, low = ["wide", "quick"], ["fill"]
    replayer = Replayer(load_workloads([*high, *low], TRACES / "queue.json.gz"))
    for seed in (1, 4):
        result = replayer.compare(high, low, Setup(seconds=2.0, warmup=1.0, seed=seed))
        assert result["hp_p99_ratio"] < 1.08, result
        assert result["lp_of_bound"] > 0.7, result
