"""What came of the demonstration: each phase, as JSON, and as a table beside each alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from fikitctl.demonstration.messages import Measured
from fikitctl.demonstration.replay import percentile
from fikitctl.tables import PLAIN, Column, table


class Figures(Struct, frozen=True):
    """One phase. In the device's time."""

    hp_p50_ms: float
    """The high side's step, median."""
    hp_p99_ms: float
    lp_per_s: float
    """The low side's steps per second."""


class Result(Struct, frozen=True):
    """The whole demonstration."""

    device: str
    alone: Figures
    equal: Figures
    priority: Figures


def figures(high: Measured, low: Measured) -> Figures:
    """What the two sides of a phase measured."""
    return Figures(
        hp_p50_ms=percentile(high.steps_ms, 0.5),
        hp_p99_ms=percentile(high.steps_ms, 0.99),
        lp_per_s=len(low.steps_ms) / low.seconds,
    )


class _Line(NamedTuple):
    title: str
    figures: Figures
    alone: Figures


def _ratio(value: float, alone: float) -> str:
    return f"{value / alone:.2f}"


_COLUMNS: Final = (
    Column("phase", lambda line: line.title),
    Column("high_p50_ms", lambda line: f"{line.figures.hp_p50_ms:.2f}", right=True),
    Column("of_alone", lambda line: _ratio(line.figures.hp_p50_ms, line.alone.hp_p50_ms), right=True),
    Column("high_p99_ms", lambda line: f"{line.figures.hp_p99_ms:.2f}", right=True),
    Column("of_alone", lambda line: _ratio(line.figures.hp_p99_ms, line.alone.hp_p99_ms), right=True),
    Column("low_steps/s", lambda line: f"{line.figures.lp_per_s:.1f}", right=True),
    Column("of_alone", lambda line: _ratio(line.figures.lp_per_s, line.alone.lp_per_s), right=True),
)


def report(result: Result, high: str, low: str) -> str:
    """The table, and what it is about."""
    return f"{result.device}: {high} (high) beside {low} (low)\n" + table(_COLUMNS, _lines(result), PLAIN)


def _lines(result: Result) -> Iterator[_Line]:
    yield _Line("each alone", result.alone, result.alone)
    yield _Line("equal priority", result.equal, result.alone)
    yield _Line("high and low", result.priority, result.alone)
