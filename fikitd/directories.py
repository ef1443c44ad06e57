"""Where the daemon keeps what: state that outlives a boot, sockets that do not; and that nobody else does.

Two daemons on one state directory, one socket, or one runtime directory, where each would take over the
other's executors, would undo each other's work, so all three are locked, by record locks: the kernel lets go
when the process ends, however it ends, and a child that it was about to start holds none (flock would: a
daemon that follows one that was killed then would find them taken). Nothing else in this process may open
those files: closing one lets go, too.
"""

from __future__ import annotations

import errno
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fikit.place import daemon_directory, listen_path

from fikitd.configuration import DaemonSection
from fikitd.errors import AlreadyRunningError, ConfigurationError

MOST_SOCKET_BYTES: Final = 107
"""unix(7): sun_path has room for so many and a zero."""
EXECUTOR_SOCKET: Final = "x-00000000.sock"
"""As long as the names that executors' sockets get."""
RUNTIME_LOCK: Final = "daemon.lock"
"""In the runtime directory."""


@dataclass(frozen=True)
class Directories:
    """The places of one daemon."""

    socket: Path
    state: Path
    runtime: Path

    def make(self) -> None:
        """Make what is missing of the state's. Blocking. Raises OSError."""
        for path in (self.socket, self.runtime / EXECUTOR_SOCKET):
            if len(os.fsencode(path)) > MOST_SOCKET_BYTES:
                problem = f"a socket's path can have {MOST_SOCKET_BYTES} bytes"
                raise OSError(errno.ENAMETOOLONG, problem, str(path))
        for path in (self.socket, self.runtime, self.state):
            try:
                str(path).encode()
            except UnicodeEncodeError:  # jobs and answers are to tell it
                raise OSError(errno.EILSEQ, "the path is not UTF-8", str(path)) from None
        for directory in (self.state, self.state / "jobs", self.state / "logs"):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def make_runtime(self) -> None:
        """Make the runtime directory, which who is refused must not. Blocking. Raises OSError."""
        self.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)


def choose(settings: DaemonSection, socket: Path | None) -> Directories:
    """The places that the command line, the configuration, systemd and custom decide, in this order.

    Raises ConfigurationError, UnsafePlaceError.
    """
    state = settings.state_directory or os.environ.get("STATE_DIRECTORY")
    runtime = settings.runtime_directory or os.environ.get("RUNTIME_DIRECTORY")
    listen = socket or (Path(settings.socket) if settings.socket else listen_path())
    return Directories(
        socket=listen.absolute(),
        state=(Path(state) if state else own_state()).absolute(),
        runtime=(Path(runtime) if runtime else daemon_directory() / "fikitd").absolute(),
    )


def own_state() -> Path:
    """Where a daemon of this user keeps its state. Raises ConfigurationError."""
    if os.geteuid() == 0:
        return Path("/var/lib/fikitd")
    if given := os.environ.get("XDG_STATE_HOME"):
        return Path(given) / "fikitd"
    try:
        return Path.home() / ".local/state/fikitd"
    except RuntimeError:  # a user whom nobody has made, as a container's may be
        problem = f"user {os.geteuid()} has no home: set daemon.state_directory or STATE_DIRECTORY"
        raise ConfigurationError(problem) from None


class Lock:
    """A lock that this process holds for as long as it lives."""

    def __init__(self, path: Path, whose: str) -> None:
        self._path = path
        self._whose = whose
        self._descriptor = -1

    def take(self) -> None:
        """Hold it, of the file that is there now. Raises AlreadyRunningError, OSError."""
        if self.held:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    @property
    def held(self) -> bool:
        """Whether the file that is there is the one that was taken. Blocking."""
        try:
            return self._descriptor >= 0 and os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except OSError:
            return False

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            raise AlreadyRunningError(f"another fikitd (pid {owner}) uses the {self._whose}") from None
        except OSError as error:  # a file server's, where nobody keeps locks
            reason = f"it cannot be locked: {error.strerror}"
            raise OSError(error.errno, reason, str(self._path)) from None
        pid = str(os.getpid()).encode()
        try:
            os.pwrite(descriptor, pid, 0)  # over what is there: a full disk has room for that
            os.ftruncate(descriptor, len(pid))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None


def state_lock(directories: Directories) -> Lock:
    """Of the state directory."""
    return Lock(directories.state / "lock", f"state directory {directories.state}")


def socket_lock(directories: Directories) -> Lock:
    """Of the socket that this process makes; one that systemd made is systemd's."""
    path = directories.socket
    return Lock(path.with_name(f"{path.name}.lock"), f"socket {path}")


def runtime_lock(directories: Directories) -> Lock:
    """Of the runtime directory."""
    return Lock(directories.runtime / RUNTIME_LOCK, f"runtime directory {directories.runtime}")
