"""What was used, and what the gate did."""

from __future__ import annotations

from msgspec import Struct

from fikit.protocol.words import Bytes, Count, Identifier


class Usage(Struct, frozen=True, kw_only=True):
    """What a session, job or tenant has used so far. Times in nanoseconds of device time."""

    gpu_ns: Count = 0
    launches: Count = 0
    operations: Count = 0
    bytes_copied: Bytes = 0
    gate_wait_ns: Count = 0
    gate_waits: Count = 0
    memory_bytes: Bytes = 0
    memory_peak_bytes: Bytes = 0
    queued: Count = 0
    unsupported: dict[str, Count] = {}
    """Calls of the CUDA driver API that an unmodified program made and fikitd does not serve, by name."""


class GateStatistics(Struct, frozen=True, kw_only=True):
    """What the gate did for or because of a session since it was opened. Nanoseconds of device time.

    A session that the gate holds back has the first fields, and what begins with ``caused_``: interference
    and delays of others. One of the highest priority has those from ``steps`` on; interference and delays are
    what it suffered. One whose priority was changed may have both.
    """

    filled: Count = 0
    """Operations issued beside high-priority work, on the whole GPU; what they take is ``filled_ns``."""
    filled_ns: Count = 0
    confined: Count = 0
    """Likewise, confined to a part of the multiprocessors."""
    confined_ns: Count = 0
    refused: dict[str, Count] = {}
    """Operations that had to wait, by why: level, unknown, too_long, bound, in_flight."""
    steps: Count = 0
    """A step ends when the program waits for what it had issued."""
    step_ns: Count = 0
    """What one takes, at present."""
    bound_ns: Count = 0
    """On the delay of one step, at present."""
    over_bound: Count = 0
    """Steps that were delayed by more than that."""
    predicted: Count = 0
    """Launches whose time was predicted; ``met``: those that came as predicted."""
    met: Count = 0
    idle_ns: Count = 0
    """Nothing of it was on the GPU.

    ``idle_filled_ns``: of that, gated work of its executor was, whoever's, and on the whole GPU;
    ``idle_confined_ns``: some of it was confined to a part of the multiprocessors.
    """
    idle_filled_ns: Count = 0
    idle_confined_ns: Count = 0
    trust: float = 0.0
    """Share of that and of the bound that is used for others at present: less after steps over the bound."""
    beside_ns: Count = 0
    """What its kernels take that ran beside gated work.

    ``slowed_ns``: what they took beyond that and the waits that were foreseen.
    """
    slowed_ns: Count = 0
    delays: Count = 0
    delay_ns: Count = 0
    worst_delay_ns: Count = 0
    delayed_by: Identifier | None = None
    """The session that caused the worst delay."""
    caused_beside_ns: Count = 0
    """The same of high-priority kernels of other sessions, beside its own work."""
    caused_slowed_ns: Count = 0
    caused_delays: Count = 0
    caused_delay_ns: Count = 0
    caused_worst_delay_ns: Count = 0
    measured: Count = 0
    """Operations measured by timing events, which add ``measuring_ns`` in all: some launches, and all that a
    trace records."""
    measuring_ns: Count = 0
