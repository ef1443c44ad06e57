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
    """Field by field the sum of what is used at the same time; of the memory peaks that is an upper bound."""
    sums: dict[str, Any] = dict.fromkeys(NUMBERS, 0)
    unsupported: dict[str, int] = {}
    for part in parts:
        for name in sums:
            sums[name] += getattr(part, name)
        for name, count in part.unsupported.items():
            if name in unsupported or len(unsupported) < MOST_NAMES:
                unsupported[name] = unsupported.get(name, 0) + count
    return Usage(**sums, unsupported=unsupported)


def whole(over: Usage, living: Iterable[Usage]) -> Usage:
    """What sessions that are over and sessions that live have used; the peak is the higher of theirs."""
    now = total(living)
    peak = max(over.memory_peak_bytes, now.memory_peak_bytes)
    return replace(total([over, now]), memory_peak_bytes=peak)


def closed(over: Usage, session: Usage, living: Iterable[Usage]) -> Usage:
    """What sessions that are over have used, one more among them: nothing of it is in use or queued.

    The peak is no longer a sum over all there ever were. Of those that had memory when most was used the
    first to end found the others alive, so what they and it had at most bounds the peak.
    """
    ended = replace(session, **dict.fromkeys(GAUGES, 0))
    peak = max(over.memory_peak_bytes, total([session, *living]).memory_peak_bytes)
    return replace(total([over, ended]), memory_peak_bytes=peak)


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

    def close(
        self, uid: int, gpu: int, usage: Usage, gate: GateStatistics, living: Iterable[Usage] = ()
    ) -> None:
        """A session of this tenant on this GPU is over, beside others that live."""
        nameless = replace(usage, unsupported={})
        self._sums[uid, gpu] = closed(self._sums.get((uid, gpu), Usage()), nameless, living)
        self.gates[uid, gpu] = total_gate([self.gates.get((uid, gpu), GateStatistics()), gate])

    def sums(self) -> dict[tuple[int, int], Usage]:
        """All sums."""
        return dict(self._sums)

    def of(self, uid: int, living: Iterable[tuple[int, Usage]] = ()) -> Usage:
        """What one tenant has used over all GPUs; ``living``: its sessions, each with its GPU."""
        parts: dict[int, list[Usage]] = {gpu: [] for owner, gpu in self._sums if owner == uid}
        for gpu, usage in living:
            parts.setdefault(gpu, []).append(usage)
        return total(whole(self._sums.get((uid, gpu), Usage()), each) for gpu, each in parts.items())
