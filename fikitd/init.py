"""As the first process of a container: who has lost his parent becomes a child of PID 1, which must reap him.

Else what has ended stays as a zombie, and takes one of the processes that the container may have: of each job
whose command leaves some behind. The daemon cannot: who waits for any child takes exit codes from those who
wait for their own. So PID 1 does that alone, and passes signals on to the daemon, which is its child.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

PASSED_ON: Final = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
SPOKEN_TO: Final = ("LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID")
"""Variables that name the process that they are for."""


def leave_pid_1() -> None:
    """Go on as a child of PID 1, where this is that; it ends as the child does. Before there are threads."""
    if os.getpid() != 1:
        return
    watched = PASSED_ON | {signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it has no zombies, and learns no exit code
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    daemon = os.fork()
    if daemon == 0:
        os.setsid()  # else Ctrl-C would come twice
        for name in SPOKEN_TO:
            if os.environ.get(name) == "1":
                os.environ[name] = str(os.getpid())
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        received = signal.sigwait(watched)
        if received != signal.SIGCHLD:
            os.kill(daemon, received)
        elif (status := reap(daemon)) is not None:
            sys.exit(status)


def reap(daemon: int) -> int | None:
    """Have all go that have ended; the exit status for ours once the daemon is among them."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return None
        if pid == daemon:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
