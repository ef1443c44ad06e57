"""The executor process: listens for the daemon, hands descriptors and wishes to the core, tells what ended.

It needs no daemon: sessions go on while none is connected, and the next one finds everything in
ListAttached. It ends when it is told to, when the context is lost, or when it has had neither a daemon nor
a session for a while.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import trio
from fikit.protocol import Failure, InvalidBody, KernelProfile, ProtocolError, encode, portions

from fikitd.directories import RUNTIME_LOCK
from fikitd.executor import final_accounts
from fikitd.executor import messages as m
from fikitd.executor.core import DispatchCore
from fikitd.executor.set_up import SetUpFailed
from fikitd.record_lock import holder
from fikitd.scarcity import PAUSE_SECONDS, in_thread
from fikitd.wire import PeerClosedError, Wire, close_all

LONELY_SECONDS: Final = 60.0
"""Without a daemon and without a session an executor ends after this long."""
PRINTED_SECONDS: Final = 1.0
"""Kernels may print as fast as the driver writes, whether or not somebody takes it."""
REFUSALS: Final = (RuntimeError, MemoryError)
"""Of the core. Where memory is short an ask fails, or its connection does: sessions need none of it."""
log = structlog.get_logger()


class Refused(Exception):
    """The daemon asked for something that cannot be done; the message says why."""


def listen(path: Path, daemon: int) -> socket.socket:
    """Where daemons ask. Before anything that takes long: one that follows finds who listens as it starts.

    Raises SetUpFailed where one may have looked before: nobody would ever ask here.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(os.fspath(path))
    except OSError as error:
        listening.close()
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None
    path.chmod(0o600)
    listening.listen(4)
    if holder(path.with_name(RUNTIME_LOCK)) not in (None, daemon):
        path.unlink(missing_ok=True)
        raise SetUpFailed("another daemon has followed the one that started it")
    return listening


class ExecutorProcess:
    """One executor: a core, the sessions' names, and at most one daemon connection."""

    def __init__(self, core: DispatchCore, description: m.Description) -> None:
        self._core = core
        self._description = description
        self._attached: dict[str, m.Attach] = {}
        self._learnt: list[KernelProfile] = []
        """Taken from the core and not yet told, as it did not fit."""
        self._traced = False
        self._wire: Wire | None = None
        self._sending = trio.Lock()
        self._over = trio.Event()
        self._heard = trio.current_time()
        self._handlers: dict[type[m.Ask], Callable[[Any, Wire], Awaitable[tuple[m.Answer, list[int]]]]] = {
            m.Describe: self._describe,
            m.Attach: self._attach,
            m.End: self._end,
            m.Change: self._change,
            m.ListAttached: self._list,
            m.ReadMemory: self._memory,
            m.TraceControl: self._trace,
            m.ReadTrace: self._read_trace,
            m.TakeProfiles: self._take_profiles,
            m.LoadProfiles: self._load_profiles,
            m.ForgetProfiles: self._forget_profiles,
            m.Stop: self._stop,
        }

    async def run(self, listening: socket.socket) -> int:
        """Serve until the end. Returns the exit status: 0, or 1 when the context was lost."""
        path = Path(listening.getsockname())
        listening.setblocking(False)
        with trio.socket.from_stdlib_socket(listening) as listener:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_core, path.parent)
                nursery.start_soon(self._watch_loneliness)
                nursery.start_soon(self._bound_printed)
                nursery.start_soon(self._accept, listener)
                await self._over.wait()
                nursery.cancel_scope.cancel()
        await in_thread(path.unlink, True)
        return 1 if self._core.failure[0] else 0

    async def _accept(self, listener: trio.socket.SocketType) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    stream, _ = await listener.accept()
                    wire = Wire(stream, m.AnyAsk)
                except (OSError, MemoryError) as error:  # the sessions live on, and a daemon asks again
                    log.error("accept_failed", reason=str(error))
                    await trio.sleep(PAUSE_SECONDS)
                    continue
                if self._wire is not None:
                    self._wire.close()  # the newest daemon wins
                self._wire = wire
                nursery.start_soon(self._converse, self._wire)

    async def _converse(self, wire: Wire) -> None:
        try:
            if self._traced:  # by a daemon that is no more
                await self._trace(m.TraceControl(on=False), wire)
            while True:
                for identifier, ask in await wire.receive():
                    self._heard = trio.current_time()
                    await self._answer(wire, identifier, ask)
        except (PeerClosedError, ProtocolError, trio.ClosedResourceError, *REFUSALS) as reason:
            log.info("daemon_gone", reason=str(reason))
        finally:
            wire.close()
            if self._wire is wire:
                self._wire = None

    async def _answer(self, wire: Wire, identifier: int, ask: m.Ask | InvalidBody) -> None:
        descriptors: list[int] = []
        answer: m.Answer | Failure
        if isinstance(ask, InvalidBody):
            answer = Failure(code="invalid", message=ask.message)
        else:
            try:
                answer, descriptors = await self._handlers[type(ask)](ask, wire)
            except (Refused, *REFUSALS) as refusal:
                answer = Failure(code="unavailable", message=str(refusal))
        try:
            await self._send(wire, identifier, answer, descriptors)
        finally:
            close_all(descriptors)
        if isinstance(ask, m.Stop):
            self._over.set()

    async def _send(self, wire: Wire, identifier: int, body: msgspec.Struct, descriptors: list[int]) -> None:
        async with self._sending:
            await wire.send(encode(identifier, body), descriptors)

    async def _tell(self, event: m.SessionEnded | m.DeviceFailed) -> None:
        """Send an event, if a daemon listens; one that comes later sees it in ListAttached."""
        if self._wire is None:
            return
        with trio.move_on_after(5):
            try:
                await self._send(self._wire, 0, event, [])
            except (PeerClosedError, trio.ClosedResourceError):
                log.info("event_unheard", event_type=type(event).__name__)

    async def _watch_core(self, directory: Path) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._core.notification)
            all_ended = self._core.take_ended()
            error, reason = self._core.failure
            if error:  # by now all sessions have ended
                all_ended += self._core.take_ended()
            for ended in all_ended:
                log.info("session_ended", session=ended.session, reason=ended.reason, error=ended.error)
                event = m.SessionEnded(
                    session=ended.session,
                    error=ended.error,
                    reason=ended.reason,
                    usage=ended.usage,
                    gate=ended.gate,
                )
                try:
                    await in_thread(final_accounts.leave, directory, event)
                except OSError as refusal:
                    log.error("account_not_left", session=ended.session, reason=str(refusal))
                await self._tell(event)
                self._attached.pop(ended.session, None)
            if error:
                log.error("device_failed", error=error, reason=reason)
                await self._tell(m.DeviceFailed(error=error, reason=reason))
                self._over.set()
                return

    async def _watch_loneliness(self) -> None:
        while True:
            await trio.sleep(LONELY_SECONDS / 4)
            if self._wire is not None or self._attached:
                self._heard = trio.current_time()
            elif trio.current_time() - self._heard > LONELY_SECONDS:
                log.info("lonely", seconds=LONELY_SECONDS)
                self._over.set()

    async def _bound_printed(self) -> None:
        while True:
            await trio.sleep(PRINTED_SECONDS)
            await in_thread(self._core.bound_printed)

    # --- one handler for each ask -------------------------------------------------------------

    async def _describe(self, _: m.Describe, __: Wire) -> tuple[m.Answer, list[int]]:
        return self._description, []

    async def _attach(self, ask: m.Attach, wire: Wire) -> tuple[m.Answer, list[int]]:
        lifeline, process = wire.take_descriptors(2)
        self._attached[ask.session] = ask  # now: that it is over may be heard of before the call returns
        try:
            outbox, inbox = await in_thread(
                self._core.attach,
                ask.session,
                ask.priority,
                ask.weight,
                ask.memory_limit_bytes,
                ask.tenant_limit_bytes,
                ask.unmodified,
                lifeline,
                process,
                ask.job or "",
            )
        except REFUSALS:
            del self._attached[ask.session]
            raise
        log.info(
            "session_attached", session=ask.session, tenant=ask.tenant, pid=ask.pid, priority=ask.priority
        )
        return m.Attached(), [outbox, inbox]

    async def _end(self, ask: m.End, _: Wire) -> tuple[m.Answer, list[int]]:
        if not await in_thread(self._core.end, ask.session, ask.error, ask.reason):
            raise Refused(f"there is no session {ask.session}")
        return m.Ok(), []

    async def _change(self, ask: m.Change, _: Wire) -> tuple[m.Answer, list[int]]:
        known = await in_thread(
            self._core.change, ask.session, ask.priority, ask.weight, ask.paused, ask.measured
        )
        if not known:
            raise Refused(f"there is no session {ask.session}")
        return m.Ok(), []

    async def _list(self, _: m.ListAttached, __: Wire) -> tuple[m.Answer, list[int]]:
        attached = list(self._attached)  # before it is asked: who comes meanwhile is not over
        snapshot = await in_thread(self._core.snapshot)
        sessions = []
        for state in snapshot.sessions:
            attach = self._attached.get(state.session)
            if attach is None:
                continue
            sessions.append(
                m.AttachedSession(
                    session=state.session,
                    tenant=attach.tenant,
                    uid=attach.uid,
                    pid=attach.pid,
                    name=attach.name,
                    job=attach.job,
                    priority=state.priority,
                    weight=state.weight,
                    paused=state.paused,
                    memory_limit_bytes=state.memory_limit_bytes,
                    host_functions=state.host_functions,
                    call_ns=state.call_ns,
                    overdue_ns=state.overdue_ns,
                    usage=state.usage,
                    gate=state.gate,
                )
            )
        ending = set(attached) - {state.session for state in snapshot.sessions}
        answer = m.AttachedSessions(
            sessions=sessions,
            busy_ns=snapshot.busy_ns,
            ending=sorted(ending & set(self._attached)),
            keeping=snapshot.keeping,
            outlived=snapshot.outlived,
        )
        return answer, []

    async def _memory(self, ask: m.ReadMemory, _: Wire) -> tuple[m.Answer, list[int]]:
        free, total = await in_thread(self._core.memory_left, ask.limit_bytes, ask.used_bytes)
        return m.MemoryLeft(free_bytes=free, total_bytes=total), []

    async def _trace(self, ask: m.TraceControl, _: Wire) -> tuple[m.Answer, list[int]]:
        cursor = await in_thread(self._core.set_trace, ask.on)
        self._traced = ask.on
        return m.Tracing(cursor=cursor), []

    async def _read_trace(self, ask: m.ReadTrace, _: Wire) -> tuple[m.Answer, list[int]]:
        operations, cursor, dropped = await in_thread(self._core.read_trace, ask.cursor, ask.limit)
        told = next(portions(operations), [])
        left = len(operations) - len(told)
        return m.Traced(operations=told, cursor=cursor - left, dropped=dropped, more=left > 0), []

    async def _take_profiles(self, _: m.TakeProfiles, __: Wire) -> tuple[m.Answer, list[int]]:
        if not self._learnt:  # else who asks until there are no more might do so for ever
            self._learnt += await in_thread(self._core.take_profiles)
        told = next(portions(self._learnt), [])
        del self._learnt[: len(told)]
        return m.ProfilesTaken(profiles=told, more=bool(self._learnt)), []

    async def _load_profiles(self, ask: m.LoadProfiles, _: Wire) -> tuple[m.Answer, list[int]]:
        for profile in ask.profiles:
            await in_thread(self._core.load_profile, profile)
        return m.Ok(), []

    async def _forget_profiles(self, _: m.ForgetProfiles, __: Wire) -> tuple[m.Answer, list[int]]:
        self._learnt.clear()
        await in_thread(self._core.forget_profiles)
        return m.Ok(), []

    async def _stop(self, ask: m.Stop, _: Wire) -> tuple[m.Answer, list[int]]:
        for session in list(self._attached):
            await in_thread(self._core.end, session, m.DEINITIALIZED, ask.reason)
        return m.Ok(), []
