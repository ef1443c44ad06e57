"""A runner that ends before its job's command has begun, for want of something or killed, loses nothing."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest
from fikit import protocol as p

from tests.integration.conftest import Daemon
from tests.integration.test_daemon_jobs import submit, wait_for
from tests.integration.test_daemon_races import RUNNER

TROUBLE = """
import {module}
real = {module}.{call}
def refuse(*arguments, **named):
    left = int(open({fails!r}).read())
    if not left:
        return real(*arguments, **named)
    open({fails!r}, "w").write(str(left - 1))
    if not {number}:
        os.kill(os.getpid(), 9)
    raise OSError({number}, os.strerror({number}))
{module}.{call} = refuse
"""
KILLED = 0


def start(daemon: Daemon, name: str, number: int, times: int, seconds: float = 0.05) -> Path:
    """A daemon whose runners fail so often as they call this; the file that counts it down."""
    module, _, call = name.rpartition(".")
    fails, changes = daemon.place / "fails", daemon.place / "changes.py"
    fails.write_text(str(times))
    changes.write_text(TROUBLE.format(module=module, call=call, number=number, fails=os.fspath(fails)))
    runner = RUNNER.format(changed=f"exec(open('{changes}').read())")
    daemon.prologue = (
        f"exec({f'{runner}from fikitd.jobs import jobs{chr(10)}jobs.RETRY_SECONDS = {seconds}'!r}); "
    )
    daemon.start()
    return fails


@pytest.mark.shares_daemon
@pytest.mark.parametrize("name", ["./bare", "bare"])
def test_a_script_without_an_interpreter_is_told_what_it_lacks(
    daemon: Daemon, tmp_path: Path, name: str
) -> None:
    """A shell runs it by itself."""
    (tmp_path / "bare").write_text("echo as a shell would\n")
    (tmp_path / "bare").chmod(0o755)
    client, environment = daemon.client(), {"PATH": f"{tmp_path}:/usr/bin"}
    job = client.ask(p.Submit(command=[name], environment=environment, directory=str(tmp_path))).job
    done = wait_for(client, job.job)
    lacks = "No program for this machine, nor a script that begins with #! (as in #!/bin/sh)"
    assert (done.exit_code, done.reason) == (126, f"{lacks}: {name}")


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("os.pipe2", errno.ENFILE),
        ("fikitd.jobs.files.take_space", errno.EMFILE),
        ("os.fork", errno.ENOSYS),
        ("os.pidfd_open", errno.EMFILE),
        ("fikitd.process_times.start_time", KILLED),
        ("os.fork", KILLED),
        ("fikitd.jobs.files.lock", KILLED),
    ],
)
def test_a_job_that_has_not_begun_gets_another_runner(stopped_daemon: Daemon, name: str, number: int) -> None:
    fails = start(stopped_daemon, name, number, 3)
    client = stopped_daemon.client()
    mark = stopped_daemon.place / "mark"
    job = client.ask(submit(f"echo begun >> {mark}; echo out; exit 3")).job.job
    ended = wait_for(client, job)
    assert (ended.state, ended.exit_code, ended.reason) == ("failed", 3, "")
    assert (fails.read_text(), mark.read_text()) == ("0", "begun\n")
    assert client.ask(p.ReadLogs(job=job)).data == b"out\n"


def test_a_command_that_cannot_be_begun_just_now_is(stopped_daemon: Daemon) -> None:
    fails = start(stopped_daemon, "os.execvpe", errno.EAGAIN, 3)
    client = stopped_daemon.client()
    assert wait_for(client, client.ask(submit("exit 3")).job.job).exit_code == 3
    assert fails.read_text() == "0"


def test_what_keeps_a_job_from_beginning_is_told_and_it_can_be_killed(stopped_daemon: Daemon) -> None:
    start(stopped_daemon, "os.pipe2", errno.EMFILE, 1000, seconds=1000.0)
    client = stopped_daemon.client()
    job = client.ask(submit("true")).job.job
    while "before its command began" not in (told := client.ask(p.Show(target=job)).job).reason:
        pass
    assert (told.state, "Too many open files" in told.reason) == ("running", True), told.reason
    assert client.ask(p.Kill(target=job)) == p.Done()
    killed = wait_for(client, job)
    assert (killed.state, killed.exit_code) == ("killed", None)


def test_a_job_that_has_not_begun_begins_under_the_next_daemon(stopped_daemon: Daemon) -> None:
    start(stopped_daemon, "os.pipe2", errno.EMFILE, 1, seconds=1000.0)
    client = stopped_daemon.client()
    job = client.ask(submit("exit 3")).job.job
    while not client.ask(p.Show(target=job)).job.reason:
        pass
    stopped_daemon.stop(signal.SIGKILL)
    client = stopped_daemon.start().client()
    assert wait_for(client, job).exit_code == 3


def test_the_end_of_a_command_is_known_where_files_are_short(stopped_daemon: Daemon) -> None:
    """Of another user's, whose processes are looked at."""
    fails = start(stopped_daemon, "fikitd.process_group.signal_group", errno.ENFILE, 2)
    client = stopped_daemon.client()
    assert wait_for(client, client.ask(submit("exit 3")).job.job).exit_code == 3
    assert fails.read_text() == "0"
