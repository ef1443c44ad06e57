"""How long those wait who open sessions, and what they are told."""

from __future__ import annotations

import signal

import pytest
from fikit import protocol as p

from tests.integration.conftest import REAL, SETTINGS, Daemon

needs_double = pytest.mark.skipif(REAL, reason="needs an executor that does not answer")


def test_the_greeting_says_how_long_an_executor_may_take(stopped_daemon: Daemon) -> None:
    stopped_daemon.configure(settings=SETTINGS.replace("[executor]", "[executor]\nstart_seconds = 7.2"))
    client = stopped_daemon.start().client()
    assert client.welcome.start_seconds == 8
    client.subscribe()
    stopped_daemon.configure(settings=SETTINGS.replace("[executor]", "[executor]\nstart_seconds = 3600.0"))
    assert stopped_daemon.process is not None
    stopped_daemon.process.send_signal(signal.SIGHUP)
    while client.receive()[1].kind != "reloaded":
        pass
    assert stopped_daemon.client().welcome.start_seconds == 3600


@needs_double
def test_who_opens_a_session_is_told_while_he_waits(stopped_daemon: Daemon) -> None:
    stopped_daemon.prologue = "import fikitd.sessions as s; s.BESIDE_START_SECONDS = -59.9; "
    client = stopped_daemon.start().client()
    refused = client.ask(p.OpenSession(name="deaf"))
    assert (refused.code, refused.message) == ("unavailable", "no executor took the session within 0.1 s")
    assert client.ask(p.ListSessions()).sessions == []
