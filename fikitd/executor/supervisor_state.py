"""One executor as the daemon sees it, and what the daemon asks of it.

Life: starting -> serving -> (stopping ->) over. Only a serving executor is given sessions. A connection that
breaks while the process lives is made anew; the end of the process (its pidfd) is what ends an executor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

import trio

from fikitd import __version__
from fikitd.configuration import ExecutorSection
from fikitd.device import DeviceSpec
from fikitd.errors import QuotaReached, Unavailable
from fikitd.executor.connection import ExecutorConnection, Kind, Silent
from fikitd.executor.messages import (
    Ask,
    AttachedSessions,
    Describe,
    Description,
    ListAttached,
    SessionEnded,
)
from fikitd.placement import places_for
from fikitd.process_times import processor_waits
from fikitd.processes import Process
from fikitd.quote import quoted

ASK_SECONDS: Final = 10.0
STARVED_SHARE: Final = 0.5
"""Of the time that it is silent for: who waits as long for a processor does not hang."""
PASSING_SECONDS: Final = 1.0
"""Work of a session that is over usually ends within."""


class Starved(Unavailable):
    """The executor did not answer in time, most of which it waited for a processor, or may have waited."""


@dataclass(eq=False)
class Executor:
    """A process that holds one CUDA context on one GPU, for one trust domain."""

    executor: str
    device: DeviceSpec
    domain: str
    uid: int | None
    """Whose trust domain it is."""
    socket: Path
    log: Path
    state: Literal["starting", "serving", "failed", "stopping", "over"] = "starting"
    process: Process | None = None
    connection: ExecutorConnection | None = None
    description: Description | None = None
    heartbeat: AttachedSessions | None = None
    adopted: bool = False
    """An earlier daemon started it."""
    busy_before_ns: int = 0
    """How long it had had work in flight under that one."""
    asked_at: float = field(default_factory=trio.current_time)
    """When it was asked for what it last answered, on trio's clock."""
    answered_at: float = field(default_factory=trio.current_time)
    """When it last answered, on trio's clock."""
    turns_by: float = math.inf
    """When its heartbeat loop turns again at the latest, answered or not: what the watchdog looks at."""
    idle_since: float = field(default_factory=trio.current_time)
    """When it was last known to have a session, or was given one."""
    attaching: int = 0
    """Sessions being attached now; keeps the executor from being stopped as idle."""
    unresponsive: bool = False
    outlived: str = ""
    """By its work: a session that is over, as the executor told last."""
    outlived_since: float = 0.0
    """On trio's clock."""
    outlived_told: bool = False
    """Whether that it lasted was told."""
    worked_ns: int = 0
    """GPU time of its sessions, as it told last."""
    worked_at: float = 0.0
    """When it last told of another: some of their work had ended."""
    ready: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)
    failure: str = ""
    """Why it is over."""

    @property
    def held(self) -> bool:
        """Whether such work goes on for longer than a kernel usually takes: no more sessions come here."""
        return self.outlived != "" and trio.current_time() - self.outlived_since >= PASSING_SECONDS

    def note_outlived(self, session: str) -> None:
        """Keep which session the executor tells to be over but for its work."""
        if session != self.outlived:
            self.outlived, self.outlived_since, self.outlived_told = session, trio.current_time(), False

    def note_work(self, gpu_ns: int) -> None:
        """Keep when work of its sessions last ended."""
        if gpu_ns != self.worked_ns:
            self.worked_ns, self.worked_at = gpu_ns, trio.current_time()

    @property
    def foreign(self) -> bool:
        """Of another release: it may not know how we ask, nor our clients its channels."""
        return self.adopted and self.description is not None and self.description.release != __version__

    @property
    def takes_sessions(self) -> bool:
        """Whether those of its trust domain come here."""
        return self.state in ("starting", "serving") and not (self.held or self.foreign)

    @property
    def idle(self) -> bool:
        """Whether it has nobody: what it said of sessions counts once it was asked after the latest came."""
        told = self.heartbeat is not None and not self.heartbeat.serves and self.asked_at > self.idle_since
        return told and self.state == "serving" and not self.attaching

    @property
    def busy_ns(self) -> int:
        """How long it has had work in flight under this daemon."""
        return 0 if self.heartbeat is None else self.heartbeat.busy_ns - self.busy_before_ns

    async def ask(self, body: Ask, kind: type[Kind], seconds: float = ASK_SECONDS) -> Kind:
        """Ask for something that comes without descriptors. Raises Unavailable."""
        answer, _ = await self.connected().ask(body, kind, seconds)
        return answer

    async def beat(self, settings: ExecutorSection) -> AttachedSessions:
        """Ask for its sessions. Raises Silent where it does not answer; Starved where it may be about to."""
        soon = min(settings.heartbeat_seconds, settings.unresponsive_seconds)
        with suppress(Silent):
            return await self.ask(ListAttached(), AttachedSessions, soon)
        return await self.ask_patiently(
            ListAttached(), AttachedSessions, settings.unresponsive_seconds - soon
        )

    async def ask_patiently(self, body: Ask, kind: type[Kind], seconds: float) -> Kind:
        """Ask what it must answer. Raises Silent where it does not; Starved where it may be about to."""
        pid = self.process.pid if self.process is not None else 0
        return await ask_patiently(self.connected(), pid, body, kind, seconds)

    def connected(self) -> ExecutorConnection:
        """Its connection. Raises Unavailable while it has none."""
        if self.connection is None:
            raise Unavailable(f"executor {self.executor} is {self.state}: {self.failure or 'not connected'}")
        return self.connection


def in_the_way(
    gpu: int, here: list[Executor], expected: Mapping[str, int], domain: str, uid: int, most: int
) -> Executor | None:
    """The idle executor that one of a trust domain would take the place of; None: there is a place.

    ``here``: those of a GPU, which may have ``most``. Who is ``expected`` (trust domains, and whose
    they are) has a place, and keeps the idle ones. Raises QuotaReached.
    """
    there = [each for each in here if each.state != "stopping"]
    has_one = uid in expected.values() or any(each.uid == uid for each in here)
    limit = places_for(has_one and domain not in expected, most)
    to_come = expected.keys() - {each.domain for each in there} - {domain}
    if len(there) + len(to_come) < limit:
        return None
    idle = [each for each in there if each.idle and each.domain not in expected]
    if not idle:
        rest = f" of at most {most}; the rest is kept for users without one"
        raise QuotaReached(
            f"GPU {gpu} already has {limit} executors" + (rest if limit < most else ", the most it may have"),
            "end isolated jobs or sessions, or wait until others end",
        )
    return min(idle, key=lambda each: each.idle_since)


async def ask_patiently(
    connection: ExecutorConnection, pid: int, body: Ask, kind: type[Kind], seconds: float
) -> Kind:
    """The answer. Raises Silent; Starved where one of its threads waits for a processor instead.

    So may any that we lack what it takes to look at, as a descriptor.
    """
    waits = _waits(pid)
    try:
        answer, _ = await connection.ask(body, kind, seconds)
    except Silent as silent:
        after = _waits(pid)
        if waits is None or after is None:
            raise Starved(silent.message) from None
        more = [now - waits.get(thread, now) for thread, now in after.items()]
        if max(more, default=0) > max(STARVED_SHARE * seconds * 1e9, 0):
            raise Starved(silent.message) from None
        raise
    return answer


def _waits(pid: int) -> dict[str, int] | None:
    with suppress(OSError):
        return processor_waits(pid)
    return None


async def described(
    connection: ExecutorConnection, seconds: float, silent: Callable[[Unavailable], None]
) -> Description | None:
    """What an executor of an earlier daemon says of itself; None: it does not answer.

    It is asked again as long as it waits for a processor.
    """
    description: Description | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run, lambda _: None)
        while True:
            try:
                description = await ask_patiently(
                    connection, connection.listener_pid, Describe(), Description, seconds
                )
            except Unavailable as refusal:
                silent(refusal)
                if isinstance(refusal, Starved):
                    continue
            nursery.cancel_scope.cancel()
            return description


@dataclass(frozen=True)
class FailedStart:
    """An executor has ended before it served anybody; or since, and no other has served."""

    reason: str
    tried_at: float
    """On trio's clock."""
    log: Path | None
    """Where it says why; None: it has served, and it may say what is its user's."""

    def told(self) -> str:
        """What the operator needs to know. Blocking."""
        return (
            f"failed: {self.reason}"
            if self.log is None
            else f"did not start: {self.reason}{quoted(self.log)}"
        )


class Listener(Protocol):
    """Who must know what becomes of executors and their sessions."""

    async def executor_serving(self, executor: Executor, attached: AttachedSessions) -> None:
        """It answers, and has these sessions: new, taken over, or met again after a broken connection."""

    async def executor_stopping(self, executor: Executor) -> None:
        """It serves nobody any more and will be told to end; it still answers."""

    def executor_beat(self, executor: Executor, attached: AttachedSessions) -> None:
        """It has answered its heartbeat."""

    def session_ended(self, executor: Executor, event: SessionEnded) -> None:
        """One of its sessions is over."""

    def executor_over(self, executor: Executor) -> None:
        """Its process has ended, and so have its sessions."""
