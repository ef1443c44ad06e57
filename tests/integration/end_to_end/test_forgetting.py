"""What is known of kernels is forgotten in every executor, whatever becomes of one of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import Daemon
from tests.integration.end_to_end.conftest import PTX, SETTINGS
from tests.integration.test_daemon_hostile import stopped

SOON = SETTINGS.replace("[executor]", "[executor]\nunresponsive_seconds = 0.5")


@pytest.fixture
def daemon(stopped_daemon: Daemon) -> Daemon:
    stopped_daemon.configure(settings=SOON)
    return stopped_daemon.start()


def test_an_executor_that_hangs_keeps_no_other_from_forgetting(
    daemon: Daemon, connect: Callable[..., fikit.Session]
) -> None:
    client, events = daemon.client(), daemon.client()
    events.subscribe()
    connect(name="hangs", isolated=True)
    while (event := events.receive()[1]).kind != "executor_started":
        pass
    session = connect(name="learns")
    kernel = session.load(PTX).kernel("nothing")

    def learn() -> None:
        for _ in range(50):
            kernel.launch(grid=1, block=1)
            session.synchronize()

    learn()
    assert client.ask(p.ListProfiles()).profiles != []
    learn()  # and has not told of it
    with stopped(daemon):  # it is asked, and then killed by the daemon
        os.kill(event.detail["pid"], signal.SIGSTOP)
        client.send(p.ClearProfiles())
    assert client.receive()[1].code == "unavailable"
    assert client.ask(p.ListProfiles()).profiles == []
