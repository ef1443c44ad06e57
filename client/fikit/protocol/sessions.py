"""Sessions: opened, listed, explained."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from fikit.protocol.usage import GateStatistics, Usage
from fikit.protocol.words import Bytes, Count, GpuUuid, Identifier, Level, Name, Reply, Request


class SessionRecord(Struct, frozen=True, kw_only=True):
    """One connected process."""

    session: Identifier
    tenant: str
    uid: int
    pid: int
    name: str
    priority: Level
    gpu: int
    executor: str
    isolated: bool
    job: str | None
    state: Literal["running", "paused", "ending", "ended"]
    """``ending``: it is over, and its work on the GPU, or the freeing of what it held, goes on."""
    memory_limit_bytes: Bytes
    opened_unix: float
    host_functions: Count = 0
    """Its streams that wait for a host function to return."""
    call_ns: Count = 0
    """So long a call of it has waited for the driver, which loads code once no kernel runs there."""
    overdue_ns: Count = 0
    """So long none of its work on the GPU has ended, though some should have."""
    usage: Usage
    usage_unix: float = 0.0
    """When its usage was that: executors tell with each heartbeat."""
    reason: str = ""
    """Why it ended; empty where its program ended it."""


class OpenSession(Request, tag="open_session", frozen=True):
    """Open a session for this connection's process. ``memory_limit_bytes`` 0: the tenant's own limit.

    ``gpu`` is a GPU's index, or how its UUID begins. With ``job`` the job's priority, memory limit and
    isolation hold, whatever is asked for here, and ``gpu`` is one of the job's.
    """

    name: Name
    priority: Level | None = None
    """None: normal, or the highest that the tenant may ask for."""
    gpu: int | GpuUuid | None = None
    memory_limit_bytes: Bytes = 0
    isolated: bool = False
    job: Identifier | None = None
    unmodified: bool = False
    """The program makes CUDA's own calls: natively each launch would take its time."""


class SessionOpened(Reply, tag="session_opened", frozen=True):
    """Descriptors beside it: outbox, inbox, lifeline (see shim/abi.h)."""

    session: Identifier
    gpu: int
    device_name: str
    time_scale: float
    priority: Level
    memory_limit_bytes: Bytes
    nvidia_driver: bool = False
    """The NVIDIA driver of the peer's own process knows this GPU too."""


class ListSessions(Request, tag="list_sessions", frozen=True):
    """The sessions the peer may see."""


class Sessions(Reply, tag="sessions", frozen=True):
    """Answer to ``ListSessions``."""

    sessions: list[SessionRecord]


class Explain(Request, tag="explain", frozen=True):
    """How the gate treated a session, and those that share its executor."""

    session: Identifier


class Gated(Struct, frozen=True, kw_only=True):
    """A session, and what the gate did."""

    session: SessionRecord
    gate: GateStatistics


class Explained(Reply, tag="explained", frozen=True):
    """Answer to ``Explain``. ``beside``: the sessions that live in the same executor."""

    policy: str
    gated: Gated
    beside: list[Gated]
