"""The machine, or a container, has as many processes as it may have: what waits for its turn is not lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fikit import protocol as p

from fikitd.jobs import files
from tests.integration.conftest import SETTINGS, Daemon, of_a_runner
from tests.integration.test_daemon_jobs import submit, wait_for

REFUSED = """
import errno, os, subprocess
def refused(real):
    def call(*arguments, **named):
        if os.path.exists(full):
            with open(full, "a") as told:
                print("refused", file=told)
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return real(*arguments, **named)
    return call
"""
RUNNER = """
os.fork = refused(os.fork)
from fikitd.jobs import runner
runner.main()
"""


def test_jobs_whose_runners_cannot_be_started_wait(stopped_daemon: Daemon) -> None:
    full = stopped_daemon.place / "full"
    patch = f"full = {str(full)!r}\n{REFUSED}\nsubprocess.Popen = refused(subprocess.Popen)"
    stopped_daemon.prologue = f"exec({patch!r}); "
    client = stopped_daemon.start().client()
    full.touch()
    jobs = [client.ask(submit("exit 3")).job.job for _ in range(3)]
    while "refused" not in full.read_text():
        pass
    for job in jobs:
        assert client.ask(p.Show(target=job)).job.ended_unix is None
    full.unlink()
    assert [wait_for(client, job).exit_code for job in jobs] == [3, 3, 3]


def test_who_wants_a_session_is_told_what_there_is_none_for(stopped_daemon: Daemon) -> None:
    full = stopped_daemon.place / "full"
    patch = f"full = {str(full)!r}\n{REFUSED}\nsubprocess.Popen = refused(subprocess.Popen)"
    patch += "\nimport fikitd.executor.supervisor as s; s.STOP_SECONDS = 0.0"
    stopped_daemon.prologue = f"exec({patch!r}); "
    settings = SETTINGS.replace("[executor]", "[executor]\nstart_seconds = 2.0")
    stopped_daemon.configure(settings=settings)
    client = stopped_daemon.start().client()
    full.touch()
    refused = client.ask(p.OpenSession(name="unlucky"))
    assert "did not start: [Errno 11] Resource temporarily unavailable" in refused.message
    full.unlink()
    while not isinstance(client.ask(p.OpenSession(name="next")), p.SessionOpened):
        pass


@pytest.mark.parametrize(("killed", "code"), [(False, 3), (True, 143)])
def test_a_runner_waits_until_its_command_can_be_started(tmp_path: Path, killed: bool, code: int) -> None:
    directory, full = tmp_path / "job-1", tmp_path / "full"
    files.prepare(directory, of_a_runner("/bin/sh", "-c", "exit 3"))
    full.touch()
    program = f"full = {str(full)!r}\n{REFUSED}{RUNNER}"
    with subprocess.Popen([sys.executable, "-P", "-c", program, str(directory)]) as runner:
        while "refused" not in full.read_text():
            assert runner.poll() is None
        if killed:
            files.ask_runner(directory, 15, 0)
        else:
            full.unlink()
        assert runner.wait() == 0
    ending = files.read(directory / files.EXIT)
    assert ending is not None
    assert ending["exit_code"] == code
