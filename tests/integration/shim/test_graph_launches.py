"""Beside high-priority work the kernels of a low-priority graph pass the gate one by one."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from fikit import protocol
from fikit.unmodified import variables

from tests.integration.end_to_end.conftest import Served
from tests.integration.shim.conftest import DEADLINE_SECONDS, PROGRAMS, Program

pytestmark = [pytest.mark.alone, pytest.mark.shares_daemon]

KERNELS, TIMES = 20, 5


def started(daemon: Served, name: str, priority: str, *arguments: str) -> Program:
    environment = {**os.environ, "PYTHONPATH": str(PROGRAMS), **variables(str(daemon.socket), os.environ)}
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / name), *arguments],
        env={**environment, "FIKIT_PRIORITY": priority},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def turn(program: Program) -> str:
    """Have it do its part once more; what it says then."""
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    return program.stdout.readline().strip()


def launches(daemon: Served, program: Program, least: int) -> int:
    """How many it has made, as the executor tells, once there are so many."""
    client = daemon.client()
    deadline = time.monotonic() + DEADLINE_SECONDS
    found = 0
    while found < least and time.monotonic() < deadline:
        sessions = client.ask(protocol.ListSessions()).sessions
        (found,) = (each.usage.launches for each in sessions if each.pid == program.pid)
        time.sleep(0.05)
    client.close()
    return found


@pytest.mark.parametrize("priority", ["low", "high"])
def test_beside_high_work_a_graph_comes_apart(daemon: Served, priority: str) -> None:
    program = started(daemon, "graph_launches.py", priority)
    total = 0

    def goes_through(number: int, each: int) -> None:
        nonlocal total
        assert turn(program) == f"CUDA_ERROR_NOT_READY {number * KERNELS * TIMES}"
        total += TIMES * each
        assert launches(daemon, program, total) == total

    try:
        goes_through(1, 1)
        other = started(daemon, "bursts.py", "high", "stream")
        try:
            assert turn(other) == "stepped"
            goes_through(2, KERNELS if priority == "low" else 1)
        finally:
            other.communicate("", timeout=DEADLINE_SECONDS)
    finally:
        program.communicate("", timeout=DEADLINE_SECONDS)
