"""A job's directory: how the daemon and the job's runner leave word for each other across crashes.

    spec      what to run (daemon -> runner), written before the runner starts
    lock      held by the runner for its life (a record lock, so the kernel tells who holds it); there
              once a runner was
    started   the command's pid and when it began (runner -> daemon), appears whole,
              before the command does anything; space for it is taken before the job's start
    control   a FIFO: one line ``SIGNAL GRACE_MS`` asks the runner to end the command
    kill      is there once the job was asked to end: a runner that does not listen yet will not start it
    stdout, stderr   its output, up to the limit
    runner.log       what the runner itself, or Python, had to say
    exit      how it ended (runner -> daemon), appears whole and synced; space for it is taken as well

All that a runner needs is made before the job's start: there may be no room for more files by then.
Standard library only: the runner imports this, and must be small and quick to start.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from fikitd.presence import is_there
from fikitd.record_lock import holder

SPEC, LOCK, STARTED, CONTROL, KILL, EXIT = "spec", "lock", "started", "control", "kill", "exit"
OUTPUTS: Final = ("stdout", "stderr")
RUNNER_LOG: Final = "runner.log"
NO_LISTENER: Final = {errno.ENXIO, errno.ENOENT}
"""What a FIFO says that nobody has open to read, or that is not there (open(2))."""
TAKEN_BYTES: Final = 4096
MOST_WHY: Final = 600
"""Characters that tell why a command did not start: the exit file has room for them, whichever they are."""


def write_whole(path: Path, content: dict[str, Any]) -> None:
    """Let a JSON file appear under its name only once it is complete and on the disk."""
    with part_of(path).open("w") as file:
        file.write(json.dumps(content))  # at once: json.dump writes each word
        file.flush()
        os.fsync(file.fileno())
    part_of(path).replace(path)
    sync(path.parent)


def take_space(path: Path) -> int:
    """A descriptor of the file to be, its space taken: a full disk must not lose what it is to say.

    Space that was taken before is kept.
    """
    descriptor = os.open(part_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, TAKEN_BYTES)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def take_places(directory: Path) -> None:
    """Make what a runner needs: a disk that is full, or has no room for more files, must not lose a job.

    Raises OSError.
    """
    for name in (STARTED, EXIT):
        os.close(take_space(directory / name))
    for path in (part_of(directory / LOCK), *(directory / name for name in (*OUTPUTS, RUNNER_LOG))):
        path.touch(0o600)
    make_control(directory)


def make_control(directory: Path) -> Path:
    """The FIFO, made where it is missing."""
    with suppress(FileExistsError):
        os.mkfifo(directory / CONTROL, 0o600)
    return directory / CONTROL


def fill_space(path: Path, descriptor: int, content: dict[str, Any]) -> None:
    """Fill the space and let the file appear, as ``write_whole`` does; the descriptor is closed.

    Where the disk fails to keep it, it is said all the same: a daemon can read it while the machine runs.
    """
    text = json.dumps(content, ensure_ascii=False).encode(errors="replace")
    os.pwrite(descriptor, text.ljust(TAKEN_BYTES), 0)
    for keep in (os.fsync, os.close):
        with suppress(OSError):
            keep(descriptor)
    part_of(path).replace(path)
    with suppress(OSError):
        sync(path.parent)


def part_of(path: Path) -> Path:
    """The file that becomes another once it is complete."""
    return path.with_name(f"{path.name}.part")


def sync(path: Path) -> None:
    """Have a directory on the disk. Raises OSError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(path: Path) -> dict[str, Any] | None:
    """A JSON file; None while it is not there, or when it is broken."""
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def prepare(directory: Path, spec: dict[str, Any]) -> None:
    """Make the directory of a job. Raises OSError."""
    directory.mkdir(mode=0o700)
    write_whole(directory / SPEC, spec)


def lock(directory: Path) -> int | None:
    """Hold the runner's lock while the descriptor is open; None: another process holds it."""
    with suppress(OSError):  # it is there, or an older daemon has made nothing ahead
        os.link(part_of(directory / LOCK), directory / LOCK)
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def lock_holder(directory: Path) -> int | None:
    """The pid of the runner that holds the lock; None when nobody does."""
    return holder(directory / LOCK)


def runner_process(directory: Path) -> tuple[int, int] | None:
    """The pid of the living runner and a pidfd of it; None when there is none.

    Asked before and after: the holder of a lock lives, so the pidfd made in between is the holder's.
    """
    while (pid := lock_holder(directory)) is not None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        if lock_holder(directory) == pid:
            return pid, descriptor
        os.close(descriptor)
    return None


def close_the_book(directory: Path, unless_unbegun: bool) -> bool | None:
    """See to it that no late runner starts the command of one that is dead.

    None: a runner lives after all. False: left open, as nothing has begun; what a dead runner had forked and
    not noted has ended with it. Raises OSError.
    """
    held = lock(directory)
    if held is None:
        return None
    try:
        if unless_unbegun and can_begin(directory):
            return False
        if read(directory / EXIT) is None:
            fill_space(directory / EXIT, take_space(directory / EXIT), {})
        return True
    finally:
        os.close(held)


def can_begin(directory: Path) -> bool:
    """Whether the command has neither begun nor been given up, and it is known. Raises OSError."""
    over = any(is_there(directory / name) for name in (STARTED, EXIT))
    return not over and read(directory / SPEC) is not None


def ask_runner(directory: Path, number: int, grace_ms: int) -> None:
    """Ask the runner to send the signal, and SIGKILL after the grace.

    A runner that does not listen yet looks for the KILL file once it does, and before it starts the command.
    Raises OSError where it cannot be told either way.
    """
    unmarked: OSError | None = None
    try:
        (directory / KILL).touch()
    except OSError as error:  # a disk that takes nothing: who listens can be asked all the same
        unmarked = error
    try:
        descriptor = os.open(directory / CONTROL, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in NO_LISTENER:
            raise
        if unmarked is not None:
            raise unmarked from None
        return
    try:
        os.write(descriptor, f"{number} {grace_ms}\n".encode())
    except BlockingIOError:  # nor is it there for who waits for room
        raise OSError(errno.ETIMEDOUT, "it does not read what it is asked", str(directory)) from None
    finally:
        os.close(descriptor)
