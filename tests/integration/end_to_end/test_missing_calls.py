"""System calls that only newer kernels have, and that a container's filter may not know."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import fikit
import pytest

from tests.integration.conftest import Daemon
from tests.integration.end_to_end.conftest import listener

EPOLL_PWAIT2 = 441
WITHOUT = """
import ctypes, struct
def without(call):
    # struct sock_filter: load the call's number; is it this one? no such call (ENOSYS) : let it pass.
    steps = (0x20, 0, 0, 0), (0x15, 0, 1, call), (6, 0, 0, 0x50000 | 38), (6, 0, 0, 0x7FFF0000)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HQ", len(steps), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None).prctl
    assert prctl(38, 1, 0, 0, 0) == 0  # no new privileges
    assert prctl(22, 2, program, 0, 0) == 0  # a filter of system calls
"""


@pytest.fixture
def daemon(stopped_daemon: Daemon) -> Daemon:
    stopped_daemon.prologue = f"exec({WITHOUT!r}); without({EPOLL_PWAIT2}); "
    return stopped_daemon.start()


def seconds_of(process: int) -> float:
    """Of a processor."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_executor_without_epoll_pwait2(
    daemon: Daemon, connect: Callable[..., fikit.Session], program: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Linux before 5.11. It sleeps, hears of sessions that end, and wakes for work."""
    session = connect(name="lives")
    watcher = daemon.client()
    watcher.subscribe()
    killed = program("session = fikit.connect(name='killed'); print(session.identifier, flush=True); input()")
    assert killed.stdout is not None
    identifier = killed.stdout.readline().strip()
    killed.kill()
    while (event := watcher.receive()[1]).kind != "session_ended" or event.session != identifier:
        pass
    executor = listener(next((daemon.place / "run").glob("x-*.sock")))
    with session.allocate(4096) as memory:
        memory.fill(7)
        assert memory.read() == bytes([7]) * 4096
    before = seconds_of(executor)
    threading.Event().wait(2.0)
    assert seconds_of(executor) - before < 1.0
