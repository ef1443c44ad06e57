"""Arrays count against the memory that a tenant may have, and go with who made them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from fikit import protocol
from fikit.unmodified import variables

from tests.integration.end_to_end.conftest import SETTINGS, Served
from tests.integration.shim.conftest import PROGRAMS

Holder = subprocess.Popen[str]
LIMIT_MIB, ARRAY_MIB = 64, 8
FULL = f"{LIMIT_MIB // ARRAY_MIB} 0 {LIMIT_MIB} OUT_OF_MEMORY"


@pytest.fixture
def limited(stopped_daemon: Served) -> Served:
    """A daemon whose tenants may have 64 MiB."""
    limit = f"[tenant_defaults]\nmemory_limit_bytes = {LIMIT_MIB << 20}"
    stopped_daemon.configure(settings=SETTINGS.replace("[tenant_defaults]", limit))
    stopped_daemon.start()
    return stopped_daemon


@pytest.fixture
def holder(limited: Served) -> Iterator[Callable[[], Holder]]:
    """Start a program that makes and holds arrays."""
    running: list[Holder] = []

    def begin() -> Holder:
        environment = {
            **os.environ,
            "PYTHONPATH": str(PROGRAMS),
            **variables(str(limited.socket), os.environ),
        }
        command = [sys.executable, str(PROGRAMS / "array_holder.py")]
        pipe = subprocess.PIPE
        running.append(subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True))
        return running[-1]

    yield begin
    for program in running:
        program.kill()
        program.communicate()


def ask(program: Holder, wish: int) -> str:
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(f"{wish}\n")
    program.stdin.flush()
    return program.stdout.readline().strip()


def until_used(daemon: Served, *expected: int) -> None:
    """Until the sessions use so many MiB each, as far as the daemon has heard."""
    client, found = daemon.client(), []
    for _ in range(500):
        sessions = client.ask(protocol.ListSessions()).sessions
        found = sorted(session.usage.memory_bytes >> 20 for session in sessions)
        if found == sorted(expected):
            return
        threading.Event().wait(0.02)
    raise AssertionError(found)


def test_arrays_count_until_they_are_destroyed(limited: Served, holder: Callable[[], Holder]) -> None:
    program = holder()
    assert ask(program, 2) == "2 48 64 SUCCESS"
    until_used(limited, 16)
    assert ask(program, 0) == FULL
    until_used(limited, 64)
    assert ask(program, -3) == "5 24 64 SUCCESS"
    until_used(limited, 40)
    assert ask(program, 0) == FULL


def test_a_killed_program_s_arrays_are_the_tenant_s_again(
    limited: Served, holder: Callable[[], Holder]
) -> None:
    kept, killed = holder(), holder()
    assert ask(kept, 1) == "1 56 64 SUCCESS"
    assert ask(killed, 0) == "7 0 64 OUT_OF_MEMORY"
    assert ask(kept, 0) == "1 0 64 OUT_OF_MEMORY"
    killed.kill()
    killed.wait()
    until_used(limited, 8)
    assert ask(kept, 0) == FULL
