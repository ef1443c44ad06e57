"""Jobs: queued, admitted when there is room, followed to their end, remembered.

Order: a change is in the store before it has an effect outside (write-ahead), so a daemon that is killed
between any two lines here knows every job afterwards.
Waiting jobs are admitted by priority, then by age; one that waits for room is not overtaken by another
that wants a GPU of those that it may get.
"""

from __future__ import annotations

import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, Final

import trio
from fikit.place import JOB_VARIABLE
from fikit.protocol import EventKind
from msgspec.structs import replace

from fikitd.device import DeviceSpec
from fikitd.errors import NotFound, QuotaReached, Unavailable
from fikitd.events import Events
from fikitd.jobs.job_sessions import JobSessions
from fikitd.jobs.model import ELSEWHERE, UNSEEN, Job, State
from fikitd.jobs.records import LAST_JOB, saving
from fikitd.jobs.running import UNREPORTED, Ending, JobProcesses, end_group, process_of, until_ended
from fikitd.launch import EndedAtOnce
from fikitd.placement import places_for
from fikitd.process_times import start_time
from fikitd.processes import Process
from fikitd.scarcity import patiently
from fikitd.sessions import Sessions
from fikitd.store import Store

RETRY_SECONDS: Final = 5.0
LOOK_AGAIN_SECONDS: Final = 60.0
"""While jobs wait: room may be had by what nobody tells of, as on a GPU that failed."""
CALLER_GRACE_MS: Final = 5000
ASKED_BY: Final = ("caller", "caller_started", "command", "directory")
"""What tells that two foreground jobs are one that was asked for twice."""
Placing = Callable[[Job], DeviceSpec]
"""Where a job is to run. Raises QuotaReached, NotFound."""


class Jobs(JobSessions):
    """All jobs that are known."""

    def __init__(
        self,
        store: Store,
        processes: JobProcesses,
        sessions: Sessions,
        events: Events,
        placing: Callable[[set[int]], Placing],
    ) -> None:
        super().__init__(store, processes, sessions)
        self._events = events
        self._placing = placing
        self._nursery: trio.Nursery  # while run() runs, which is as long as jobs are asked for
        self._wake = trio.Event()
        self._followed: dict[int, Process] = {}
        self._abandoned: set[int] = set()
        """Foreground jobs whose caller is gone: nobody will report their exit code."""
        self._unheard: set[int] = set()
        """Foreground jobs that an earlier daemon admitted: their callers may not have been told."""
        self.ended: Counter[tuple[int, str, State]] = Counter()
        """By uid, tenant and state: those whose end this daemon has seen, also once they are forgotten."""
        self.admits: Callable[[], bool] = lambda: True
        self.max_running: Callable[[], int] = lambda: 64
        self.on_started: Callable[[Job, DeviceSpec], None] = lambda job, device: None
        sessions.on_room = self.wake

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Admit and follow jobs; started once those of an earlier daemon are taken over."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for job in [job for job in self.known.values() if not job.over]:
                await self._take_over(job)
                if job.state == "paused":
                    with suppress(Unavailable):  # an executor has ended meanwhile, or hangs
                        await self._conform(job)
            task_status.started()
            while True:
                self._wake = trio.Event()
                await self._admit_all()
                waits = any(job.state == "queued" for job in self.known.values())
                patience = RETRY_SECONDS if self.unsaved else LOOK_AGAIN_SECONDS if waits else math.inf
                with trio.move_on_after(patience):
                    await self._wake.wait()
                await self.settle()
                nursery.start_soon(self.forget)

    def wake(self) -> None:
        """There may be room for a job that waits."""
        self._wake.set()

    async def submit(self, draft: Job, command: list[str], environment: dict[str, str]) -> Job:
        """Queue a job; its number is decided here. Raises Unavailable when it cannot be kept."""
        if draft.foreground:
            await self._end_unheard(draft)
        job = replace(draft, number=self.next_number(), submitted_unix=time.time())
        self.coming[job.uid] += 1
        try:
            await self._write_down(job, command, environment)
        finally:
            self.coming[job.uid] -= 1
        self.keep(job)
        self._tell("job_submitted", job, command=job.command[0])
        self.wake()
        return job

    async def _end_unheard(self, draft: Job) -> None:
        """Whose caller asks for the same anew was not told of it: it must not keep a place from that."""
        for number in list(self._unheard):
            job = self.known.get(number)
            if job is None or job.over or job.pid is not None:
                self._unheard.discard(number)
            elif all(getattr(job, each) == getattr(draft, each) for each in ASKED_BY):
                await self._end(number, Ending(None, "its caller asked anew"), "killed")

    async def _write_down(self, job: Job, command: list[str], environment: dict[str, str]) -> None:
        last = ("INSERT OR REPLACE INTO settings VALUES (?, ?)", (LAST_JOB, str(job.number)))
        try:
            if not job.foreground:
                await self._processes.prepare(job, command, {**environment, JOB_VARIABLE: job.job})
            await self._store.write([*saving(job), last])
        except BaseException:  # the disk refuses, or who submits it has gone
            with trio.CancelScope(shield=True):
                await self._processes.remove(job)
            raise

    # --- starting --------------------------------------------------------------------------------

    async def _admit_all(self) -> None:
        waiting = sorted(
            (job for job in self.known.values() if job.state == "queued"),
            key=lambda job: (job.priority, job.number),
        )
        awaited: set[int] = set()
        refusals: dict[Hashable, str] = {}  # by what decides: the queue may be long
        running, place = [job.uid for job in self.running()], self._placing(awaited)
        for number in [job.number for job in waiting]:
            job = self.known.get(number)  # as it is by now: those before it have been started meanwhile
            if job is None or job.state != "queued" or not self.admits():
                continue
            has_one = job.uid in running
            if len(running) >= places_for(has_one, most := self.max_running()):
                rest = f" of at most {most}; the rest is kept for users of whom none runs"
                why = rest if len(running) < most else ", the most that may"
                self._waits(job, f"{len(running)} jobs run{why}")
                continue
            asks = (job.uid, job.tenant, job.gpus, job.memory_limit_bytes, job.isolated)
            if asks in refusals:
                self._waits(job, refusals[asks])
                continue
            try:
                device = place(job)
            except (QuotaReached, NotFound) as refusal:  # its GPU may be gone since: it may come back
                refusals[asks] = refusal.message
                self._waits(job, refusal.message)
                continue
            self.starting.add(job.number)
            try:
                await self._start(job, device)
            finally:
                self.starting.discard(job.number)
            running, place = [job.uid for job in self.running()], self._placing(awaited)

    def _waits(self, job: Job, reason: str) -> None:
        if job.reason != reason:
            self.keep(replace(job, reason=reason), quietly=True)

    async def _start(self, job: Job, device: DeviceSpec) -> None:
        def started(queued: Job) -> Job:
            return queued.moved("running", gpu=device.index, started_unix=begun, reason="")

        begun, refusal = time.time(), None
        try:
            if not job.foreground:
                await self._processes.take_places(job)
            await self._store.write(saving(started(job)))
        except Unavailable as error:
            refusal = error
        now = self.known[job.number]
        if now is not job or refusal is not None:
            self.unsaved.add(job.number)  # it was changed while the store was written
        if now.state != "queued":
            return
        if refusal is not None:
            self.keep(replace(now, reason=refusal.message), quietly=True)
            return
        running = started(now)
        self.keep(running)
        self._tell("job_started", running)
        self.on_started(running, device)
        if not job.foreground:
            await self._start_runner(running)

    async def _start_runner(self, job: Job) -> None:
        try:
            self._follow(job, await self._processes.start(job))
        except EndedAtOnce:
            await self._runner_gone(job)
        except OSError as error:
            found = await self._processes.find(job)
            if isinstance(found, Process):
                self._follow(job, found)  # systemd has started it, and did not say so in time
            else:
                await self._end(job.number, Ending(None, f"cannot start its runner: {error}"), "failed")

    async def _runner_gone(self, job: Job) -> None:
        """It has ended. One that could begin nothing is followed by another."""
        found = await self._processes.find(job, again=not self._now(job).kill_asked)
        if isinstance(found, Process):
            self._follow(job, found)  # one that an earlier daemon had started came first after all
        elif found is not None:
            await self._end(job.number, found)
        else:
            why = await self._processes.why_unbegun(job)
            self._log.warning("job_not_begun", job=job.job, reason=why)
            self.keep(replace(self._now(job), reason=why))
            self._nursery.start_soon(self._start_again, job)

    async def _start_again(self, job: Job) -> None:
        """What it lacked there may be by now."""
        with trio.move_on_after(RETRY_SECONDS):
            while not self._now(job).kill_asked:
                await self.change(job).wait()
        if self._now(job).kill_asked:
            await self._runner_gone(job)
            return
        self.keep(replace(self._now(job), reason=""))
        await self._start_runner(self._now(job))

    async def _take_over(self, job: Job) -> None:
        """A job that an earlier daemon left unfinished."""
        if job.state == "queued":
            if job.foreground:
                await self._end(job.number, Ending(None, "its caller went away"), "killed")
            return
        if job.foreground:
            found: Process | Ending | None = await process_of(job.pid, job.pid_started)
        else:
            found = await self._processes.find(job, again=not job.kill_asked)
        if isinstance(found, Process):
            self._tell("job_taken_over", job, pid=job.pid)
            self._follow(job, found, taken_over=True)
        elif found is not None:
            await self._end(job.number, found)
        elif job.foreground:  # without a process that was reported it may be at work all the same
            until_over = self._until_caller_gone if job.pid is None else self._until_reported
            self._unheard.add(job.number)
            self._nursery.start_soon(until_over, job)
        else:  # the daemon was killed before it started a runner, or that before it began
            await self._start_runner(job)

    async def _until_reported(self, job: Job) -> None:
        """Its process ended while no daemon was there to be told how: a caller that lives is about to."""
        with trio.move_on_after(RETRY_SECONDS):
            await until_ended(job.caller, job.caller_started)
        await self._end(job.number, Ending(None, UNREPORTED), "lost")

    # --- following -------------------------------------------------------------------------------

    def _follow(self, job: Job, process: Process, taken_over: bool = False) -> None:
        self._followed[job.number] = process
        self._nursery.start_soon(self._until_ended, job, process, taken_over)

    async def _until_ended(self, job: Job, process: Process, taken_over: bool) -> None:
        async with trio.open_nursery() as nursery:
            if taken_over and job.caller_started is not None:
                nursery.start_soon(self._until_caller_gone, job)
            if not job.foreground and job.pid is None:
                nursery.start_soon(self._learn_pid, job)
            await process.wait()
            nursery.cancel_scope.cancel()
        self._followed.pop(job.number, None)
        process.close()
        if not job.foreground:
            await self._runner_gone(job)
            return
        known = self.known.get(job.number)
        reported = known is None or known.over or job.number in self._abandoned
        await trio.sleep(0 if reported else RETRY_SECONDS)  # JobFinished may be on its way
        self._abandoned.discard(job.number)
        await self._end(job.number, Ending(None, UNREPORTED))

    async def _until_caller_gone(self, job: Job) -> None:
        """The connection that the job would end with was an earlier daemon's."""
        await until_ended(job.caller, job.caller_started)
        if not self._now(job).over:
            await self.caller_gone(job)

    async def _learn_pid(self, job: Job) -> None:
        try:
            pid, began = await self._processes.started(job)
        except OSError:
            return  # its directory is gone
        self.keep(replace(self.known[job.number], pid=pid, pid_started=began))
        self.unsaved.add(job.number)
        await self._processes.weigh_at_start(self.known[job.number])

    async def foreground_started(self, job: Job, pid: int) -> None:
        """The caller has started the process, which is ended where the job was killed meanwhile."""
        process = await patiently(lambda: Process.by_pid(pid))
        if process is None:
            return
        try:
            identity = {"pid": pid, "pid_started": await patiently(lambda: start_time(pid))}
            if not self._now(job).over:
                await self._store.write(saving(replace(job, **identity)))
                self.unsaved.add(job.number)
            now = self.known.get(job.number)
        except BaseException:
            process.close()
            raise
        if now is not None and now.state == "killed" and now.pid is None:  # before it could be signalled
            self._end_process(process, signal.SIGTERM, CALLER_GRACE_MS, job.uid)
            return
        if now is None or now.over or now.pid is not None:
            process.close()
            return
        started = replace(now, **identity)
        self.keep(started)
        self._follow(started, process)
        await self._processes.weigh_at_start(started)

    async def foreground_finished(self, job: Job, exit_code: int) -> None:
        """The caller reports how it ended."""
        await self._end(job.number, Ending(exit_code, ""))

    async def caller_gone(self, job: Job) -> None:
        """The connection of a foreground job has ended, and so must the job."""
        if job.number in self._followed:
            self._abandoned.add(job.number)
            await self.kill(self.known[job.number], 15, CALLER_GRACE_MS, "its caller went away")
        else:
            await self._end(job.number, Ending(None, "its caller went away"), "killed")

    async def _end(self, number: int, ending: Ending, state: State | None = None) -> None:
        """The job is over; frees what its sessions hold."""
        job = self.known.get(number)
        if job is None or job.over:
            return
        code = ending.exit_code
        if state is None:
            state = (
                "killed" if job.kill_asked else "lost" if code is None else "failed" if code else "finished"
            )
        reason = (job.kill_asked and job.reason) or ending.reason or job.reason
        ended = {"ended_unix": ending.unix or time.time(), "ended_as": self.next_end()}
        self.keep(job.moved(state, exit_code=code, reason=reason, **ended))
        self.unsaved.add(number)
        self.ended[job.uid, job.tenant, state] += 1
        self._tell("job_ended", self.known[number], state=state, exit_code=code, reason=reason)
        self.wake()
        with suppress(Unavailable):  # their executors are gone, and they with them
            await self._each_session(job, lambda session: self._sessions.end(session, f"{job.job} is over"))

    # --- changing --------------------------------------------------------------------------------

    async def kill(self, job: Job, number: int, grace_ms: int, why: str) -> None:
        """Signal its process group, SIGKILL after the grace. Raises Unavailable."""
        if job.state == "queued":
            await self._end(job.number, Ending(None, "killed while it was queued"), "killed")
            if not job.foreground:
                self._nursery.start_soon(self._processes.close, job)
            return
        if job.foreground and job.caller == UNSEEN:
            raise Unavailable(f"the process of {job.job} is in {ELSEWHERE}", "end it there")
        asked = replace(self.known[job.number], kill_asked=True, reason=job.reason if job.kill_asked else why)
        await self._keep_ahead(asked)
        if self._now(job).over:
            return
        process = self._followed.get(job.number)
        if job.foreground and process is not None:
            now = self.known[job.number]
            self._end_process(await process_of(now.pid, now.pid_started), number, grace_ms, job.uid)
        elif job.foreground:
            await self._end(job.number, Ending(None, "killed before its process was reported"), "killed")
        else:
            try:
                await self._processes.kill(job, number, grace_ms)
            except Unavailable:  # its directory is gone, and with it the way to its runner
                now = self._now(job)
                if (command := await process_of(now.pid, now.pid_started)) is None:
                    raise
                self._end_process(command, number, grace_ms, job.uid)

    def _end_process(self, process: Process | None, number: int, grace_ms: int, uid: int) -> None:
        if process is not None:
            self._nursery.start_soon(end_group, process, number, grace_ms, uid)

    async def set_paused(self, job: Job, paused: bool) -> None:
        """Pause or resume every session of the job, and those it will open. Raises Unavailable."""
        if changed := (job.state == "paused") != paused:
            await self._keep_ahead(job.moved("paused" if paused else "running"))
        try:
            await self._conform(job)
        finally:
            if changed:
                self._tell("job_paused" if paused else "job_resumed", job)

    async def _keep_ahead(self, job: Job) -> None:
        """Remember a job as it is now, in the store too if that can be written, before this has an effect."""
        self.keep(job)
        self.unsaved.add(job.number)
        await self.settle()

    async def set_priority(self, job: Job, priority: int) -> None:
        """Of the job and all its sessions. Raises Unavailable."""
        await self._keep_ahead(replace(job, priority=priority))
        self.wake()
        try:
            await self._each_session(
                job, lambda session: self._sessions.set_priority(session, lambda: self._now(job).priority)
            )
        finally:
            self._tell("job_priority", job, priority=priority)
            if job.number in self._followed:
                await self._processes.weigh(self.known[job.number])

    def _tell(self, kind: EventKind, job: Job, **detail: Any) -> None:
        self._events.tell(kind, uid=job.uid, tenant=job.tenant, job=job.job, gpu=job.gpu, **detail)
