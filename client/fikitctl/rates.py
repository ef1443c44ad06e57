"""What sessions use at present, from looking at the daemon again and again. Pure: records in, rates out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fikit.protocol import SessionRecord, Usage


class Rate(NamedTuple):
    """What one session uses at present."""

    session: SessionRecord
    gpu_share: float
    """Device time per host time, as a part of what a device gives in that time. Of operations that run side
    by side each counts, so it may exceed 1."""
    launches_per_second: float
    gate_share: float
    """Part of the time that its operations, added up, waited at the gate; may exceed 1."""


def rates(
    before: Mapping[str, Rate], sessions: Iterable[SessionRecord], time_scale: Mapping[int, float]
) -> list[Rate]:
    """The sessions, the busiest first.

    What they used is told once a heartbeat, whenever one looks. A session of which nothing newer is known has
    the rates that it had; one that was not there before, those since it was opened.
    """
    found = []
    for session in sessions:
        earlier = before.get(session.session)
        used, then = Usage(), session.opened_unix
        if earlier is not None:
            used, then = earlier.session.usage, earlier.session.usage_unix
        seconds = session.usage_unix - then
        if seconds <= 0:
            known = earlier or Rate(session, 0.0, 0.0, 0.0)
            found.append(known._replace(session=session))
            continue
        device_ns = seconds * 1e9 / time_scale.get(session.gpu, 1.0)
        found.append(
            Rate(
                session,
                max(0, session.usage.gpu_ns - used.gpu_ns) / device_ns,
                max(0, session.usage.launches - used.launches) / seconds,
                max(0, session.usage.gate_wait_ns - used.gate_wait_ns) / device_ns,
            )
        )
    return sorted(found, key=lambda rate: (-rate.gpu_share, rate.session.priority, rate.session.session))
