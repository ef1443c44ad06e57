"""Executors: found or started when a session needs one or will, watched while they live, stopped when idle.

An idle one is stopped after a while; at once when it can have no more sessions (that of an isolated session
or job which is over, one of another release), or when a GPU full of executors needs its place for another
domain.

One task per executor (``_live``) lasts exactly as long as the process does. The daemon holds nothing that
an executor needs, so that the daemon's end is no event to it: at start, ``adopt`` connects to every
executor socket that is left in the runtime directory and takes it over with its sessions.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from fikit.protocol import EventKind

from fikitd.configuration import ExecutorSection
from fikitd.device import DeviceSpec
from fikitd.errors import QuotaReached, Unavailable
from fikitd.events import Events
from fikitd.executor.connection import ExecutorConnection, Silent
from fikitd.executor.messages import (
    Answer,
    AttachedSessions,
    Describe,
    Description,
    DeviceFailed,
    ListAttached,
    Ok,
    SessionEnded,
    Stop,
)
from fikitd.executor.supervisor_launch import (
    LAST_RETRY_SECONDS,
    compiled_code,
    connect,
    domain_owner,
    left_behind,
    new_executor,
    nobodys_domain,
    remove_oldest,
    start,
    trim,
    users_domain,
)
from fikitd.executor.supervisor_state import (
    ASK_SECONDS,
    Executor,
    FailedStart,
    Listener,
    Starved,
    described,
    in_the_way,
)
from fikitd.notify import notify
from fikitd.processes import Process, ended_by
from fikitd.quote import quoted
from fikitd.scarcity import in_thread, patiently
from fikitd.scheduling.settings import SchedulingSection

STOP_SECONDS: Final = 10.0
LOOK_AGAIN_SECONDS: Final = 0.02
"""For the end of work that keeps a new session waiting."""
TRY_AGAIN_SECONDS: Final = 60.0
"""On a GPU where no executor starts."""
BESIDE_ADOPTION_SECONDS: Final = 90.0
"""Of a daemon's start: what systemd allows by default."""
STALE_BEATS: Final = 3


class Supervisor:
    """All executors of this daemon."""

    def __init__(
        self,
        settings: Callable[[], ExecutorSection],
        scheduling: Callable[[], SchedulingSection],
        devices: list[DeviceSpec],
        runtime: Path,
        state: Path,
        events: Events,
        listener: Listener,
        shared: Callable[[], Mapping[str, str]],
        lasts: Callable[[str], bool],
        owner: Callable[[str], int | None],
        expected: Callable[[int], Mapping[str, int]],
    ) -> None:
        self._settings = settings
        self._scheduling = scheduling
        self._devices = {device.index: device for device in devices}
        self._runtime = runtime
        self._state = state
        self._events = events
        self._listener = listener
        self._shared = shared  # environment of an executor that shares its GPU with others' contexts
        self._lasts = lasts  # whether a trust domain may have more sessions
        self._owner = owner  # whose a trust domain is
        self._expected = expected  # trust domains of what runs on a GPU, and whose they are
        self._nursery: trio.Nursery  # while run() runs, which is as long as executors are asked for
        self._logs = trio.CapacityLimiter(1)  # threads that may wait for their disk
        self.executors: dict[str, Executor] = {}
        self.failing: dict[int, FailedStart] = {}
        """GPUs whose latest executor has failed, before it served anybody or since."""

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Supervise; started once the executors of an earlier daemon are taken over."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await self._adopt()
            task_status.started()
            await trio.sleep_forever()

    @asynccontextmanager
    async def executor_for(self, device: DeviceSpec, domain: str, uid: int) -> AsyncIterator[Executor]:
        """The executor of a trust domain on a GPU, started if need be; not stopped as idle while inside."""
        executor = await self._found(device, domain) or self._begin(device, domain, uid)
        executor.attaching += 1
        try:
            # One that serves is yielded without a pause, in which it could fail: its successor would be due.
            if executor.state == "starting":
                with trio.move_on_after(self.start_seconds + STOP_SECONDS):
                    await executor.ready.wait()
            if executor.state != "serving":
                raise Unavailable(
                    f"the executor for GPU {device.index} did not start: {executor.failure or 'no answer'}"
                    + await in_thread(quoted, executor.log),
                    f"see {executor.log}",
                )
            yield executor
        finally:
            executor.attaching -= 1
            executor.idle_since = trio.current_time()

    def expect(self, device: DeviceSpec, domain: str, uid: int) -> None:
        """A session will come soon: start its executor meanwhile. What is in the way, the session is told."""
        if self._living(device, domain) is None:
            with suppress(QuotaReached):
                self._begin(device, domain, uid)

    def try_again(self, uid: int) -> None:
        """See whether executors start by now where none did: nobody is sent there while others have room.

        Where the user has one that serves, by another that nobody uses, which ends as it is idle.
        """
        now, own = trio.current_time(), users_domain(uid)
        for gpu, failed in self.failing.items():
            if now - failed.tried_at >= TRY_AGAIN_SECONDS:
                self.failing[gpu] = replace(failed, tried_at=now)
                serves = any(each.domain == own for each in self.on(gpu))
                self.expect(self._devices[gpu], nobodys_domain() if serves else own, uid)

    def _doubt(self, executor: Executor) -> None:
        """It has failed: whether the GPU is there is known once another serves. Jobs wait for that."""
        gpu, has_served = executor.device.index, executor.description is not None
        if not has_served or not self.on(gpu):
            before = self.failing.get(gpu)  # what fails for once is tried again at once
            tried_at = -math.inf if before is None else before.tried_at
            self.failing[gpu] = FailedStart(executor.failure, tried_at, None if has_served else executor.log)
        if has_served and executor.uid is not None:
            self.expect(executor.device, users_domain(executor.uid), executor.uid)

    def on(self, gpu: int) -> list[Executor]:
        """The serving executors of a GPU."""
        return [
            each for each in self.executors.values() if each.device.index == gpu and each.state == "serving"
        ]

    @property
    def start_seconds(self) -> float:
        """So long an executor may take to start."""
        return self._settings().start_seconds

    async def stop_all(self, reason: str) -> None:
        """Stop every executor and wait for its end."""
        async with trio.open_nursery() as nursery:
            for executor in list(self.executors.values()):
                nursery.start_soon(self._stop, executor, reason)

    async def _found(self, device: DeviceSpec, domain: str) -> Executor | None:
        """The executor that takes sessions; None: there is none.

        While work of a session that is over goes on, the driver brings no code to the GPU, so who came would
        wait, and be lost when the executor is killed for it. Most such work is over in a moment.
        """
        while (executor := self._living(device, domain)) is not None and executor.state == "serving":
            try:
                attached = await executor.ask(ListAttached(), AttachedSessions)
            except Unavailable:
                if executor in self.on(device.index):
                    break
                continue
            executor.note_outlived(attached.outlived)
            if executor.state == "serving" and not attached.outlived:
                break
            await trio.sleep(LOOK_AGAIN_SECONDS)
        if executor is not None:
            return executor
        for held in [each for each in self.on(device.index) if each.domain == domain and each.held]:
            await self._end_held(held)
        return self._living(device, domain)

    async def _end_held(self, executor: Executor) -> None:
        """End one that takes nobody more, unless somebody is there."""
        with suppress(Unavailable):
            there = await executor.ask(ListAttached(), AttachedSessions)
            executor.note_outlived(there.outlived)
            if executor.held and executor.state == "serving" and not (there.sessions or executor.attaching):
                self.kill(executor, f"session {there.outlived} is over, but its work held up who came")

    def _living(self, device: DeviceSpec, domain: str) -> Executor | None:
        here = (each for each in self.executors.values() if each.device.index == device.index)
        return next((each for each in here if each.domain == domain and each.takes_sessions), None)

    def check_place(self, gpu: int, domain: str, uid: int) -> None:
        """Raises QuotaReached where a trust domain has no executor on a GPU, and none may be started."""
        if self._living(self._devices[gpu], domain) is None:
            self._in_the_way(gpu, domain, uid)

    def _in_the_way(self, gpu: int, domain: str, uid: int) -> Executor | None:
        here = [each for each in self.executors.values() if each.device.index == gpu]
        return in_the_way(gpu, here, self._expected(gpu), domain, uid, self._settings().max_per_gpu)

    def _begin(self, device: DeviceSpec, domain: str, uid: int) -> Executor:
        longest = self._in_the_way(device.index, domain, uid)
        if longest is not None:
            longest.state = "stopping"
            self._nursery.start_soon(self._stop, longest, "idle, and another domain needs its place")
        executor = new_executor(device, domain, uid, self._runtime, self._state / "logs")
        self._keep(executor)
        return executor

    def _keep(self, executor: Executor) -> None:
        self.executors[executor.executor] = executor
        Context().run(self._nursery.start_soon, self._live, executor)  # not on behalf of who asked for it

    async def _adopt(self) -> None:
        paths = await patiently(lambda: left_behind(self._runtime))
        if paths:
            self._take_longer()
        async with trio.open_nursery() as nursery:
            for path in paths:
                nursery.start_soon(self._adopt_one, path)

    def _take_longer(self) -> None:
        """To start: systemd would take us to hang, and start another that asks executors as long."""
        may_take = 2 * self._settings().unresponsive_seconds + BESIDE_ADOPTION_SECONDS
        notify(f"EXTEND_TIMEOUT_USEC={int(may_take * 1e6)}")

    async def _adopt_one(self, path: Path) -> None:
        """Take over the executor that listens there, or clear the place of one that is gone.

        To be silent for as long as that is what it may be under a daemon.
        """
        seconds = self._settings().unresponsive_seconds
        with trio.move_on_after(seconds) as patience:
            try:
                connection = await connect(path, listens=True)
            except (FileNotFoundError, ConnectionRefusedError):
                await in_thread(path.unlink, True)
                return
        if patience.cancelled_caught:
            self._events.tell("executor_silent", socket=str(path), reason="no connection", warning=True)
            return

        def silent(refusal: Unavailable) -> None:
            self._events.tell("executor_silent", socket=str(path), reason=refusal.message, warning=True)
            self._take_longer()

        description = await described(connection, seconds, silent)
        if description is None and not self._settings().kill_unresponsive:
            return
        process = await patiently(lambda: Process.by_pid(connection.listener_pid))
        if process is None:
            return
        device = self._device_of(description) if description else None
        if description is None or device is None:
            await process.end(STOP_SECONDS if description else 0.0)  # nobody is served meanwhile
            process.close()
            await in_thread(path.unlink, True)
            gone = "it did not answer"
            if description:
                gone = f"its GPU (then number {description.gpu}) is no longer served"
            self._events.tell("executor_ended", executor=path.stem, reason=gone, warning=True)
            return
        executor = Executor(
            executor=description.executor,
            device=device,
            domain=description.domain,
            uid=self._owner(description.domain),
            socket=path,
            log=self._state / "logs" / f"{description.executor}.log",
            process=process,
            adopted=True,
        )
        self._keep(executor)
        with trio.move_on_after(seconds):
            await executor.ready.wait()

    def _device_of(self, description: Description) -> DeviceSpec | None:
        """What the executor was started for; None: it is not served, or its number is another's."""
        device = self._devices.get(description.gpu)
        return device if device is not None and description.uuid in ("", device.uuid) else None

    async def _live(self, executor: Executor) -> None:
        """From the start of the process, or its taking over, to its end."""
        tell = self._telling(executor)
        try:
            if executor.process is None:
                isolated = domain_owner(executor.domain) is None
                shared = {} if isolated else self._shared()
                more = {**await compiled_code(self._state, executor.uid), **shared}
                executor.process = await start(executor, self._settings(), self._scheduling(), more)
                if executor.state == "stopping":
                    executor.process.send(9)
            tell("executor_started", pid=executor.process.pid, domain=executor.domain)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve, executor, executor.process)
                nursery.start_soon(self._bound_log, executor)
                number = await executor.process.wait()
                nursery.cancel_scope.cancel()
            executor.failure = executor.failure or f"its process {ended_by(number)}"
        except OSError as error:
            executor.failure = str(error)
        expected = executor.state == "stopping"
        executor.state = "over"
        self.executors.pop(executor.executor, None)
        if not expected:
            self._doubt(executor)
        tell("executor_ended", reason=executor.failure, warning=not expected)
        self._listener.executor_over(executor)
        executor.ready.set()
        executor.ended.set()
        with suppress(OSError):
            await in_thread(executor.socket.unlink, True)
        living = [each.log for each in self.executors.values()]
        with suppress(OSError):
            await in_thread(remove_oldest, executor.log.parent, living, limiter=self._logs)
        if executor.process is not None:
            executor.process.close()

    async def _bound_log(self, executor: Executor) -> None:
        """Beside the heartbeat: a disk that does not answer must not make it look as if that had stopped."""
        while True:
            await trio.sleep(self._settings().heartbeat_seconds)
            most = self._settings().log_bytes
            await in_thread(trim, executor.log, most, limiter=self._logs, abandon_on_cancel=True)

    async def _serve(self, executor: Executor, process: Process) -> None:
        """Connect, converse, and connect again when the connection breaks while the process lives."""
        seconds = self.start_seconds
        while True:
            with trio.move_on_after(seconds) as patience:
                executor.connection = await connect(executor.socket)
            if patience.cancelled_caught or executor.connection is None:
                executor.failure = f"it did not accept a connection within {seconds:g} s"
                process.send(9)
                return
            await self._converse(executor, executor.connection, patience.deadline)
            executor.connection = None
            seconds = self._settings().unresponsive_seconds

    async def _converse(self, executor: Executor, connection: ExecutorConnection, until: float) -> None:
        """Until the connection breaks. Who has connected before ``until`` may be silent until then."""
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                await connection.run(lambda event: self._on_event(executor, event))
                nursery.cancel_scope.cancel()

            nursery.start_soon(receive)
            try:
                seconds = max(ASK_SECONDS, until - trio.current_time())
                executor.description = await executor.ask_patiently(Describe(), Description, seconds)
                attached = await executor.ask_patiently(ListAttached(), AttachedSessions, seconds)
                if executor.adopted and executor.heartbeat is None:
                    executor.busy_before_ns = attached.busy_ns
                executor.heartbeat = attached
                self.failing.pop(executor.device.index, None)
                await self._listener.executor_serving(executor, attached)
            except Unavailable as refusal:
                hangs = isinstance(refusal, Silent) or executor.state != "serving"
                if hangs and not isinstance(refusal, Starved) and executor.process is not None:
                    executor.failure = executor.failure or refusal.message
                    executor.process.send(9)
                await trio.sleep(LAST_RETRY_SECONDS)  # then _serve connects again, or the process has ended
                nursery.cancel_scope.cancel()
                return
            if executor.state in ("starting", "failed"):  # the latter: given up as the connection broke
                executor.state = "serving"
            executor.ready.set()
            await self._heartbeat(executor)

    def _on_event(self, executor: Executor, event: Answer) -> None:
        if isinstance(event, SessionEnded):
            self._listener.session_ended(executor, event)
        elif isinstance(event, DeviceFailed):
            executor.failure = f"its device failed: {event.reason}"
            executor.state = "failed"  # a new one serves whoever comes now
            self._doubt(executor)
            self._warn("device_failed", executor, error=event.error, reason=event.reason)

    async def _heartbeat(self, executor: Executor) -> None:
        while True:
            settings = self._settings()  # a reload holds from the next turn on
            most = settings.unresponsive_seconds + STALE_BEATS * settings.heartbeat_seconds
            executor.turns_by = trio.current_time() + most
            await trio.sleep(settings.heartbeat_seconds)
            asked_at = trio.current_time()
            try:
                attached = await executor.beat(settings)
            except (Silent, Starved) as refusal:
                hangs = isinstance(refusal, Silent)
                self._silent(executor, settings, killed=hangs and settings.kill_unresponsive)
                continue
            except Unavailable:
                continue  # the connection broke: _converse is about to end
            executor.unresponsive = False
            executor.heartbeat, executor.asked_at = attached, asked_at
            executor.answered_at = trio.current_time()
            self._listener.executor_beat(executor, attached)
            self._look_for_outlived(executor, attached, settings.outlived_seconds)
            if attached.serves:
                executor.idle_since = asked_at
            elif executor.idle:
                lasts = self._lasts(executor.domain) and not executor.foreign
                patience = settings.idle_seconds if lasts else 0.0
                if trio.current_time() - executor.idle_since >= patience:
                    await self._stop(executor, "idle")

    def _silent(self, executor: Executor, settings: ExecutorSection, *, killed: bool) -> None:
        """It did not answer in time: report it once, and kill it where that is to be."""
        if not executor.unresponsive:
            executor.unresponsive = True
            self._warn("executor_unresponsive", executor, killed=killed)
        if killed and executor.process is not None:
            executor.failure = f"it did not answer for {settings.unresponsive_seconds:g} s"
            executor.process.send(9)

    def _look_for_outlived(self, executor: Executor, attached: AttachedSessions, seconds: float) -> None:
        """Free the GPU of work whose session is over, at the latest when it holds somebody up.

        A kernel ends by itself or with its context, in which others are. Until then the driver brings no code
        to the GPU there, so who comes now is served by another executor.
        """
        executor.note_outlived(attached.outlived)
        executor.note_work(sum(each.usage.gpu_ns for each in attached.sessions))
        late = trio.current_time() - executor.outlived_since >= seconds
        if not attached.outlived or not late or executor.state != "serving":
            return
        gone = f"session {attached.outlived} is over, but its work on the GPU was not {seconds:g} s later"
        if not executor.outlived_told:
            executor.outlived_told = True
            self._warn("session_outlived", executor, session=attached.outlived)
        # It may have all that the others' kernels need of the GPU. Who gets on works in between only.
        stands = trio.current_time() - executor.worked_at >= seconds
        waits = [each.overdue_ns if stands else 0 for each in attached.sessions]
        if max([*waits, *(each.call_ns for each in attached.sessions)], default=0) >= seconds * 1e9:
            self.kill(executor, f"{gone}, and held up others")
        elif not attached.sessions and not executor.attaching:
            self.kill(executor, gone)

    def _warn(self, kind: EventKind, executor: Executor, **detail: Any) -> None:
        self._telling(executor)(kind, warning=True, **detail)

    def _telling(self, executor: Executor) -> Callable[..., None]:
        gpu, name = executor.device.index, executor.executor
        return partial(self._events.tell, gpu=gpu, uid=executor.uid, executor=name)

    def kill(self, executor: Executor, reason: str) -> None:
        """End it at once, with all its sessions."""
        executor.state, executor.failure = "stopping", reason
        if executor.process is not None:  # else it is killed as soon as it is there
            executor.process.send(9)

    async def _stop(self, executor: Executor, reason: str) -> None:
        """Ask it to end; make it, if it cannot be asked, as while it starts, or does not end."""
        executor.state, executor.failure = "stopping", f"stopped: {reason}"
        if executor.description is not None:  # else it has never served
            await self._listener.executor_stopping(executor)
            with suppress(Unavailable):
                await executor.ask(Stop(reason=reason), Ok)
                with trio.move_on_after(STOP_SECONDS):
                    await executor.ended.wait()
                    return
        if executor.process is not None:  # else it is killed as soon as it is there
            executor.process.send(9)
        with trio.move_on_after(STOP_SECONDS):
            await executor.ended.wait()
