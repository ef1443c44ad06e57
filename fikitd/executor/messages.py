"""What the daemon says to an executor, and hears from it. Framing and envelope as in fikit.protocol.

An executor listens on a Unix socket of its own (so that a restarted daemon finds it again); one daemon
connection at a time, the newest wins. Descriptors travel beside the frame that mentions them. Events have
id 0. All times are nanoseconds of device time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fikit.protocol import (
    Bytes,
    Count,
    Failure,
    GateStatistics,
    Identifier,
    KernelProfile,
    Level,
    Name,
    TraceOperation,
    Usage,
)
from msgspec import Struct, convert, to_builtins

DEINITIALIZED: Final = 4
"""CUDA_ERROR_DEINITIALIZED: what a session ends with that its own process, or a clean stop, has closed."""


class Start(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="kebab"):
    """What it is started with, as ``--name value`` each."""

    executor: Identifier
    """Its name."""
    daemon: int
    """Who starts it."""
    gpu: int
    """The daemon's number of the GPU."""
    device: int
    """The driver's number of the GPU."""
    domain: str
    """The trust domain."""
    socket: str
    """Where to listen for the daemon."""
    uuid: str = ""
    """The GPU, whatever its numbers."""
    time_scale: float = 1.0
    """Host seconds per device second."""
    board: str = ""
    """The file that this GPU's executors share."""
    ledger: str = ""
    """The file that this tenant's executors on this GPU share."""
    host_ledger: str = ""
    """The file that all of this tenant's executors share."""
    settings: str = "{}"
    """Scheduling settings, as JSON."""

    def arguments(self) -> list[str]:
        """On the command line."""
        return [part for name, value in to_builtins(self).items() for part in (f"--{name}", str(value))]

    @classmethod
    def of(cls, arguments: Sequence[str]) -> Start:
        """From the command line. Raises ValidationError."""
        pairs = zip(arguments[::2], arguments[1::2], strict=False)  # what was cut off at the end is missed
        named = {name.removeprefix("--"): value for name, value in pairs}
        return convert(named, cls, strict=False)


class Ask(Struct, tag_field="type", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What the daemon sends."""


class Answer(Struct, tag_field="type", frozen=True, kw_only=True):
    """What the executor answers."""


class Describe(Ask, tag="describe", frozen=True):
    """Who are you? The first request of a connection."""


class Description(Answer, tag="description", frozen=True):
    """The executor and its device."""

    executor: Identifier
    pid: int
    gpu: int
    domain: str
    """The trust domain: ``uid-1000``, or ``job-...`` for an isolated one."""
    device_name: str
    memory_bytes: Bytes
    time_scale: float
    policy: str = ""
    uuid: str = ""
    """Of the GPU that it was started for; none: by a daemon that did not say."""
    release: str = ""
    """Of fikitd, that it was started of; none: of one that did not say."""


class Attach(Ask, tag="attach", frozen=True):
    """Open a session. Beside it: the executor's end of the lifeline, a pidfd of the tenant."""

    session: Identifier
    tenant: str
    uid: int
    pid: int
    name: Name
    job: Identifier | None
    priority: Level
    weight: float
    memory_limit_bytes: Bytes
    tenant_limit_bytes: Bytes = 0
    """For all sessions of the tenant on this GPU together, whichever executor has them; 0: none."""
    unmodified: bool = False
    """Its program makes CUDA's own calls."""


class Attached(Answer, tag="attached", frozen=True):
    """Descriptors beside it: outbox, inbox."""


class End(Ask, tag="end", frozen=True):
    """End a session, free what it holds; its process gets ``error`` (a CUresult) and ``reason``."""

    session: Identifier
    error: int
    reason: str


class Change(Ask, tag="change", frozen=True):
    """Change what is not None."""

    session: Identifier
    priority: Level | None = None
    weight: float | None = None
    paused: bool | None = None
    measured: bool | None = None
    """Measure every launch, instead of a sample."""


class ListAttached(Ask, tag="list_attached", frozen=True):
    """Every session and its usage; also the heartbeat."""


class AttachedSession(Struct, frozen=True, kw_only=True):
    """A session as its executor knows it: enough for a restarted daemon to take it over."""

    session: Identifier
    tenant: str
    uid: int
    pid: int
    name: str
    job: str | None
    priority: Level
    weight: float
    paused: bool
    memory_limit_bytes: Bytes
    host_functions: Count = 0
    call_ns: Count = 0
    overdue_ns: Count = 0
    usage: Usage
    gate: GateStatistics = GateStatistics()


class AttachedSessions(Answer, tag="attached_sessions", frozen=True):
    """Answer to ``ListAttached``."""

    sessions: list[AttachedSession]
    busy_ns: Count
    """Time during which any work was in flight."""
    ending: list[str] = []
    """Sessions that are over, whose end is still to be told."""
    outlived: str = ""
    """By its work: the one of them whose step is the oldest in flight."""
    keeping: Count = 0
    """Programs whose sessions are over and that have pinned memory yet, which counts here."""

    @property
    def serves(self) -> bool:
        """Whether it must live."""
        return bool(self.sessions) or self.keeping > 0


class ReadMemory(Ask, tag="read_memory", frozen=True):
    """What is left of a limit of which ``used_bytes`` are used, as cuMemGetInfo tells a session."""

    limit_bytes: Bytes
    used_bytes: Bytes


class MemoryLeft(Answer, tag="memory_left", frozen=True):
    """Answer to ``ReadMemory``: no more than the GPU has, and has free now."""

    free_bytes: Bytes
    total_bytes: Bytes


class TraceControl(Ask, tag="trace_control", frozen=True):
    """Start or stop recording operations with device timestamps."""

    on: bool


class Tracing(Answer, tag="tracing", frozen=True):
    """Answer to ``TraceControl``: the cursor of what is recorded next."""

    cursor: Count


class ReadTrace(Ask, tag="read_trace", frozen=True):
    """What was recorded from ``cursor`` on, at most ``limit`` operations; others may read the same."""

    cursor: Count
    limit: Count


class Traced(Answer, tag="traced", frozen=True):
    """Answer to ``ReadTrace``: ``cursor`` is that of the next, ``dropped`` what was overwritten before.

    ``more``: of those that were asked for, these had room.
    """

    operations: list[TraceOperation]
    cursor: Count
    dropped: Count
    more: bool = False


class TakeProfiles(Ask, tag="take_profiles", frozen=True):
    """Entries that changed since they were last taken."""


class LoadProfiles(Ask, tag="load_profiles", frozen=True):
    """Take over what earlier executors on this device model learnt."""

    profiles: list[KernelProfile]


class ProfilesTaken(Answer, tag="profiles_taken", frozen=True):
    """Answer to ``TakeProfiles``; ``more``: there are others, to be taken next."""

    profiles: list[KernelProfile]
    more: bool = False


class ForgetProfiles(Ask, tag="forget_profiles", frozen=True):
    """Forget all entries."""


class Stop(Ask, tag="stop", frozen=True):
    """End every session and exit."""

    reason: str


class Ok(Answer, tag="ok", frozen=True):
    """It was done."""


class SessionEnded(Answer, tag="session_ended", frozen=True):
    """Event: a session is over: closed, its process ended, or it broke a rule (``reason``)."""

    session: Identifier
    error: int
    reason: str
    usage: Usage
    gate: GateStatistics = GateStatistics()


class DeviceFailed(Answer, tag="device_failed", frozen=True):
    """Event: the context is lost (a sticky CUDA error); the executor exits after this."""

    error: int
    reason: str


AnyAsk = (
    Describe | Attach | End | Change | ListAttached | ReadMemory | TraceControl | ReadTrace | TakeProfiles
    | LoadProfiles | ForgetProfiles | Stop
)  # fmt: skip
AnyAnswer = (
    Description | Attached | AttachedSessions | MemoryLeft | Tracing | Traced | ProfilesTaken | Ok
    | SessionEnded | DeviceFailed | Failure
)  # fmt: skip
