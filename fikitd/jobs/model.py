"""A job: its record in the store, and which state may follow which.

The table below is the whole life of a job; every change goes through ``moved``.
"""

from __future__ import annotations

from typing import Final, Literal

from fikit.protocol import JobRecord, Usage
from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

State = Literal["queued", "running", "paused", "finished", "failed", "killed", "lost"]

TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    "queued": frozenset({"running", "failed", "killed"}),
    "running": frozenset({"paused", "finished", "failed", "killed", "lost"}),
    "paused": frozenset({"running", "finished", "failed", "killed", "lost"}),
    "finished": frozenset(),
    "failed": frozenset(),
    "killed": frozenset(),
    "lost": frozenset(),
}
UNSEEN: Final = 0
"""The kernel's pid of a peer whose PID namespace is not within ours (pid_namespaces(7))."""
ELSEWHERE: Final = "a PID namespace that the daemon does not see into"
_MOST_DIGITS: Final = 15
OVER: Final = frozenset(state for state, after in TRANSITIONS.items() if not after)


class Job(Struct, frozen=True, kw_only=True):
    """A submitted command, as it is stored. Immutable: a change is a new record."""

    number: int
    tenant: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    command: list[str]
    """As it is shown: the beginning of one that is very long."""
    directory: str
    priority: int
    gpu_asked: int | None
    gpus_asked: tuple[int, ...] = ()
    """Several that it is to have, in the order in which its programs see them."""
    gpu: int | None = None
    """Once it runs: its only one, or the first."""
    memory_limit_bytes: int = 0
    isolated: bool = False
    foreground: bool = False
    measured: bool = False
    output_limit_bytes: int = 0
    umask: int = 0o022
    written_bytes: int = 0
    """Of its command and environment, which lie on the disk."""
    state: State = "queued"
    pid: int | None = None
    pid_started: int | None = None
    """When ``pid`` began (``start_time``): with it, the identity of the job's process."""
    caller: int | None = None
    caller_started: int | None = None
    """The same of who started a foreground job, with whom it ends."""
    kill_asked: bool = False
    exit_code: int | None = None
    reason: str = ""
    submitted_unix: float = 0.0
    started_unix: float | None = None
    ended_unix: float | None = None
    ended_as: int = 0
    """The how-manieth it was to end, which no clock decides; of those that an older daemon saw end: 0."""
    sessions: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    """Those of them whose accounts are in ``usage``."""
    usage: Usage = Usage()

    @property
    def job(self) -> str:
        """Its identifier."""
        return f"job-{self.number}"

    @property
    def gpus(self) -> tuple[int, ...]:
        """What it has or asks for, in its own order; empty while the daemon is to choose."""
        one = self.gpu_asked if self.gpu is None else self.gpu
        return self.gpus_asked or (() if one is None else (one,))

    @property
    def runs(self) -> bool:
        """Whether it has begun and is not over, though it may be paused."""
        return self.state in ("running", "paused")

    @property
    def over(self) -> bool:
        """Whether nothing can follow."""
        return self.state in OVER

    def moved(self, state: State, **fields: object) -> Job:
        """The job in its next state."""
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"{self.job} cannot go from {self.state} to {state}")
        return replace(self, state=state, **fields)

    def record(self, usage: Usage) -> JobRecord:
        """As the protocol shows it, with the usage of living sessions included."""
        return JobRecord(
            job=self.job,
            tenant=self.tenant,
            uid=self.uid,
            name=self.name,
            command=self.command,
            directory=self.directory,
            priority=self.priority,
            gpus=list(self.gpus),
            memory_limit_bytes=self.memory_limit_bytes,
            isolated=self.isolated,
            state=self.state,
            pid=self.pid,
            exit_code=self.exit_code,
            reason=self.reason,
            submitted_unix=self.submitted_unix,
            started_unix=self.started_unix,
            ended_unix=self.ended_unix,
            sessions=list(self.sessions),
            usage=usage,
        )


def checked(job: Job, number: int) -> Job:
    """One that was read: a flipped bit may have made it what no client takes, and with it no list of jobs.

    Raises msgspec.ValidationError; ValueError where it is another's.
    """
    convert(to_builtins(job.record(job.usage)), JobRecord)
    if job.number != number:
        raise ValueError(f"it is that of {job.job}")
    return job


def job_number(job: str) -> int | None:
    """The number in a job's identifier; None when it is none, as one that leaves none for later jobs."""
    kind, _, number = job.partition("-")
    whole = kind == "job" and number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
    return int(number) if whole else None
