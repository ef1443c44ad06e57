"""Places for the daemon's log that take nothing: it loses lines and goes on."""

from __future__ import annotations

import pytest
from fikit import protocol as p

from tests.integration.conftest import Daemon

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
