"""The processes of jobs: a background job's runner, a foreground job's own process.

Everything that touches files or forks happens in a thread. A background job's truth is its directory
(files.py), so following a job that this daemon started and one that it found is the same.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import trio
from fikit.protocol import priority_level

from fikitd.errors import Unavailable
from fikitd.file_watch import FileWatch
from fikitd.jobs import files
from fikitd.jobs.model import Job, checked, job_number
from fikitd.launch import USUAL_CPU_WEIGHT, Launch, launch, manager, set_cpu_weight
from fikitd.niceness import nice_of, set_autogroup_nice, set_nice
from fikitd.process_group import owned, signal_group
from fikitd.process_times import began_then
from fikitd.processes import Process
from fikitd.quote import quoted
from fikitd.scarcity import in_thread, once_there_is_room, patiently

NORMAL: Final = priority_level("normal")
FULL: Final = {errno.ENOSPC, errno.EDQUOT}
FREE: Final = "free disk space"
FORK_SECONDS: Final = 0.01
"""After it a child that was being forked is there to be seen."""
BLOCK_BYTES: Final = 512
"""In which stat(2) counts."""
DISK_SHARE: Final = 4
"""One in so many bytes of the file system may be files of jobs that are over."""
LOST: Final = "its runner ended without an exit code"
UNBEGUN: Final = "its runner ended before its command began"
UNREPORTED: Final = "its process ended and nobody reported the exit code"


@dataclass(frozen=True)
class Ending:
    """How a job's process ended; ``exit_code`` None: nobody knows."""

    exit_code: int | None
    reason: str
    unix: float | None = None
    """When, where it was written down; else now."""


def moment(written: Mapping[str, Any] | None) -> float | None:
    """When something happened that the runner wrote down; None: it does not say."""
    unix = (written or {}).get("unix")
    return unix if isinstance(unix, float) else None


class JobProcesses:
    """Starts, finds, follows and ends the processes of jobs, in ``directory``/job-N."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.low_cpu_weight: Callable[[], int] = lambda: USUAL_CPU_WEIGHT
        """Of jobs below normal priority."""

    def place(self, job: Job) -> Path:
        """The job's directory."""
        return self._directory / job.job

    async def prepare(self, job: Job, command: list[str], environment: dict[str, str]) -> None:
        """Write down what to run. Raises Unavailable when the disk refuses."""
        spec: dict[str, Any] = {
            "command": command,
            "environment": environment,
            "directory": job.directory,
            "uid": job.uid,
            "gid": job.gid,
            "groups": list(job.groups),
            "output_limit_bytes": job.output_limit_bytes,
            "umask": job.umask,
            "record": msgspec.to_builtins(job),
        }
        try:
            await in_thread(files.prepare, self.place(job), spec)
        except OSError as error:
            hint = FREE if error.errno in FULL else "'fikitctl doctor' looks at the state directory"
            raise Unavailable(f"cannot write the job's directory: {error}", hint) from None

    async def take_places(self, job: Job) -> None:
        """What its runner is to make and write has room: who has waited must not be lost for want of that.

        Raises Unavailable when the disk is full.
        """
        try:
            await patiently(lambda: files.take_places(self.place(job)))
        except OSError as error:
            if error.errno in FULL:
                raise Unavailable(f"it is to be started once the disk has room: {error}", FREE) from None
            # Anything else its runner will run into, and be told of.

    async def left(self, known: Collection[int]) -> list[Job]:
        """The jobs of the directories that are none of the known, as far as those tell.

        One that a daemon was killed over before it said what to run is removed.
        """

        def look(number: int, directory: Path) -> Job | None:
            begun = any((directory / name).exists() for name in (files.LOCK, files.STARTED, files.EXIT))
            if not begun and not (directory / files.SPEC).exists():
                shutil.rmtree(directory, ignore_errors=True)
                return None
            spec = files.read(directory / files.SPEC) or {}
            try:
                job = checked(msgspec.convert(spec.get("record"), Job), number)
            except ValueError:  # msgspec's own is one
                return None
            if job.job != directory.name:
                return None
            since = moment(files.read(directory / files.STARTED))
            running = {"gpu": job.gpu_asked or 0, "started_unix": since}
            return job.moved("running", **running) if begun else job

        def look_at_all() -> list[Job]:
            found = []
            for number, directory in self._directories():
                try:
                    job = look(number, directory) if number not in known else None
                except OSError as error:  # a daemon that did not start for it would help nobody
                    structlog.get_logger().error("job_unreadable", job=directory.name, reason=str(error))
                    continue
                found += [job] if job else []
            return found

        return sorted(await in_thread(look_at_all), key=lambda job: job.number)

    async def highest(self) -> int:
        """The highest number that a directory has, whatever it holds; 0: there is none."""
        return await in_thread(lambda: max((each for each, _ in self._directories()), default=0))

    def _directories(self) -> Iterator[tuple[int, Path]]:
        for directory in self._directory.glob("job-*"):
            number = job_number(directory.name)
            if number is not None and os.path.isdir(directory):
                yield number, directory

    async def start(self, job: Job) -> Process:
        """Start the runner, once there may be one more process. Raises OSError; EndedAtOnce if it is over."""
        place = self.place(job)
        with suppress(OSError):  # what one before it said is told, and may have been much
            await in_thread(os.truncate, place / files.RUNNER_LOG, 0)
        command = [sys.executable, "-P", "-m", "fikitd.jobs.runner", str(place)]
        what = Launch(self._unit(job), command, place / files.RUNNER_LOG, {}, self._cpu_weight(job))
        return await once_there_is_room(lambda: launch(what))

    async def weigh(self, job: Job) -> None:
        """Give a job that runs the processor time of its priority, as far as we may.

        A nice value, once raised, only root can lower again: that is told in the log.
        """
        weight = self._cpu_weight(job)
        try:
            if not job.foreground and manager() is not None:
                await set_cpu_weight(self._unit(job), weight)
            elif job.pid is not None:
                await self._set_nice(job.pid, nice_of(weight), job.uid)
        except ProcessLookupError:
            return  # it has ended
        except OSError as error:
            structlog.get_logger().warning("cpu_weight_unchanged", job=job.job, reason=str(error))

    async def _set_nice(self, pid: int, nice: int, uid: int) -> None:
        await in_thread(set_nice, pid, nice, uid)
        for pause in (0.1,) * 10:
            with suppress(BlockingIOError):
                set_autogroup_nice(pid, nice, uid)
                break
            await trio.sleep(pause)
        else:
            set_autogroup_nice(pid, nice, uid)
        await trio.sleep(FORK_SECONDS)
        await in_thread(set_nice, pid, nice, uid)

    async def weigh_at_start(self, job: Job) -> None:
        """The job's process is known now; what a unit of its own was not given is given here."""
        if self._cpu_weight(job) < USUAL_CPU_WEIGHT and (job.foreground or manager() is None):
            await self.weigh(job)

    def _unit(self, job: Job) -> str:
        return f"fikitd-{job.job}"

    def _cpu_weight(self, job: Job) -> int:
        return self.low_cpu_weight() if job.priority > NORMAL else USUAL_CPU_WEIGHT

    async def find(self, job: Job, again: bool = False) -> Process | Ending | None:
        """The runner of the job, if one lives; else how the job ended, and its book is closed.

        None: nothing has begun, and the book is left open for ``again`` another runner is to be started.
        """
        place = self.place(job)

        def look() -> Process | bool:
            while (found := files.runner_process(place)) is None:
                if (closed := files.close_the_book(place, unless_unbegun=again)) is not None:
                    return closed
            return Process(*found)

        try:
            found = await patiently(look)
        except OSError:
            found = True
        if isinstance(found, Process):
            return found
        return await self._ending(job) if found else None

    async def close(self, job: Job) -> None:
        """One that has not begun never will, also if the records are lost."""
        with suppress(OSError):
            await patiently(lambda: files.close_the_book(self.place(job), unless_unbegun=False))

    async def why_unbegun(self, job: Job) -> str:
        """What is known of it, to be shown until another runner is there."""
        return UNBEGUN + await in_thread(quoted, self.place(job) / files.RUNNER_LOG)

    async def started(self, job: Job) -> tuple[int, int | None]:
        """The pid of the command, once it runs, and when it began. Raises OSError."""
        path = self.place(job) / files.STARTED
        with FileWatch(self.place(job)) as watch:
            while (found := await patiently(lambda: files.read(path))) is None:
                await watch.changed()
        if not isinstance(pid := found.get("pid"), int):
            raise OSError(errno.EINVAL, "it names no process", str(path))
        began = found.get("began")
        return pid, began if isinstance(began, int) else None

    async def _ending(self, job: Job) -> Ending:
        """What the runner, which has ended, wrote down."""
        path, lost = self.place(job) / files.EXIT, LOST
        try:
            found = await patiently(lambda: files.read(path))
        except OSError as error:
            found, lost = None, f"how it ended cannot be read: {error}"
        if not found or not isinstance(found.get("exit_code"), int):
            await in_thread(self._end_orphan, job)
            log = self.place(job) / files.RUNNER_LOG
            return Ending(None, lost + await in_thread(quoted, log))
        return Ending(int(found["exit_code"]), str(found.get("error", "")), moment(found))

    def _end_orphan(self, job: Job) -> None:
        """A job that is over holds nothing: its runner cannot end what is left of the command any more."""
        pid, began = job.pid, job.pid_started
        with suppress(OSError):
            if started := files.read(self.place(job) / files.STARTED):
                pid, began = started.get("pid"), started.get("began")
        with suppress(OSError):
            if isinstance(pid, int) and began_then(pid, began):
                signal_group(pid, signal.SIGKILL, job.uid)

    async def kill(self, job: Job, number: int, grace_ms: int) -> None:
        """Ask the runner to, whether it listens yet or not. Raises Unavailable when the disk refuses."""
        try:
            await patiently(lambda: files.ask_runner(self.place(job), number, grace_ms))
        except OSError as error:
            raise Unavailable(f"cannot reach the runner of {job.job}: {error.strerror}") from None

    async def taken(self, jobs: list[Job]) -> dict[int, int]:
        """By number, what the files of jobs that are over take of the disk."""

        def look(job: Job) -> int:
            with suppress(OSError):
                return sum(entry.stat().st_blocks * BLOCK_BYTES for entry in self.place(job).iterdir())
            return 0  # a foreground job has none

        return await in_thread(lambda: {job.number: look(job) for job in jobs})

    async def room(self) -> int:
        """Bytes that those may take together: their file system has to hold what comes, of everybody's."""
        with suppress(OSError):
            found = await in_thread(os.statvfs, self._directory)
            return found.f_blocks * found.f_frsize // DISK_SHARE
        return sys.maxsize

    async def remove(self, job: Job) -> None:
        """Forget the job's directory."""
        await in_thread(lambda: shutil.rmtree(self.place(job), ignore_errors=True))


async def process_of(pid: int | None, started: int | None) -> Process | None:
    """The process that had the pid, if it is still the one that began then."""

    def look() -> Process | None:
        if pid is None or (process := Process.by_pid(pid)) is None:
            return None
        same = False
        try:
            same = began_then(pid, started)
        finally:
            if not same:
                process.close()
        return process if same else None

    return await patiently(look)


async def until_ended(pid: int | None, started: int | None) -> None:
    """Wait for the end of the process that had the pid, if it is still the one that began then."""
    if (process := await process_of(pid, started)) is not None:
        try:
            await process.wait()
        finally:
            process.close()


async def end_group(process: Process, number: int, grace_ms: int, uid: int) -> None:
    """Signal what it leads of the user's; SIGKILL after the grace, and for what is left at its own end.

    Closes it.
    """
    send = group_signal(process, uid)
    await patiently(lambda: send(number))
    with trio.move_on_after(grace_ms / 1000):
        await process.wait()
    await patiently(lambda: send(signal.SIGKILL))
    process.close()


def group_signal(process: Process, uid: int) -> Callable[[int], None]:
    """Sends a user's signal to its process group, as a job's is; to itself alone where it leads none."""
    try:
        leads = os.getpgid(process.pid) == process.pid
    except ProcessLookupError:
        leads = False

    def send(number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # it has ended, or become another user's
            if leads:
                signal_group(process.pid, number, uid)
            elif owned(process.pid, uid):
                process.send(number)

    return send
