"""An executor without a daemon: the dispatch core on a device, with sessions that nobody controls.

``python -m bench.bare DESCRIPTOR SESSIONS ORDINAL`` hands outbox, inbox and lifeline of each session over the
socket, then waits until it is closed. What it costs beside a whole daemon is the daemon's share.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fikitd.executor.core import DispatchCore
from fikitd.executor.set_up import set_up
from fikitd.scheduling.settings import SchedulingSection

PER_SESSION = 3


@contextmanager
def bare_sessions(count: int, ordinal: int, environment: dict[str, str]) -> Iterator[list[list[int]]]:
    """Descriptors of so many sessions of a core in a process of its own; the caller closes them."""
    ours, theirs = socket.socketpair()
    with ours:
        command = [sys.executable, "-m", "bench.bare", str(theirs.fileno()), str(count), str(ordinal)]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        try:
            sessions = []
            for _ in range(count):
                _, descriptors, _, _ = socket.recv_fds(ours, 1, PER_SESSION)
                if len(descriptors) != PER_SESSION:
                    raise RuntimeError("the core without a daemon did not start")
                sessions.append(descriptors)
            yield sessions
        finally:
            ours.shutdown(socket.SHUT_RDWR)
            process.wait()


def main() -> None:
    """Serve until the other end closes."""
    descriptor, count, ordinal = map(int, sys.argv[1:])
    section = SchedulingSection()
    core = DispatchCore(set_up(ordinal, section.partitions), section, 1.0, "", "")
    with socket.socket(fileno=descriptor) as control:
        for number in range(count):
            ours, theirs = socket.socketpair()
            outbox, inbox = core.attach(f"bench-{number}", 0, 1.0, 0, 0, False, ours.detach(), -1, "")
            with theirs:
                socket.send_fds(control, [b"s"], [outbox, inbox, theirs.fileno()])
        control.recv(1)
    core.stop()


if __name__ == "__main__":
    main()
