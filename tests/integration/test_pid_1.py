"""The daemon as the first process of a container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fikit import protocol as p

from tests.integration.conftest import DEADLINE_SECONDS, Client, Daemon, daemons

ITS_OWN = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
"""PID namespace, as a container has one."""


class Contained(Daemon):
    def command(self) -> list[str]:
        return [*ITS_OWN, *super().command()]

    @property
    def first(self) -> int:
        assert self.process is not None
        unshare = self.process.pid
        return int(Path(f"/proc/{unshare}/task/{unshare}/children").read_text())

    def stop(self, number: int = signal.SIGTERM) -> int:
        os.kill(self.first, number)
        assert self.process is not None
        code = self.process.wait(DEADLINE_SECONDS)
        self.process = None
        return code


stopped_daemon, lasting_daemon = daemons(Contained)


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    tried = subprocess.run([*ITS_OWN, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"only root, where it may unshare, has a PID namespace: {tried.stderr.strip()}")


def left_behind(mark: str) -> Iterator[int]:
    """Who has the mark in his environment."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"MARK={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)
        except OSError:
            continue


def test_who_has_lost_his_parent_is_reaped(daemon: Contained, client: Client) -> None:
    gone, fifo = daemon.place / "gone", daemon.place / "fifo"
    os.mkfifo(gone)
    os.mkfifo(fifo)
    orphan = f"echo > {gone}; read line < {fifo}"  # it has left the job's process group
    command = ["sh", "-c", f"setsid sh -c '{orphan}' & read line < {gone}; exit 3"]
    asked = p.Submit(command=command, environment={**os.environ, "MARK": str(fifo)}, directory="/")
    waited = client.ask(p.Wait(job=client.ask(asked).job.job))
    assert waited.job.exit_code == 3
    with fifo.open("w") as told:
        left = list(left_behind(str(fifo)))
        assert left
        told.write("end\n")
    until = time.monotonic() + DEADLINE_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in left):
        assert time.monotonic() < until
        threading.Event().wait(0.01)


def test_it_ends_as_the_daemon_does(daemon: Contained) -> None:
    client = daemon.client()
    client.subscribe()
    os.kill(daemon.first, signal.SIGHUP)
    while client.receive()[1].kind != "reloaded":
        pass
    first = daemon.first
    (child,) = (int(pid) for pid in Path(f"/proc/{first}/task/{first}/children").read_text().split())
    os.kill(child, signal.SIGKILL)
    assert daemon.process is not None
    assert daemon.process.wait(DEADLINE_SECONDS) == 128 + signal.SIGKILL
    daemon.process = None
    assert daemon.start().stop() == 0


def test_a_process_that_it_does_not_see_is_not_said_to_be_killed(daemon: Contained) -> None:
    """As of another container: to the daemon its pid is 0."""
    environment = {**os.environ, "FIKIT_SOCKET": str(daemon.socket)}
    run = [sys.executable, "-P", "-c", "from fikitctl.main import main; main()", "run", "--"]
    command = [*run, "sh", "-c", "echo begun; read line; exit 3"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        client = daemon.client()
        (job,) = client.ask(p.ListJobs()).jobs
        refused = client.ask(p.Kill(target=job.job))
        assert (refused.code, refused.hint) == ("unavailable", "end it there")
        assert client.ask(p.Show(target=job.job)).job.state == "running"
        _, said = program.communicate("end\n", timeout=DEADLINE_SECONDS)
    assert program.returncode == 3
    assert "a PID namespace that the daemon does not see into: fikitctl kill cannot end it" in said
    assert client.ask(p.Wait(job=job.job)).job.exit_code == 3
