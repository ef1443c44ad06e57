"""A machine that was paused, or a daemon that was stopped: limits count the time in which it went on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fikit import protocol as p

from fikitd.jobs import files
from tests.integration.conftest import REAL, SETTINGS, Daemon, of_a_runner

LEAPS = """
import signal, time
monotonic, ahead = time.monotonic, [0]
def leap(*_): ahead[0] += 3600
time.monotonic = time.perf_counter = lambda: monotonic() + ahead[0]
signal.signal(signal.SIGUSR1, leap)
"""
RUNNER = f"{LEAPS}from fikitd.jobs import runner; runner.main()"
SAVES = """
import os, signal, sys
tell = lambda *_: os.write(1, b"told ")
signal.signal(signal.SIGTERM, tell)
signal.signal(signal.SIGCONT, tell)
tell()
open(sys.argv[1]).read()
sys.exit(7)
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


def test_a_job_has_its_grace(tmp_path: Path) -> None:
    directory, gate = tmp_path / "job-1", tmp_path / "gate"
    os.mkfifo(gate)
    files.prepare(directory, of_a_runner(sys.executable, "-c", SAVES, str(gate)))
    output = directory / files.OUTPUTS[0]
    with subprocess.Popen([sys.executable, "-P", "-c", RUNNER, str(directory)]) as runner:

        def until_told(times: int) -> None:
            while not output.exists() or output.read_text().count("told") < times:
                assert runner.poll() is None
            while Path(f"/proc/{runner.pid}/stat").read_text().rpartition(") ")[2][0] != "S":
                assert runner.poll() is None

        until_told(1)
        files.ask_runner(directory, signal.SIGTERM, 60_000)
        until_told(2)
        runner.send_signal(signal.SIGUSR1)
        files.ask_runner(directory, signal.SIGCONT, 60_000)
        until_told(3)
        gate.write_text("saved")
        assert runner.wait() == 0
    ending = files.read(directory / files.EXIT)
    assert ending is not None
    assert ending["exit_code"] == 7
