"""What is recorded of several executors, of which one is lost meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import Client, Daemon
from tests.integration.end_to_end.conftest import SETTINGS
from tests.integration.test_daemon_hostile import stopped

SOON = SETTINGS.replace("[executor]", "[executor]\nunresponsive_seconds = 0.5")


@pytest.fixture
def daemon(stopped_daemon: Daemon) -> Daemon:
    stopped_daemon.configure(settings=SOON)
    return stopped_daemon.start()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_an_executor_that_is_lost_takes_no_other_recording_with_it(
    daemon: Daemon, connect: Callable[..., fikit.Session], how: signal.Signals
) -> None:
    client, events = daemon.client(), daemon.client()
    session = connect(name="stays")
    events.subscribe()
    connect(name="lost", isolated=True)
    executor, pid = started(events)
    assert client.ask(p.StartTrace()) == p.Done()
    with session.allocate(4096) as memory:
        memory.fill(1)
        session.synchronize()
    if how == signal.SIGKILL:
        os.kill(pid, how)
        while executor in executors(client):
            pass
        recorded = client.ask(p.ReadTrace(stop=False))
    else:
        with stopped(daemon):  # it is asked, and then killed by the daemon
            os.kill(pid, how)
            client.send(p.ReadTrace(stop=False))
        recorded = client.receive()[1]
    assert [each.session for each in recorded.operations] == [session.identifier]
    assert recorded.missing == [executor]
    while executor in executors(client):
        pass
    last = client.ask(p.ReadTrace())
    assert last.missing == ([] if how == signal.SIGKILL else [executor])
    assert client.ask(p.ReadTrace()).code == "invalid"


def test_an_executor_that_does_not_answer_keeps_no_other_from_being_recorded(
    stopped_daemon: Daemon, connect_to: Callable[..., fikit.Session]
) -> None:
    stopped_daemon.configure(
        settings=SETTINGS.replace("[executor]", "[executor]\nunresponsive_seconds = 1000.0")
    )
    stopped_daemon.prologue = (
        "import fikitd.executor.supervisor_state as s; s.Executor.ask.__defaults__ = (3.0,); "
    )
    client, events = stopped_daemon.start().client(), stopped_daemon.client()
    session = connect_to(name="answers")
    events.subscribe()
    connect_to(name="hangs", isolated=True)
    executor, pid = started(events)
    os.kill(pid, signal.SIGSTOP)
    assert client.ask(p.StartTrace()) == p.Done()
    with session.allocate(4096) as memory:
        memory.fill(1)
        session.synchronize()
    recorded = client.ask(p.ReadTrace(stop=False))
    os.kill(pid, signal.SIGCONT)
    assert [each.session for each in recorded.operations] == [session.identifier]
    assert recorded.missing == [executor]


def executors(client: Client) -> set[str]:
    """Those that serve."""
    checks = client.ask(p.Doctor()).checks
    return {each.name.split()[1] for each in checks if each.name.startswith("executor ")}


def started(events: Client) -> tuple[str, int]:
    """The executor that was started next, and its process."""
    while (event := events.receive()[1]).kind != "executor_started":
        pass
    return event.detail["executor"], event.detail["pid"]
