"""Operations, recorded."""

from __future__ import annotations

from msgspec import Struct, field

from fikit.protocol.words import Count, Reply, Request


class StartTrace(Request, tag="start_trace", frozen=True):
    """Record operations of a GPU (all of the peer's sessions there) with device timestamps.

    The trace belongs to the connection and ends with it; others that run meanwhile see the same operations.
    """

    gpu: int = 0


class ReadTrace(Request, tag="read_trace", frozen=True):
    """What was recorded since ``StartTrace`` or the last ``ReadTrace``; ``stop`` ends the recording."""

    gpu: int = 0
    stop: bool = True


class TraceOperation(Struct, frozen=True, array_like=True):
    """One recorded operation. Times in nanoseconds of one device clock; 0 where unknown."""

    session: str
    stream: int
    kind: str
    name: str
    arrived_ns: int
    issued_ns: int
    started_ns: int
    ended_ns: int
    bytes: int
    blocks: int
    partition: int
    """Multiprocessors it was confined to; 0: the whole GPU."""


class Trace(Reply, tag="trace", frozen=True):
    """``dropped`` operations did not fit in the ring buffer."""

    operations: list[TraceOperation]
    dropped: Count
    more: bool = False
    """There may be more to read already, even of a recording that has ended."""
    missing: list[str] = field(default_factory=list)
    """Executors that have ended, or did not answer: what they recorded since the last reading is not here."""
