"""Where the daemon's socket is: looked up here by both sides, so that they cannot disagree.

``FIKIT_SOCKET`` wins. Otherwise a daemon that root runs listens on ``/run/fikitd.sock``, and one that a user
runs in the user's own runtime directory, or, where there is none, in a directory under ``/tmp`` that nobody
else may own: whoever could make that directory first could pretend to be the daemon. The runtime directory is
``XDG_RUNTIME_DIR``, or, as cron and ``sudo -u`` do not set that, the one that systemd makes at login.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

SOCKET_VARIABLE: Final = "FIKIT_SOCKET"
JOB_VARIABLE: Final = "FIKIT_JOB"
"""In which processes of a job find its identifier."""
PRIORITY_VARIABLE: Final = "FIKIT_PRIORITY"
"""Of the sessions of processes that belong to no job and ask for none."""
SYSTEM_SOCKET: Final = Path("/run/fikitd.sock")
RUNTIME_DIRECTORIES: Final = Path("/run/user")
"""In here each user who is logged in has one, by uid."""


class UnsafePlaceError(Exception):
    """The directory of the socket belongs to somebody else, or others may write to it."""


def own_directory() -> Path:
    """The directory of what a daemon of this user keeps while it runs. May not exist yet."""
    if os.getuid() == 0:
        return SYSTEM_SOCKET.parent
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime)
    if os.path.isdir(made := RUNTIME_DIRECTORIES / str(os.getuid())):
        return made
    return Path(f"/tmp/fikitd-{os.getuid()}")  # noqa: S108 - its owner is checked


def check_directory(directory: Path) -> None:
    """Raises UnsafePlaceError unless the directory is ours, or root's, and nobody else's to write to."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.getuid()) or found.st_mode & 0o022:
        raise UnsafePlaceError(f"{directory} is not a directory that only user {os.getuid()} may write to")


def daemon_directory() -> Path:
    """``own_directory``, made when it is the one under /tmp. Raises UnsafePlaceError."""
    directory = own_directory()
    if directory.parent == Path("/tmp"):  # noqa: S108 - see own_directory
        directory.mkdir(mode=0o700, exist_ok=True)
        check_directory(directory)
    return directory


def listen_path() -> Path:
    """Where a daemon of this user listens."""
    if named := os.environ.get(SOCKET_VARIABLE):
        return Path(named)
    return daemon_directory() / "fikitd.sock"


def default_socket() -> Path:
    """Where a client looks: ``FIKIT_SOCKET``, the user's own daemon where it listens, or the system's."""
    if named := os.environ.get(SOCKET_VARIABLE):
        return Path(named)
    directory = own_directory()
    own = directory / "fikitd.sock"
    # Not own.exists(), which raises where XDG_RUNTIME_DIR is another user's, as su leaves it.
    if os.path.exists(own) and own != SYSTEM_SOCKET:
        check_directory(directory)
        return own
    return SYSTEM_SOCKET if SYSTEM_SOCKET.exists() else own
