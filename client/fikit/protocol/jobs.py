"""Jobs: submitted, listed, waited for, their output."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from fikit.protocol.usage import Usage
from fikit.protocol.words import Bytes, Count, GpuUuid, Identifier, Level, Name, Reply, Request


class JobRecord(Struct, frozen=True, kw_only=True):
    """One submitted command."""

    job: Identifier
    tenant: str
    uid: int
    name: str
    command: list[str]
    """Of one of more than 2000 characters that many, and ``...`` behind them."""
    directory: str
    priority: Level
    gpus: list[int]
    """In the order in which its programs see them; empty while the daemon has not chosen."""
    memory_limit_bytes: Bytes
    """On each of them."""
    isolated: bool
    state: Literal["queued", "running", "paused", "finished", "failed", "killed", "lost"]
    pid: int | None
    exit_code: int | None
    """The command's own code; 128 + signal when a signal ended it."""
    reason: str
    """Why it is queued, failed, killed or lost, or what became of a session of its: refused, or lost."""
    submitted_unix: float
    started_unix: float | None
    ended_unix: float | None
    sessions: list[Identifier]
    """Those that live, and the latest of those that are over."""
    usage: Usage


class Submit(Request, tag="submit", frozen=True):
    """Run a command as a job, once there is room for it.

    With ``foreground`` the caller starts the process itself: the daemon answers when it is admitted
    and the caller reports with ``JobStarted``; the job ends with the connection, and under a later daemon
    with the process that had it.
    """

    command: Annotated[list[Annotated[str, Meta(max_length=131072)]], Meta(min_length=1, max_length=1 << 20)]
    environment: Annotated[dict[str, str], Meta(max_length=1 << 16)]
    directory: str
    priority: Level | None = None
    """None: normal, or the highest that the tenant may ask for."""
    gpus: Annotated[list[Count | GpuUuid], Meta(max_length=16)] | Literal["all"] = field(default_factory=list)
    """Which, by index or how the UUID begins, in the order in which its programs are to see them; none: one
    that the daemon chooses."""
    memory_limit_bytes: Bytes = 0
    """On each of them."""
    name: Name | None = None
    isolated: bool = False
    foreground: bool = False
    output_limit_bytes: Bytes = 0
    """0: the configured limit."""
    umask: Annotated[int, Meta(ge=0, le=0o777)] = 0o022
    """What new files of a background job lack."""
    measured: bool = False
    """Measure every launch of its sessions, at some cost to each."""


class JobStarted(Request, tag="job_started", frozen=True):
    """A foreground job's process runs."""

    job: Identifier
    pid: Annotated[int, Meta(ge=1)]


class JobFinished(Request, tag="job_finished", frozen=True):
    """A foreground job's process has ended."""

    job: Identifier
    exit_code: Annotated[int, Meta(ge=0, le=255)]


class Submitted(Reply, tag="submitted", frozen=True):
    """The job, and for a foreground job the environment its process must have."""

    job: JobRecord
    environment: dict[str, str] = field(default_factory=dict)


class ListJobs(Request, tag="list_jobs", frozen=True):
    """The jobs the peer may see, in the order of their numbers; ``ended`` includes those that are over."""

    ended: bool = True
    after: Identifier | None = None
    """Those that were submitted after this one, which may be forgotten by now."""


class Jobs(Reply, tag="jobs", frozen=True):
    """Answer to ``ListJobs``; ``more``: these had room, others come after the last of them."""

    jobs: list[JobRecord]
    more: bool = False


class ReadLogs(Request, tag="read_logs", frozen=True):
    """A piece of a job's output from ``offset``; with ``follow``, wait up to ``wait_ms`` for more."""

    job: Identifier
    stream: Literal["stdout", "stderr"] = "stdout"
    offset: Bytes = 0
    follow: bool = False
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 10_000


class Logs(Reply, tag="logs", frozen=True):
    """``offset``: where the next piece begins; ``end``: this was the last, and the job is over."""

    data: bytes
    offset: Bytes
    end: bool
    truncated: bool


class Wait(Request, tag="wait", frozen=True):
    """Answer when the job has ended, or after ``wait_ms``."""

    job: Identifier
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 60_000


class Waited(Reply, tag="waited", frozen=True):
    """The job as it is now; look at its state."""

    job: JobRecord
