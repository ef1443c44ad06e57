"""A machine that was paused, or a daemon that was stopped: limits count the time in which it went on."""

from __future__ import annotations

import os
import signal

import pytest
from fikit import protocol as p

from tests.integration.conftest import REAL, SETTINGS, Daemon

LEAPS = """
import signal, time
monotonic, ahead = time.monotonic, [0]
def leap(*_): ahead[0] += 3600
time.monotonic = time.perf_counter = lambda: monotonic() + ahead[0]
signal.signal(signal.SIGUSR1, leap)
"""
WAITS = 'read line < {0}; exec "$@"'


@pytest.mark.skipif(REAL, reason="needs an executor that starts when it is to")
def test_an_executor_that_starts_has_its_time(stopped_daemon: Daemon) -> None:
    place = stopped_daemon.place / "gate"
    os.mkfifo(place)
    gate = os.open(place, os.O_RDWR)
    slow = SETTINGS.replace("command = [", f"command = ['/bin/sh', '-c', {WAITS.format(place)!r}, 'sh', ")
    stopped_daemon.configure(settings=slow)
    stopped_daemon.prologue = f"exec({LEAPS!r}); "
    client, events = stopped_daemon.start().client(), stopped_daemon.client()
    events.subscribe()
    client.send(p.OpenSession(name="patient"))
    while events.receive()[1].kind != "executor_started":
        pass
    assert stopped_daemon.process is not None
    stopped_daemon.process.send_signal(signal.SIGUSR1)  # an hour, as far as its clock can tell
    assert isinstance(stopped_daemon.client().ask(p.GetStatus()), p.Status)
    os.write(gate, b"\n")
    assert isinstance(client.receive()[1], p.SessionOpened)
    os.close(gate)
