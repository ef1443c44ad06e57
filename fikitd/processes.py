"""Processes by pidfd: a pid can be reused between two looks at it, a pidfd cannot.

Blocking system calls (fork and exec) run in a thread; the end of a process is an event (its pidfd becomes
readable), also for processes that are not our children: after a restart none is.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from fikitd.scarcity import in_thread

NO_LEADER: Final = {errno.EINVAL, errno.ENOENT}
"""By now the number is that of a thread of another process (pidfd_open(2))."""


class Process:
    """A running process, held by its pidfd."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._pidfd = pidfd

    @classmethod
    def by_pid(cls, pid: int) -> Process | None:
        """The process that has this pid now; None when there is none."""
        try:
            return cls(pid, os.pidfd_open(pid))
        except ProcessLookupError:
            return None
        except OSError as error:
            if error.errno in NO_LEADER:
                return None
            raise

    async def wait(self) -> int | None:
        """Return once it has ended; the signal that did it, where it is our child, which is reaped."""
        await trio.lowlevel.wait_readable(self._pidfd)
        with suppress(ChildProcessError):
            ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222 - WNOHANG
            if ended is not None and ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
                return ended.si_status
        return None

    def send(self, number: int) -> None:
        """Send a signal; nothing when it has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    async def end(self, grace_seconds: float) -> None:
        """SIGTERM, then SIGKILL after the grace; returns once it has ended."""
        self.send(signal.SIGTERM)
        with trio.move_on_after(grace_seconds):
            await self.wait()
            return
        self.send(signal.SIGKILL)
        await self.wait()

    def close(self) -> None:
        """Let go of it."""
        os.close(self._pidfd)


def ended_by(number: int | None) -> str:
    """What is to be told of it; by whom a signal was sent, the kernel's log says at best."""
    return "has ended" if number is None else f"was ended by signal {number} ({signal.strsignal(number)})"


async def spawn(command: Sequence[str], environment: Mapping[str, str], output: Path) -> Process:
    """Start a program in a session of its own, both outputs appended to ``output``. Raises OSError."""

    def start() -> Process:
        with output.open("ab") as log:
            child = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        try:
            process = Process(child.pid, os.pidfd_open(child.pid))
        except OSError:  # no descriptor is left: nobody could follow it
            child.kill()
            child.wait()
            raise
        child.returncode = 0  # reaped through the pidfd; keeps Popen from warning and waiting itself
        return process

    return await in_thread(start)
