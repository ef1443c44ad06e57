"""A disk without room, while real executors run: what runs goes on, whatever cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fikit
from fikit import protocol as p

from tests.integration.conftest import Daemon, fill


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
