"""Accounts: what has been used. Sessions that are over are summed; living ones add their latest usage.

Invariant: a session is either among the living or in the sums, so no total ever goes down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from fikit.protocol import GateStatistics, Usage
from msgspec.structs import replace

GAUGES: Final = {"memory_bytes", "queued"}
"""Fields of Usage that hold only while a session lives."""
NUMBERS: Final = tuple(name for name in Usage.__struct_fields__ if name != "unsupported")
MOST_NAMES: Final = 64
"""Unsupported calls that a total names: the names are the tenants' own words."""


def total(parts: Iterable[Usage]) -> Usage:
    """Field by field the sum; the memory peak is the sum of the peaks, an upper bound."""
    sums: dict[str, Any] = dict.fromkeys(NUMBERS, 0)
    unsupported: dict[str, int] = {}
    for part in parts:
        for name in sums:
            sums[name] += getattr(part, name)
        for name, count in part.unsupported.items():
            if name in unsupported or len(unsupported) < MOST_NAMES:
                unsupported[name] = unsupported.get(name, 0) + count
    return Usage(**sums, unsupported=unsupported)


def ended(usage: Usage) -> Usage:
    """What remains on the account of a session that is over: nothing in use, nothing queued."""
    kept: dict[str, Any] = {name: 0 if name in GAUGES else getattr(usage, name) for name in NUMBERS}
    return Usage(**kept)


SUMMED: Final = (
    *("filled", "filled_ns", "confined", "confined_ns", "steps", "over_bound", "predicted", "met"),
    *("idle_ns", "idle_filled_ns", "idle_confined_ns", "beside_ns", "slowed_ns", "delays", "delay_ns"),
    *("caused_beside_ns", "caused_slowed_ns", "caused_delays", "caused_delay_ns"),
    *("measured", "measuring_ns"),
)
"""Fields of GateStatistics that are sums themselves."""
WORST: Final = ("worst_delay_ns", "caused_worst_delay_ns")


def total_gate(parts: Iterable[GateStatistics]) -> GateStatistics:
    """The sums, the worst delays; what is of one session only is left out."""
    sums = dict.fromkeys(SUMMED, 0)
    refused: Counter[str] = Counter()
    worst = dict.fromkeys(WORST, 0)
    for part in parts:
        for name in sums:
            sums[name] += getattr(part, name)
        refused.update(part.refused)
        for name in worst:
            worst[name] = max(worst[name], getattr(part, name))
    return replace(GateStatistics(refused=dict(refused)), **sums, **worst)


def since(before: GateStatistics, gate: GateStatistics) -> GateStatistics:
    """What has come to the sums of one session; its worst delays as they are."""
    sums = {name: getattr(gate, name) - getattr(before, name) for name in SUMMED}
    refused = Counter(gate.refused) - Counter(before.refused)
    return replace(gate, refused=dict(refused), **sums)


class Accounts:
    """The sums of sessions that are over, by tenant (uid) and GPU; of the gate's, those of this daemon.

    Who adds counters up takes one that falls for one that began at zero, and counts all that it shows
    again: what is not stored must begin there, whatever living sessions have counted under earlier daemons.
    """

    def __init__(self, sums: dict[tuple[int, int], Usage]) -> None:
        self._sums = sums
        self.gates: dict[tuple[int, int], GateStatistics] = {}
        self.busy_ns: Counter[tuple[int | None, int]] = Counter()
        """How long executors that are over, by user and GPU, had work in flight; under this daemon."""

    def close(self, uid: int, gpu: int, usage: Usage, gate: GateStatistics) -> None:
        """A session of this tenant on this GPU is over."""
        self._sums[uid, gpu] = total([self._sums.get((uid, gpu), Usage()), ended(usage)])
        self.gates[uid, gpu] = total_gate([self.gates.get((uid, gpu), GateStatistics()), gate])

    def sums(self) -> dict[tuple[int, int], Usage]:
        """All sums."""
        return dict(self._sums)

    def of(self, uid: int) -> Usage:
        """One tenant's sum over all GPUs."""
        return total(usage for (owner, _), usage in self._sums.items() if owner == uid)
