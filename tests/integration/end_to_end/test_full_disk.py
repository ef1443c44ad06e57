"""A disk without room, while real executors run: what runs goes on, whatever cannot be written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import Daemon, fill
from tests.integration.end_to_end.conftest import PTX, REAL


def test_an_executor_whose_log_has_no_room_goes_on(
    stopped_daemon: Daemon, small_disk: Path, connect_to: Callable[..., fikit.Session]
) -> None:
    client = stopped_daemon.start().client()
    stays, leaves = connect_to(name="stays"), connect_to(name="leaves")
    memory = stays.allocate(4096)
    (log,) = (small_disk / "logs").glob("x-*.log")
    fill(small_disk, log)
    leaves.close()
    while len(client.ask(p.ListSessions()).sessions) > 1:
        pass
    memory.fill(1)
    stays.synchronize()
    (small_disk / "filler").unlink()
    (session,) = client.ask(p.ListSessions()).sessions
    assert session.name == "stays"


def test_a_runtime_directory_without_room_is_named_and_keeps_nothing(
    stopped_daemon: Daemon, small_runtime: Path, connect_to: Callable[..., fikit.Session]
) -> None:
    """What an executor shares is mapped: the first look at a page that has no room would be the end of it."""
    client = stopped_daemon.start().client()
    filler = fill(small_runtime)
    with pytest.raises(fikit.RefusedError, match="No space left on device"):
        connect_to(name="no room")
    findings = {each.name: each.ok for each in client.ask(p.Doctor()).checks}
    assert not findings["runtime directory writable"]
    filler.unlink()
    session = connect_to(name="room")
    fill(small_runtime)
    session.close()
    while client.ask(p.ListSessions()).sessions:
        pass
    left = {path.name for path in small_runtime.iterdir() if path.suffix != ".sock"}
    own = {"board-0", "daemon.lock", "filler", f"memory-0-{os.getuid()}", f"memory-{os.getuid()}"}
    assert left == own | (set() if REAL else {"machine.0"})  # the simulated GPU's own


def test_what_is_learnt_while_the_disk_is_full_is_saved_once_there_is_room(
    stopped_daemon: Daemon, small_disk: Path, connect_to: Callable[..., fikit.Session]
) -> None:
    client = stopped_daemon.start().client()
    session = connect_to(name="learner")
    kernel = session.load(PTX).kernel("spin")
    filler = fill(small_disk)
    for _ in range(30):
        kernel.launch(500_000, grid=1, block=32)
    session.synchronize()
    while "profiles_not_taken" not in stopped_daemon.log.read_text():
        client.ask(p.ListProfiles())
    filler.unlink()
    assert "spin" in {each.function for each in client.ask(p.ListProfiles()).profiles}
