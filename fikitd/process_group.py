"""What of a process group is its user's: others' processes may be in it, as what sudo starts is.

Who is root asks here before doing to a group what the kernel would let its user do to a part of it only.
Standard library only: the runner imports this.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

LOOKS: Final = 20
"""After them one that goes on forking is left: it must not hold up who looks."""


def outranks(uid: int) -> bool:
    """Whether we may do more than this user; else the kernel's own rules say what of a group is meant."""
    return os.geteuid() == 0 != uid


def numbers(process: int | str, field: bytes) -> list[int]:
    """What the kernel's ``status`` file on a process says there. Raises OSError; ProcessLookupError."""
    try:
        status = Path(f"/proc/{process}/status").read_bytes()
    except FileNotFoundError:
        raise ProcessLookupError from None
    # Its name is in there, which may be no text, and has no line break of these alone.
    line = next((line for line in status.split(b"\n") if line.startswith(field + b":")), b"")
    return [int(number) for number in line.split()[1:]]


def owned(process: int | str, uid: int) -> bool:
    """Whether it is the user's to signal and to renice: its real user is whom both calls ask for.

    ``process`` is a pid, or the path of a thread below /proc. Raises OSError; ProcessLookupError where there
    is none. Sources: kill(2), setpriority(2).
    """
    return uid == 0 or numbers(process, b"Uid")[0] == uid


def depth_of(pid: int) -> int:
    """In how many PID namespaces, of ours and inside of it, a process has a number; 0: it is gone."""
    try:
        return max(1, len(numbers(pid, b"NSpid")))  # a kernel without namespaces tells none
    except ProcessLookupError:
        return 0


def child_called(number: int, parent: int, depth: int) -> int:
    """The pid of the child that its parent, so deep, has this number for: in a container it is another.

    Raises ProcessLookupError where there is none.
    """
    if depth == 1:
        return number
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if numbers(pid, b"PPid") == [parent] and numbers(pid, b"NSpid")[depth - 1 : depth] == [number]:
                return int(pid)
    raise ProcessLookupError


def owned_members(group: int, uid: int) -> Iterator[tuple[int, int]]:
    """The pid and, while it is looked at, a pidfd of each process of the group that is the user's.

    Its leader comes first, and who is older before who is younger: a shell must not begin its next command
    because the one before was signalled before itself. What is forked meanwhile is found by another look.
    Zombies are among them. Raises OSError.
    """
    seen: set[int] = set()
    for _ in range(LOOKS):
        found = {int(name) for name in os.listdir("/proc") if name.isdigit()} - seen
        members = [pid for pid in found if _is_in(pid, group)]
        if not members:
            return
        seen.update(members)
        for pid in sorted(members, key=lambda pid: (pid != group, pid)):
            with suppress(ProcessLookupError), _pidfd(pid) as pidfd:
                # Asked with the pidfd in hand: if the pid is another's by now, the pidfd reaches nobody.
                if os.getpgid(pid) == group and owned(pid, uid):
                    yield pid, pidfd


@contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    pidfd = os.pidfd_open(pid)
    try:
        yield pidfd
    finally:
        os.close(pidfd)


def _is_in(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return False


def signal_group(group: int, number: int, uid: int) -> None:
    """Send the user's signal to a process group. Raises OSError."""
    if not outranks(uid):
        os.killpg(group, number)
        return
    for _, pidfd in owned_members(group, uid):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)
