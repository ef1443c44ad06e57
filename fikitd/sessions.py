"""The sessions: opened, changed and ended here; lived in the executors.

The executors know best which sessions there are. What they do not know (when it was opened, what it
reserved) is in the store, written before the session is attached, so that a restarted daemon can put both
together. A session's usage goes to its tenant's account, and to its job's, once, when it ends.
"""

from __future__ import annotations

import math
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from fikit.protocol import EventKind, GateStatistics, Usage
from msgspec.structs import replace

from fikitd.errors import Unavailable
from fikitd.events import Events
from fikitd.executor import final_accounts
from fikitd.executor.connection import Ended
from fikitd.executor.messages import DEINITIALIZED, Attached, AttachedSessions, Change, End, SessionEnded
from fikitd.executor.supervisor import Supervisor
from fikitd.executor.supervisor_state import Executor
from fikitd.scarcity import in_thread, patiently
from fikitd.session import CONTEXT_DESTROYED, Opening, Session, SessionNote, new_session, taken_over
from fikitd.store import LOOK, Row, Store, pack
from fikitd.tenants.accounts import Accounts
from fikitd.wire import close_all

NOTE: Final = "INSERT OR REPLACE INTO sessions VALUES (?, ?)"
FORGET: Final = "DELETE FROM sessions WHERE session=?"
SUM: Final = "INSERT OR REPLACE INTO tenants VALUES (?, ?, ?)"
ATTACH_ATTEMPTS: Final = 3
BESIDE_START_SECONDS: Final = 30.0
"""That opening a session may take beside the start of an executor."""
REMEMBERED_SESSIONS: Final = 200
MISSED_BEATS: Final = 2
"""A session that this many heartbeats in a row do not list is over: its event was lost."""


class Sessions:
    """All living sessions, and the latest that are over. The supervisor's Listener."""

    def __init__(self, store: Store, accounts: Accounts, events: Events, left: Path) -> None:
        self._store = store
        self._left = left
        self._accounts = accounts
        self._events = events
        self._ended: OrderedDict[str, Session] = OrderedDict()
        self._forget: set[str] = set()
        self._notes: dict[str, SessionNote] = {}
        self.living: dict[str, Session] = {}
        self.opening: dict[str, Opening] = {}
        self.supervisor: Supervisor  # set once it is there: it has these sessions as its listener
        self.conform: Callable[[Session], Awaitable[None]]  # to its job: set once there are jobs
        self.weight_of: Callable[[Session], float] = lambda session: session.weight
        """As the configuration has it now."""
        self.on_opened: Callable[[Session], None] = lambda session: None
        self.on_lost: Callable[[str, str | None, str], None] = lambda session, job, reason: None
        """A session is over, and its program did not end it: its job, why."""
        self.on_closed: Callable[[str, str | None, Usage], None] = lambda session, job, usage: None
        """A session is over: its job, what it used."""
        self.on_room: Callable[[], None] = lambda: None
        """A session or an executor has ended, or one serves: jobs may have waited for it."""
        self.on_serving: list[Callable[[Executor], Awaitable[None]]] = []
        self.on_stopping: list[Callable[[Executor], Awaitable[None]]] = []

    async def load(self) -> None:
        """Read what an earlier daemon noted."""
        self._notes = dict(await self._store.records("SELECT session, record FROM sessions", SessionNote))

    def noted_owner(self, session: str) -> int | None:
        """The user of a session that an earlier daemon opened."""
        note = self._notes.get(session)
        return note.uid if note is not None else None

    async def settle(self) -> None:
        """Store the accounts. Raises Unavailable when the disk refuses.

        In one transaction: a session's note goes as the sums that hold its usage come.
        """
        gone = self._forget - self.living.keys() - self.opening.keys()
        statements: list[tuple[str, Row]] = [(FORGET, (session,)) for session in gone]
        statements += [(SUM, (*key, pack(usage))) for key, usage in self._accounts.sums().items()]
        for session in self.living.values():
            if session.note.usage != session.usage:
                session.note = replace(session.note, usage=session.usage)
                statements.append((NOTE, (session.session, pack(session.note))))
        await self._store.write(statements)
        self._forget -= gone
        for closed in gone:
            self._notes.pop(closed, None)
            await in_thread(final_accounts.remove, self._left, closed)

    async def close_left(self) -> None:
        """Close the accounts of sessions whose executors ended while no daemon ran; once, at start."""
        known = self._notes.keys() | self.living.keys() | self._forget
        await patiently(lambda: final_accounts.keep_only(self._left, known))
        for session, note in list(self._notes.items()):
            if note.executor not in self.supervisor.executors:
                await self._close(session, note, f"executor {note.executor} ended while no daemon ran")

    async def _close(self, session: str, note: SessionNote, unless_told: str = "") -> None:
        ended = await patiently(lambda: final_accounts.find(self._left, session))
        usage = note.usage if ended is None else ended.usage
        if note.uid is not None:
            beside = [each.usage for each in self.of(note.uid, note.gpu)]
            self._accounts.close(note.uid, note.gpu, usage, GateStatistics(), beside)
        self._forget.add(session)
        self._notes.pop(session)
        lost = unless_told if ended is None else "" if as_usual(ended.error) else ended.reason
        if lost:
            self.on_lost(session, note.job, lost)
        self.on_closed(session, note.job, usage)
        self.on_room()

    def of(self, uid: int, gpu: int | None = None) -> list[Session]:
        """A tenant's living sessions, on all GPUs or on one."""
        return [
            each
            for each in self.living.values()
            if each.uid == uid and gpu in (None, each.executor.device.index)
        ]

    def within(self, executor: Executor) -> list[Session]:
        """An executor's living sessions."""
        return [each for each in self.living.values() if each.executor is executor]

    def find(self, session: str) -> Session | None:
        """A living session, or one of the latest that are over."""
        return self.living.get(session) or self._ended.get(session)

    async def open(self, opening: Opening, tenant_pidfd: int) -> tuple[Session, list[int]]:
        """Attach a new session; the descriptors are for its process. Raises Unavailable, QuotaReached.

        Who asked is told before he gives up: an executor that is lost as it starts has a successor.
        """
        seconds = self.supervisor.start_seconds + BESIDE_START_SECONDS
        with trio.move_on_after(seconds):
            return await self._open(opening, tenant_pidfd)
        if opening.noting:
            raise Unavailable(f"the session was not noted in the state file within {seconds:g} s", LOOK)
        raise Unavailable(f"no executor took the session within {seconds:g} s", "try again later")

    async def _open(self, opening: Opening, tenant_pidfd: int) -> tuple[Session, list[int]]:
        self.opening[opening.session] = opening
        try:
            for left in reversed(range(ATTACH_ATTEMPTS)):
                async with self.supervisor.executor_for(
                    opening.device, opening.domain, opening.peer.uid
                ) as executor:
                    try:
                        session, descriptors = await self._open_in(executor, opening, tenant_pidfd)
                        break
                    except Unavailable as refusal:
                        # It was lost just before, or under our hands: its successor serves new sessions.
                        lost = isinstance(refusal, Ended) or executor.connection is None
                        if left == 0 or (executor.state == "serving" and not lost):
                            raise
                        if executor.state == "serving":
                            executor.state = "failed"
        finally:
            del self.opening[opening.session]
        self._tell("session_opened", session, pid=session.pid, priority=session.priority)
        self.on_opened(session)
        try:
            await self.conform(session)
            await self.set_weight(session)
            if opening.measured:
                await session.ask(Change(session=session.session, measured=True))
        except BaseException:
            close_all(descriptors)  # which ends it
            raise
        return session, descriptors

    async def _open_in(
        self, executor: Executor, opening: Opening, tenant_pidfd: int
    ) -> tuple[Session, list[int]]:
        session = new_session(opening, executor)
        opening.noting = True
        await self._store.write([(NOTE, (session.session, pack(session.note)))])
        self._forget.add(session.session)
        await trio.lowlevel.checkpoint_if_cancelled()  # a write is not given up
        opening.noting = False
        descriptors = await self._attach(session, tenant_pidfd)
        if executor.state != "serving":
            close_all(descriptors)
            raise Ended
        self._forget.discard(session.session)
        self.living[session.session] = session
        return session, descriptors

    async def _attach(self, session: Session, tenant_pidfd: int) -> list[int]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours:
            with theirs:
                handed = [theirs.fileno(), tenant_pidfd]
                connection = session.executor.connected()
                try:
                    # As long as who asked waits: one that hangs is ended by its heartbeat.
                    _, memories = await connection.ask(session.attach(), Attached, math.inf, handed)
                except Unavailable:
                    await self._disown(session)
                    raise
            return [*memories, ours.detach()]

    async def _disown(self, session: Session) -> None:
        """The executor may have attached it after the deadline: nobody will ever use it."""
        with suppress(Unavailable):
            await session.ask(End(session=session.session, error=CONTEXT_DESTROYED, reason="not opened"))

    async def set_paused(self, session: Session, wanted: Callable[[], bool]) -> None:
        """Issue nothing more of it, or undo that: as it is wanted when its turn comes.

        Its executor is asked though it should be so already: who asked last may not have heard the answer.
        """
        async with session.changing:
            paused = wanted()
            if session.state in ("running", "paused"):
                await session.ask(Change(session=session.session, paused=paused))
                changed = session.state == ("running" if paused else "paused")
                if changed and session.session in self.living:
                    session.state = "paused" if paused else "running"
                    self._tell("session_paused" if paused else "session_resumed", session)

    async def set_priority(self, session: Session, wanted: Callable[[], int]) -> None:
        """From its next operation on."""
        async with session.changing:
            if session.state in ("running", "paused"):
                priority = wanted()
                await session.ask(Change(session=session.session, priority=priority))
                session.priority = priority
                self._tell("session_priority", session, priority=priority)

    async def set_weight(self, session: Session) -> None:
        """From its next operation on, what its tenant has now. Raises Unavailable."""
        async with session.changing:
            if (weight := self.weight_of(session)) != session.weight:
                await session.ask(Change(session=session.session, weight=weight))
                session.weight = weight

    async def set_weights(self, executor: Executor | None = None) -> None:
        """Of all, or of one executor's: they were opened under another configuration."""

        async def set_one(session: Session) -> None:
            with suppress(Unavailable):  # its executor is gone, and it with it
                await self.set_weight(session)

        async with trio.open_nursery() as nursery:
            for session in self.living.values():
                if executor in (None, session.executor):
                    nursery.start_soon(set_one, session)

    async def end(self, session: Session, reason: str) -> None:
        """End it and free what it holds; its process gets an error and the reason."""
        await session.ask(End(session=session.session, error=CONTEXT_DESTROYED, reason=reason))

    # --- what the supervisor tells ---------------------------------------------------------------

    async def executor_serving(self, executor: Executor, attached: AttachedSessions) -> None:
        """Take over the sessions that we do not know; those it no longer has are over."""
        there = {each.session for each in attached.sessions}
        for each in attached.sessions:
            if each.session not in self.living and each.session not in self.opening:
                session = taken_over(each, executor, self._notes.pop(each.session, None))
                self.living[each.session] = session
                self._tell("session_taken_over", session, pid=session.pid)
                self.on_opened(session)
        for session in self.within(executor):
            if session.session not in there and session.session not in attached.ending:
                left = await patiently(partial(final_accounts.find, self._left, session.session))
                reason, error = "ended while the daemon was not connected", 0
                if left is not None:
                    session.usage, session.gate = left.usage, left.gate
                    reason, error = left.reason, left.error
                self._over(session, reason, error)
        for ended, note in list(self._notes.items()):
            if note.executor == executor.executor:
                await self._close(ended, note)
        self.executor_beat(executor, attached)
        await self.set_weights(executor)
        self.on_room()
        for tell in self.on_serving:
            await tell(executor)

    async def executor_stopping(self, executor: Executor) -> None:
        """Whoever wants something of it asks now."""
        for tell in self.on_stopping:
            await tell(executor)

    def executor_beat(self, executor: Executor, attached: AttachedSessions) -> None:
        """Keep the latest usage; notice sessions whose end we were not told."""
        listed = {each.session: each for each in attached.sessions}
        for session in self.within(executor):
            if (now := listed.get(session.session)) is not None:
                session.usage, session.gate, session.usage_unix = now.usage, now.gate, time.time()
                session.host_functions, session.call_ns = now.host_functions, now.call_ns
                session.overdue_ns, session.missed = now.overdue_ns, 0
                continue
            if session.session in attached.ending:
                session.state, session.host_functions, session.call_ns = "ending", 0, 0
                session.overdue_ns = session.missed = 0
                continue
            session.missed += 1
            if session.missed >= MISSED_BEATS:
                self._over(session, "its executor no longer has it", 0)

    def session_ended(self, executor: Executor, event: SessionEnded) -> None:
        """One is over; not one that its successor was given meanwhile, as this one attached it too late."""
        session = self.living.get(event.session)
        if session is not None and session.executor is executor:
            session.usage, session.gate = event.usage, event.gate
            self._over(session, event.reason, event.error)

    def executor_over(self, executor: Executor) -> None:
        """All of its sessions are over."""
        for session in self.within(executor):
            self._over(session, f"executor {executor.executor}: {executor.failure}", CONTEXT_DESTROYED)
        self._accounts.busy_ns[executor.uid, executor.device.index] += executor.busy_ns
        self.on_room()

    def _over(self, session: Session, reason: str, error: int) -> None:
        del self.living[session.session]
        session.state = "ended"
        session.usage = replace(session.usage, memory_bytes=0, queued=0)
        uid, gpu = session.uid, session.executor.device.index
        beside = [each.usage for each in self.of(uid, gpu)]
        self._accounts.close(uid, gpu, session.usage, session.gate_counted, beside)
        self._forget.add(session.session)
        self._ended[session.session] = session
        while len(self._ended) > REMEMBERED_SESSIONS:
            self._ended.popitem(last=False)
        lost = not as_usual(error)
        session.reason = reason if lost else ""
        failed = {"error": error, "warning": True} if lost else {}
        self._tell("session_ended", session, reason=reason, **failed)
        if lost:
            self.on_lost(session.session, session.job, reason)
        self.on_closed(session.session, session.job, session.usage)
        self.on_room()

    def _tell(self, kind: EventKind, session: Session, **detail: Any) -> None:
        self._events.tell(
            kind,
            uid=session.uid,
            tenant=session.tenant,
            job=session.job,
            session=session.session,
            gpu=session.executor.device.index,
            **detail,
        )


def as_usual(error: int) -> bool:
    """Whether a session that ended so did by its program's doing."""
    return error in (0, DEINITIALIZED)
