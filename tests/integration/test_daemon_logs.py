"""Places for logs that take nothing, or do not answer: the daemon loses lines and goes on."""

from __future__ import annotations

import os

import pytest
from fikit import protocol as p

from tests.integration.conftest import Daemon
from tests.integration.test_daemon_life import watched

FULL_DISK = "log = os.open('/dev/full', os.O_WRONLY)"
NO_READER = "reader, log = os.pipe(); os.close(reader)"
NOBODY_READS = "reader, log = os.pipe(); os.write(log, bytes(65536))"


@pytest.mark.parametrize("log", [FULL_DISK, NO_READER, NOBODY_READS])
def test_a_log_that_takes_nothing_stops_nobody(stopped_daemon: Daemon, log: str) -> None:
    stopped_daemon.prologue = f"import os; {log}; os.dup2(log, 2); "
    client = stopped_daemon.start().client()
    assert isinstance(client.ask(p.OpenSession(name="unheard")), p.SessionOpened)
    for exit_code in range(3):
        submit = p.Submit(command=["/bin/sh", "-c", f"exit {exit_code}"], environment={}, directory="/")
        job = client.ask(submit).job.job
        assert client.ask(p.Wait(job=job)).job.exit_code == exit_code
    assert stopped_daemon.stop() == 0


def test_a_disk_of_executors_logs_that_does_not_answer_stops_no_heartbeat(stopped_daemon: Daemon) -> None:
    """The watchdog would end the daemon for it."""
    stalled = stopped_daemon.place / "stalled"
    os.mkfifo(stalled)
    trim = f"supervisor.trim = lambda *_: open({str(stalled)!r}).read()"
    stopped_daemon.prologue = f"from fikitd.executor import supervisor; {trim}; "
    beat = "heartbeat_seconds = 0.1"
    text = stopped_daemon.config.read_text()
    quick = f"{beat}\nunresponsive_seconds = 0.2\nkill_unresponsive = false"
    stopped_daemon.configure(settings=text.replace(beat, quick))
    with watched(stopped_daemon) as notified:
        assert isinstance(stopped_daemon.client().ask(p.OpenSession(name="served")), p.SessionOpened)
        with stalled.open("w"):  # it is being read by now
            for _ in range(6):
                assert notified.recv(4096).startswith(b"WATCHDOG=1")
