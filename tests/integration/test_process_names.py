"""A process is called what its user likes, which need be no text, and has other numbers in a container."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fikit import protocol as p

from fikitd.process_group import owned
from fikitd.process_times import start_time
from tests.integration.conftest import Client, Daemon
from tests.integration.test_daemon_jobs import submit, wait_for

RENAMES_ITSELF = """
import ctypes
input()
ctypes.CDLL(None).prctl(15, b"\\xff")  # PR_SET_NAME
print("renamed", flush=True)
input()
"""


@contextmanager
def process_named(name: bytes, place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One that sleeps; the kernel takes its name from its program's file."""
    program = shutil.which("sleep")
    assert program is not None
    path = os.fsencode(place) + b"/" + name
    os.symlink(program, path)
    with subprocess.Popen([path, "1000"]) as process:
        try:
            while Path(f"/proc/{process.pid}/comm").read_bytes() != name + b"\n":
                pass  # Popen returns a moment before it has it
            yield process
        finally:
            process.kill()


@pytest.fixture
def named(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with process_named(b") \xff", tmp_path) as process:
        yield process


def test_what_is_asked_of_it_is_told(named: subprocess.Popen[bytes]) -> None:
    ours = start_time(os.getpid())
    assert ours is not None
    assert (start_time(named.pid) or 0) >= ours
    assert owned(named.pid, os.getuid())
    assert not owned(named.pid, os.getuid() + 1)


@pytest.mark.parametrize("line_break", [b"\r", b"\n", b"\x0c", b"\x1e"])
def test_its_name_makes_it_nobody_else_s(tmp_path: Path, line_break: bytes) -> None:
    """As a program with more rights has whatever name its caller gives it."""
    other = os.getuid() + 1
    with process_named(line_break + b"Uid:\t%d" % other, tmp_path) as process:
        assert not owned(process.pid, other)


def test_a_job_with_one_is_ended(stopped_daemon: Daemon, named: subprocess.Popen[bytes]) -> None:
    caller = stopped_daemon.start().client()
    job = caller.ask(submit("unused", foreground=True)).job.job
    assert caller.ask(p.JobStarted(job=job, pid=named.pid)) == p.Done()
    assert caller.ask(p.Kill(target=job)) == p.Done()
    assert named.wait(10) == -signal.SIGTERM


def test_a_daemon_that_follows_takes_a_job_with_one_over(stopped_daemon: Daemon) -> None:
    """One that has got its name since it was reported."""
    caller = stopped_daemon.start().client()
    job = caller.ask(submit("unused", foreground=True)).job.job
    command = [sys.executable, "-c", RENAMES_ITSELF]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert caller.ask(p.JobStarted(job=job, pid=process.pid)) == p.Done()
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"renamed\n"
        stopped_daemon.stop(signal.SIGKILL)
        client = stopped_daemon.start().client()
        assert client.ask(p.Kill(target=job)) == p.Done()
        assert process.wait(10) == -signal.SIGTERM
    assert wait_for(client, job).state == "killed"


def test_a_job_that_is_run_in_a_container_is_ended(stopped_daemon: Daemon) -> None:
    """And not whoever has the number out here that its process has in there."""
    client = stopped_daemon.start().client()
    container = ["unshare", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0 or subprocess.run([*container, "true"], check=False).returncode:
        pytest.skip("only root, where it may, makes a namespace")
    run = [sys.executable, "-P", "-c", "from fikitctl.main import main; main()", "run", "--", "sleep", "1000"]
    with subprocess.Popen([*container, *run], env=stopped_daemon.environment()) as process:
        try:
            await_job(client)
            pid = client.pid_of("job-1")
            while Path(f"/proc/{pid}/comm").read_text() != "sleep\n":  # which it is once the daemon knows it
                pass
            assert client.ask(p.Kill(target="job-1")) == p.Done()
            assert wait_for(client, "job-1").state == "killed"
            assert process.wait(10) == 128 + signal.SIGTERM
        finally:
            process.kill()


ANOTHER_BOOT = "import fikitd.process_times as times; times.boot = lambda: 1; "


@pytest.mark.parametrize("foreground", [False, True])
def test_a_process_of_a_later_boot_is_no_job_s(
    stopped_daemon: Daemon, named: subprocess.Popen[bytes], foreground: bool
) -> None:
    """Though it has the number that the job's had, and began as long after its boot."""
    client = stopped_daemon.start().client()
    job = client.ask(submit("exec sleep 1000", foreground=foreground)).job.job
    if foreground:
        assert client.ask(p.JobStarted(job=job, pid=named.pid)) == p.Done()
    pid = client.pid_of(job)
    while not foreground and Path(f"/proc/{pid}/comm").read_text() != "sleep\n":
        pass  # what its command has not begun in ends with its runner
    ended = os.pidfd_open(pid)
    stopped_daemon.stop(signal.SIGKILL)
    if not foreground:  # its runner is not there either
        os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    stopped_daemon.prologue = ANOTHER_BOOT
    client = stopped_daemon.start().client()
    assert wait_for(client, job).state == "lost"
    assert select.select([ended], [], [], 0.1)[0] == []
    signal.pidfd_send_signal(ended, signal.SIGKILL)
    os.close(ended)


def await_job(client: Client) -> None:
    """Until there is one."""
    while not client.ask(p.ListJobs()).jobs:
        pass
