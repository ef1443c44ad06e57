"""How long those wait who open sessions, and what they are told."""

from __future__ import annotations

import os
import signal

import pytest
from fikit import protocol as p

from tests.integration.conftest import REAL, SETTINGS, Daemon
from tests.integration.end_to_end.conftest import listener

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


TELLS_HOW_LONG_IT_ASKS = """
from fikitd.executor.connection import ExecutorConnection as Connection
from fikitd.executor.messages import Attach
ask = Connection.ask
async def told(self, body, kind, seconds, *more):
    if isinstance(body, Attach):
        with open(asks, "w") as file:
            file.write(str(seconds))
    return await ask(self, body, kind, seconds, *more)
Connection.ask = told
"""


def test_an_executor_has_as_long_to_take_a_session_as_who_asks_waits(stopped_daemon: Daemon) -> None:
    """On a busy machine many at once take long; ten seconds were too few."""
    asks = stopped_daemon.place / "asks"
    stopped_daemon.prologue = f"exec({f'asks = {os.fspath(asks)!r}{TELLS_HOW_LONG_IT_ASKS}'!r}); "
    client = stopped_daemon.start().client()
    assert isinstance(client.ask(p.OpenSession(name="first")), p.SessionOpened)
    assert float(asks.read_text()) >= client.welcome.start_seconds


@needs_double
def test_who_asks_an_executor_that_hangs_gets_its_successor(stopped_daemon: Daemon) -> None:
    """As it is ended for that while he waits."""
    stopped_daemon.configure(
        settings=SETTINGS.replace("[executor]", "[executor]\nunresponsive_seconds = 2.0")
    )
    client = stopped_daemon.start().client()
    assert isinstance(client.ask(p.OpenSession(name="first")), p.SessionOpened)
    (executor,) = (stopped_daemon.place / "run").glob("x-*.sock")
    os.kill(listener(executor), signal.SIGSTOP)
    opened = stopped_daemon.client().ask(p.OpenSession(name="second"))
    assert isinstance(opened, p.SessionOpened), opened
