"""What happened between two looks at the daemon. Pure: records in, rates out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fikit.protocol import SessionRecord, Usage


class Rate(NamedTuple):
    """One session between two looks."""

    session: SessionRecord
    gpu_share: float
    """Device time per host time, as a part of what a device gives in that time; 0 to 1 for one GPU."""
    launches_per_second: float
    gate_share: float
    """Part of the time that its operations, added up, waited at the gate; may exceed 1."""


def rates(
    before: Mapping[str, Usage],
    sessions: Iterable[SessionRecord],
    seconds: float,
    time_scale: Mapping[int, float],
) -> list[Rate]:
    """The sessions, the busiest first. A session that was not there before counts from zero."""
    found = []
    for session in sessions:
        earlier = before.get(session.session, Usage())
        device_ns = seconds * 1e9 / time_scale.get(session.gpu, 1.0)
        found.append(
            Rate(
                session,
                max(0, session.usage.gpu_ns - earlier.gpu_ns) / device_ns,
                max(0, session.usage.launches - earlier.launches) / seconds,
                max(0, session.usage.gate_wait_ns - earlier.gate_wait_ns) / device_ns,
            )
        )
    return sorted(found, key=lambda rate: (-rate.gpu_share, rate.session.priority, rate.session.session))
