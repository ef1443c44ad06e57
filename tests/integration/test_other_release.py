"""Executors of another release than the daemon's, which was replaced beside them."""

from __future__ import annotations

import signal

from fikit import protocol as p

from tests.integration.conftest import Daemon


def test_an_executor_of_another_release_keeps_its_sessions_and_gets_no_more(stopped_daemon: Daemon) -> None:
    """It need not understand how this release asks, nor the channels of its clients."""
    client = stopped_daemon.start(FIKIT_DOUBLE_RELEASE="0.0.9").client()
    older = client.ask(p.OpenSession(name="older")).session
    stopped_daemon.stop(signal.SIGKILL)
    later = stopped_daemon.start().client()
    newer = later.ask(p.OpenSession(name="newer")).session
    told = {each.session: each.executor for each in later.ask(p.ListSessions()).sessions}
    assert (told.keys(), len(set(told.values()))) == ({older, newer}, 2)
    checks = [each.detail for each in later.ask(p.Doctor()).checks if each.name == f"executor {told[older]}"]
    assert checks[0].endswith("of another release, takes no more sessions")


def test_it_ends_with_its_last_session(stopped_daemon: Daemon) -> None:
    """Nobody else can come, and its context has memory of the GPU."""
    client = stopped_daemon.start(FIKIT_DOUBLE_RELEASE="0.0.9").client()
    older = client.ask(p.OpenSession(name="older")).session
    stopped_daemon.stop(signal.SIGKILL)
    later = stopped_daemon.start().client()
    executor = later.ask(p.Show(target=older)).session.executor
    events = stopped_daemon.client()
    events.subscribe()
    later.ask(p.Kill(target=older))
    while (event := events.receive()[1]).kind != "executor_ended":
        pass
    assert (event.detail["executor"], event.detail["reason"]) == (executor, "stopped: idle")
