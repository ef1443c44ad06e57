"""A daemon for the length of a block: everything it has lies in one temporary directory, and nothing stays.

Readiness comes from the daemon's own READY=1 (sd_notify), so nothing is polled. Executors outlive a daemon
by design; here they must not. So this process becomes the reaper of its descendants
(PR_SET_CHILD_SUBREAPER), and what the daemon leaves behind when it ends is found among our children.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fikit.place import JOB_VARIABLE, SOCKET_VARIABLE

from fikitctl.failures import CommandError, ExitCode
from fikitctl.leaving import handled, leave

PROGRAM: Final = (sys.executable, "-P", "-c", "from fikitd.main import main; main()")
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_READY_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 15.0


@contextmanager
def own_daemon(device: str = "auto", program: Sequence[str] = PROGRAM) -> Iterator[str]:
    """Start a daemon on ``device``; the path of its socket. Stops it whatever ends the block."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with handled(leave, signal.SIGTERM, signal.SIGHUP):
        place = Path(tempfile.mkdtemp(prefix="fikitd-"))
        job = os.environ.pop(JOB_VARIABLE, None)  # of another daemon: this one does not know it
        daemon: subprocess.Popen[bytes] | None = None
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as readiness:
                readiness.bind(str(place / "notify"))
                daemon = _start(place, device, program, libc)
                await_ready(readiness, daemon)
            yield str(place / "fikitd.sock")
        except CommandError as error:
            if error.exit_code != ExitCode.UNREACHABLE:
                raise
            # Its log goes with its place.
            message = f"{error.message}{last_words(place)}"
            raise CommandError(error.exit_code, error.code, message) from error
        finally:
            # Impatience must not leave anything behind.
            with handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
                _stop_children()
                if daemon is not None:
                    daemon.poll()  # reaped with the others: it learns of that
                shutil.rmtree(place)
                if job is not None:
                    os.environ[JOB_VARIABLE] = job


def configuration_text(place: Path, device: str) -> str:
    """The settings of such a daemon, which keeps everything in ``place``."""
    settings = {
        "socket": place / "fikitd.sock",
        "state_directory": place / "state",
        "runtime_directory": place / "run",
    }
    lines = ["[daemon]", *(f'{name} = "{path}"' for name, path in settings.items()), "drain_seconds = 0.0"]
    ceiling = ["[tenant_defaults]", 'priority_ceiling = "high"']
    return "\n".join([*lines, "[device]", f'choice = "{device}"', *ceiling, ""])


def _start(place: Path, device: str, program: Sequence[str], libc: ctypes.CDLL) -> subprocess.Popen[bytes]:
    (place / "fikitd.toml").write_text(configuration_text(place, device))
    for name in ("state", "run"):
        (place / name).mkdir(mode=0o700)
    parent = os.getpid()

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    with (place / "log").open("wb") as log:
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(place / "notify"),
            SOCKET_VARIABLE: str(place / "fikitd.sock"),
        }
        return subprocess.Popen(
            [*program, "--config", str(place / "fikitd.toml")],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=in_child,
        )


def await_ready(readiness: socket.socket, daemon: subprocess.Popen[bytes]) -> None:
    """Until it tells its NOTIFY_SOCKET that it is ready. Raises CommandError if it does not, or ends."""
    pidfd = os.pidfd_open(daemon.pid)
    try:
        while True:
            readable, _, _ = select.select([readiness.fileno(), pidfd], [], [], _READY_SECONDS)
            if readiness.fileno() in readable and b"READY=1" in readiness.recv(4096).split(b"\n"):
                return
            if not readable or pidfd in readable:
                what = "ended" if readable else f"was not ready within {_READY_SECONDS:g} s"
                raise CommandError(ExitCode.UNREACHABLE, "unreachable", f"the daemon {what}")
    finally:
        os.close(pidfd)


def last_words(place: Path) -> str:
    """What the daemon's log ends with, to be put after a message."""
    last = (place / "log").read_text(errors="replace").strip()[-2000:]
    return f"; its log ends with:\n{last}" if last else "; its log is empty"


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _stop_children() -> None:
    """End our children, and theirs as they become ours: politely first, the daemon before its executors."""
    for number, seconds in ((signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, _STOP_SECONDS)):
        while children := _children():
            ended = [_end(pid, number, seconds) for pid in children]
            if not any(ended):
                break


def _end(pid: int, number: int, seconds: float) -> bool:
    """Send a signal to our child and reap it; false when it did not end in time."""
    pidfd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(pidfd, number)
        if not select.select([pidfd], [], [], seconds)[0]:
            return False
        os.waitpid(pid, 0)
        return True
    finally:
        os.close(pidfd)
