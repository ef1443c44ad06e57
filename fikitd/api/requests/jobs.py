"""Submitting a job, following it, reading what it wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import trio
from fikit.place import JOB_VARIABLE, SOCKET_VARIABLE
from fikit.protocol import (
    Done,
    JobFinished,
    JobStarted,
    Logs,
    ReadLogs,
    Reply,
    Submit,
    Submitted,
    Wait,
    Waited,
)

from fikitd.api.registry import Caller, handles
from fikitd.errors import InvalidRequest, NotPermitted, QuotaReached, Unavailable
from fikitd.file_watch import FileWatch
from fikitd.jobs.model import ELSEWHERE, UNSEEN, Job
from fikitd.placement import Ask, index_of, memory_limit, no_such_gpu
from fikitd.process_group import child_called, depth_of, owned
from fikitd.process_times import start_time
from fikitd.scarcity import in_thread, patiently

LOG_CHUNK_BYTES: Final = 1 << 20
MOST_SHOWN: Final = 2000
"""Characters of a command."""
MOST_NAME: Final = 200
MOST_PATH_BYTES: Final = 4095
POINTER_BYTES: Final = 8
MOST_STRING_BYTES: Final = 128 << 10
MOST_STARTED_BYTES: Final = 6 << 20
"""Linux starts no program with a longer argument or variable, or with more in all (execve(2))."""
MOST_WRITTEN_BYTES: Final = 128 << 20
"""Of one user's jobs that wait or run: what they are to be started with lies on the daemon's disk."""


@handles(Submit)
async def submit(caller: Caller, request: Submit) -> Reply:
    """Queue it; a foreground job is answered once it is admitted."""
    daemon, began, depth = caller.daemon, None, 1
    if request.foreground:
        began = await patiently(lambda: start_time(caller.peer.pid))
        depth = await patiently(lambda: depth_of(caller.peer.pid))
    daemon.check_open()
    priority = daemon.priority(caller.peer, request.priority)
    check_room_ever(caller, request)
    surroundings = {SOCKET_VARIABLE: str(daemon.directories.socket)}
    environment = {**request.environment, **surroundings}
    job = await daemon.jobs.submit(draft(caller, request, priority, began), request.command, environment)
    surroundings[JOB_VARIABLE] = job.job
    if not request.foreground:
        return Submitted(job=job.record(job.usage), environment=surroundings)
    caller.foreground[job.number] = depth
    with daemon.jobs.needed(job):
        while (now := daemon.jobs.known[job.number]).state == "queued":
            async with caller.turn.waiting():
                await daemon.jobs.change(now).wait()
    if now.over:  # who is told of a job starts its process
        raise Unavailable(f"{now.job} was ended before it had begun: {now.reason or now.state}")
    return Submitted(job=now.record(now.usage), environment=surroundings)


def check_room_ever(caller: Caller, request: Submit) -> None:
    """Refuse now what would wait for ever. Raises RequestError."""
    daemon, peer = caller.daemon, caller.peer
    granted = daemon.allowance(peer)
    known = daemon.jobs.known.values()
    waiting = daemon.jobs.coming[peer.uid] + sum(job.uid == peer.uid and not job.over for job in known)
    if waiting >= granted.max_jobs:
        raise QuotaReached(
            f"you have {waiting} jobs queued and running, the most you may have",
            "wait until one is over, or have the tenant's max_jobs raised",
        )
    asked = gpus_asked(caller, request)
    if not os.path.isabs(request.directory):
        raise InvalidRequest(f"directory {request.directory[:MOST_SHOWN]!r} is not an absolute path")
    if len(os.fsencode(request.directory)) > MOST_PATH_BYTES:
        raise InvalidRequest(f"a directory's path has {MOST_PATH_BYTES} bytes at most")
    if any("\0" in text for text in (*request.command, request.directory)):
        raise InvalidRequest("command and directory cannot contain NUL")
    for name, value in request.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidRequest(f"environment variable {name!r:.{MOST_SHOWN}} cannot be set")
    check_words(caller, request)
    refusals = []
    for index in asked or daemon.devices:
        try:
            memory_limit(Ask(peer.uid, index, request.memory_limit_bytes, granted), daemon.devices[index])
        except QuotaReached as refusal:
            refusals.append(refusal)
    if refusals and (asked or len(refusals) == len(daemon.devices)):
        raise refusals[0]


def check_words(caller: Caller, request: Submit) -> None:
    """Refuse what no program is started with, and more than may be written down. Raises RequestError."""
    if request.foreground:
        return
    sizes = sizes_of_words(request)
    if max(sizes) > MOST_STRING_BYTES:
        most = MOST_STRING_BYTES - 1
        raise InvalidRequest(f"an argument, or a variable with its name, has {most} bytes at most")
    if sum(sizes) + POINTER_BYTES * len(sizes) > MOST_STARTED_BYTES:
        raise InvalidRequest(f"command and environment have {MOST_STARTED_BYTES} bytes at most")
    jobs = [job for job in caller.daemon.jobs.known.values() if job.uid == caller.peer.uid and not job.over]
    there = sum(job.written_bytes for job in jobs)
    if there + sum(sizes) > MOST_WRITTEN_BYTES:
        raise QuotaReached(
            f"commands and environments of your jobs queued and running have {there} bytes,"
            f" and may have {MOST_WRITTEN_BYTES}",
            "wait until some of them are over",
        )


def sizes_of_words(request: Submit) -> list[int]:
    """Bytes of the arguments and the variables."""
    variables = (f"{name}={value}" for name, value in request.environment.items())
    return [len(os.fsencode(word)) + 1 for word in (*request.command, *variables)]


def gpus_asked(caller: Caller, request: Submit) -> tuple[int, ...]:
    """Which GPUs a job is to have; none: one that the daemon chooses. Raises NotFound, InvalidRequest."""
    devices = caller.daemon.devices
    named = devices if request.gpus == "all" else request.gpus
    asked = tuple(index_of(gpu, devices) for gpu in named)
    for index in asked:
        if index not in devices:
            raise no_such_gpu(index, devices)
    if len(set(asked)) != len(asked):
        raise InvalidRequest(f"a GPU is named twice: {', '.join(map(str, asked))}")
    return asked


def draft(caller: Caller, request: Submit, priority: int, caller_started: int | None) -> Job:
    """The job as asked for, before it has a number."""
    peer, most = caller.peer, caller.daemon.configuration.jobs.output_bytes
    asked = gpus_asked(caller, request)
    return Job(
        number=0,
        tenant=peer.tenant,
        uid=peer.uid,
        gid=peer.gid,
        groups=peer.groups,
        name=request.name or Path(request.command[0]).name[:MOST_NAME] or "job",
        command=shown(request.command),
        directory=request.directory,
        priority=priority,
        gpu_asked=asked[0] if asked else None,
        gpus_asked=asked if len(asked) > 1 else (),
        memory_limit_bytes=request.memory_limit_bytes,
        isolated=request.isolated,
        foreground=request.foreground,
        caller=peer.pid if request.foreground else None,
        caller_started=caller_started,
        measured=request.measured,
        output_limit_bytes=min(request.output_limit_bytes or most, most),
        umask=request.umask,
        written_bytes=0 if request.foreground else sum(sizes_of_words(request)),
    )


def shown(command: list[str]) -> list[str]:
    """As far as it is remembered: a list of jobs must fit into a frame, whatever they were called with."""
    words, left = list[str](), MOST_SHOWN
    for word in command:
        if len(word) > left:
            return [*words, f"{word[: max(left, 0)]}..."]
        words.append(word)
        left -= len(word) + 1
    return words


def own_foreground(caller: Caller, name: str) -> Job:
    """A foreground job of the peer's own user. Raises RequestError."""
    job = caller.daemon.job_of(caller.peer, name)
    if job.uid != caller.peer.uid:
        raise NotPermitted(f"{name} belongs to another user")
    if not job.foreground:
        raise InvalidRequest(f"{name} is no foreground job")
    return job


@handles(JobStarted)
async def job_started(caller: Caller, request: JobStarted) -> Reply:
    """The process must be the peer's own, as what is signalled when the job is killed.

    One that is over already is no error: how it ended follows, or the caller's own end.
    """
    job = own_foreground(caller, request.job)
    if job.state in ("finished", "failed"):  # a short command; requests are answered in any order
        return Done()
    if not (job.runs or job.state == "killed") or job.pid is not None:
        raise InvalidRequest(f"{request.job} is {job.state} and waits for no process")
    if caller.peer.pid == UNSEEN:
        raise InvalidRequest(f"it is in {ELSEWHERE}: fikitctl kill cannot end it")
    with trio.CancelScope(shield=True):  # the peer may be gone by now: its process ends with it
        try:
            depth = caller.foreground.get(job.number)
            if depth is None:  # another of the user's processes tells it
                depth = await in_thread(depth_of, caller.peer.pid)
            pid = await in_thread(child_called, request.pid, caller.peer.pid, depth)
            own = await in_thread(owned, pid, caller.peer.uid)
        except ProcessLookupError:
            return Done()
        if not own:
            raise NotPermitted(f"process {request.pid} belongs to another user")
        await caller.daemon.jobs.foreground_started(job, pid)
    return Done()


@handles(JobFinished)
async def job_finished(caller: Caller, request: JobFinished) -> Reply:
    """From any connection of the user: the one that submitted may have ended with an earlier daemon."""
    job = own_foreground(caller, request.job)
    if job.state == "queued":
        raise InvalidRequest(f"{request.job} has not started")
    await caller.daemon.jobs.foreground_finished(job, request.exit_code)
    return Done()


@handles(Wait)
async def wait(caller: Caller, request: Wait) -> Reply:
    """Until it is over, or the time is."""
    jobs = caller.daemon.jobs
    job = caller.daemon.job_of(caller.peer, request.job)
    with jobs.needed(job), trio.move_on_after(request.wait_ms / 1000):
        while not (job := jobs.known[job.number]).over:
            async with caller.turn.waiting():
                await jobs.change(job).wait()
    return Waited(job=job.record(jobs.usage(job)))


@handles(ReadLogs)
async def read_logs(caller: Caller, request: ReadLogs) -> Reply:
    """What there is from the offset; with ``follow``, wait for some."""
    jobs = caller.daemon.jobs
    job = caller.daemon.job_of(caller.peer, request.job)
    if job.foreground:
        raise InvalidRequest(f"{request.job} is a foreground job: its output went to who started it")
    path = caller.daemon.directories.state / "jobs" / job.job / request.stream
    try:
        with jobs.needed(job):
            with FileWatch(path.parent) as watch, trio.move_on_after(request.wait_ms / 1000):
                while request.follow and not jobs.known[job.number].over:
                    change = jobs.change(job)  # it may end while its output is looked at
                    if await in_thread(size_of, path) > request.offset:
                        break
                    async with caller.turn.waiting():
                        await either(watch, change)
            over = jobs.known[job.number].over
            data, size = await in_thread(read_piece, path, request.offset)
    except OSError as error:
        raise Unavailable(f"cannot read the output of {request.job}: {error.strerror}") from None
    offset = request.offset + len(data)
    truncated = size > job.output_limit_bytes
    return Logs(data=data, offset=offset, end=over and offset >= size, truncated=truncated)


async def either(watch: FileWatch, change: trio.Event) -> None:
    """Until the output grows or the job has changed."""
    async with trio.open_nursery() as nursery:

        async def until_changed() -> None:
            await change.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(until_changed)
        await watch.changed()
        nursery.cancel_scope.cancel()


def size_of(path: Path) -> int:
    """Blocking; 0 while there is no such file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def read_piece(path: Path, offset: int) -> tuple[bytes, int]:
    """Blocking: a piece from the offset, and the size of it all."""
    if not path.exists():
        return b"", 0
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(LOG_CHUNK_BYTES)
        return data, file.seek(0, os.SEEK_END)
