"""Pinned memory of sessions that are over: their programs may look at it, and so it counts as theirs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import Daemon
from tests.integration.end_to_end.conftest import SETTINGS

Connect = Callable[..., fikit.Session]
MIB = 1 << 20


@pytest.fixture
def daemon(stopped_daemon: Daemon) -> Daemon:
    stopped_daemon.configure(
        settings=SETTINGS.replace("[scheduling]", f"[scheduling]\nhost_memory_limit_bytes = {8 * MIB}")
    )
    return stopped_daemon.start()


def once_there_is_room(session: fikit.Session, size: int) -> fikit.PinnedMemory:
    """What was freed is back once nothing is in flight, in the order in which it was freed."""
    while True:
        with suppress(fikit.OutOfMemoryError):
            return session.allocate_pinned(size)


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_it_counts_until_the_program_lets_go_of_it(daemon: Daemon, connect: Connect, how: str) -> None:
    other, session = connect(), connect()
    pinned = session.allocate_pinned(5 * MIB)
    view = memoryview(pinned)
    view[:4] = b"kept"
    if how == "closed":
        session.close()
    else:
        client = daemon.client()
        assert client.ask(p.Kill(target=session.identifier)) == p.Done()
        while len(client.ask(p.ListSessions()).sessions) > 1:
            pass
    once_there_is_room(other, 2 * MIB).free()
    there = once_there_is_room(other, 3 * MIB)
    with pytest.raises(fikit.OutOfMemoryError):
        other.allocate_pinned(MIB)
    assert view[:4] == b"kept"
    view.release()
    pinned.free()
    once_there_is_room(other, 5 * MIB).free()
    there.free()


def test_its_executor_lives_as_long(daemon: Daemon, connect: Connect) -> None:
    """One of an isolated session would end with that."""
    events = daemon.client()
    events.subscribe()
    session = connect(isolated=True)
    pinned = session.allocate_pinned(5 * MIB)
    with memoryview(pinned):
        session.close()
        for _ in range(3):
            connect(isolated=True).close()
            while events.receive()[1].kind != "executor_ended":
                pass
        with pytest.raises(fikit.OutOfMemoryError):
            connect().allocate_pinned(5 * MIB)
    pinned.free()
    while events.receive()[1].kind != "executor_ended":
        pass
    once_there_is_room(connect(), 5 * MIB).free()
