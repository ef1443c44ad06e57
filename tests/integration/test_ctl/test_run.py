"""``fikitctl run``: real children, real signals, a scripted daemon."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fikit import protocol
from fikit.protocol import Done, Failure, JobFinished, JobStarted, Submit, Submitted

Daemon = Any
START = [sys.executable, "-c", "from fikitctl.main import main; main()", "run"]
JOB = protocol.JobRecord(
    job="job-1",
    tenant="ada",
    uid=1000,
    name="x",
    command=["x"],
    directory="/",
    priority=5,
    gpu=0,
    memory_limit_bytes=0,
    isolated=False,
    state="running",
    pid=None,
    exit_code=None,
    reason="",
    submitted_unix=0,
    started_unix=0,
    ended_unix=None,
    sessions=[],
    usage=protocol.Usage(),
)


@pytest.fixture
def admitting(daemon: Daemon) -> Iterator[Daemon]:
    daemon.script |= {
        Submit: Submitted(job=JOB, environment={"FIKIT_JOB": "job-1"}),
        JobStarted: Done(),
        JobFinished: Done(),
    }
    return daemon


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*START, *command], capture_output=True, text=True, timeout=30, check=False, **options
    )


def test_exit_code_output_and_environment_are_the_commands(admitting: Daemon) -> None:
    ended = run("--", "sh", "-c", "read line; echo $FIKIT_JOB $line; echo aside >&2; exit 7", input="in\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "job-1 in\n", "aside\n")
    assert [request.job for request in admitting.of(JobStarted)] == ["job-1"]
    assert admitting.of(JobFinished) == [JobFinished(job="job-1", exit_code=7)]
    assert admitting.of(Submit)[0].foreground


def test_a_signal_is_passed_on(admitting: Daemon) -> None:
    script = "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen([*START, "sh", "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGUSR1)
        assert child.stdout.read() == "caught\n"
        assert child.wait(10) == 5


def test_a_child_killed_by_a_signal_gives_128_and_its_number(admitting: Daemon) -> None:
    assert run("sh", "-c", "kill -KILL $$").returncode == 137
    assert admitting.of(JobFinished)[-1].exit_code == 137


def test_not_found_and_not_executable(admitting: Daemon, tmp_path: Path) -> None:
    missing = run("--", "no-such-command-here")
    assert (missing.returncode, missing.stderr) == (
        127,
        "fikitctl: no-such-command-here: command not found\n",
    )
    assert admitting.of(JobFinished)[-1].exit_code == 127
    assert run(str(tmp_path)).returncode == 126
    plain = tmp_path / "plain"
    plain.write_text("text")
    assert run(str(plain)).returncode == 126


def test_our_own_failures_are_125(daemon: Daemon) -> None:
    assert run("-H", "/nonexistent/socket", "true").returncode == 125
    daemon.script[Submit] = Failure(code="quota", message="too many jobs")
    refused = run("true")
    assert (refused.returncode, refused.stderr) == (125, "fikitctl: too many jobs\n")
    assert run("--priority", "urgent", "true").returncode == 125
    daemon.script[Submit] = None
    assert run("--timeout", "50ms", "true").returncode == 125


def test_the_result_stands_when_the_daemon_goes_away(admitting: Daemon) -> None:
    admitting.hang_up.add(JobFinished)
    ended = run("sh", "-c", "exit 3")
    assert ended.returncode == 3
    assert "went away" in ended.stderr


def test_the_child_leads_its_own_group(admitting: Daemon) -> None:
    ended = run(
        sys.executable, "-c", "import os; print(os.getpgrp() == os.getpid(), os.getpgrp() == os.getsid(0))"
    )
    assert ended.stdout == "True False\n"


def test_signal_mask_and_pipes_are_as_the_caller_had_them(admitting: Daemon) -> None:
    code = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    assert run(sys.executable, "-c", code).stdout == "set()\n"
    assert run("sh", "-c", "yes | head -n 1").stdout == "y\n"


def test_a_child_that_reads_the_terminal_gets_it(admitting: Daemon) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        command = 'read line; echo "got $line"; exit 4'
        os.execv(START[0], [*START, "sh", "-c", command])
    os.write(terminal, b"hello\n")
    seen = b""
    until = time.monotonic() + 20
    while b"got hello" not in seen and time.monotonic() < until:
        seen += os.read(terminal, 1024)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
    os.close(terminal)


def test_ctrl_c_at_the_terminal_reaches_the_child(admitting: Daemon) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        command = "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done"
        os.execv(START[0], [*START, "sh", "-c", command])
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    os.close(terminal)


def test_the_job_named_by_the_daemon_is_reported(admitting: Daemon) -> None:
    admitting.script[Submit] = Submitted(job=msgspec.structs.replace(JOB, job="job-42"))
    assert run("true").returncode == 0
    assert admitting.of(JobStarted)[0].job == "job-42"


def test_ctrl_z_stops_us_with_the_child_and_cont_goes_on(admitting: Daemon) -> None:
    """What a shell does for fg: see us stopped, then continue our group."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(START[0], [*START, "sh", "-c", "echo ready; read line; exit 6"])
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 1024)
    while os.tcgetpgrp(terminal) == pid:  # until the child has read, and so was lent the terminal
        time.sleep(0.01)
    os.write(terminal, b"\x1a")
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert os.tcgetpgrp(terminal) == pid
    os.kill(pid, signal.SIGCONT)
    os.write(terminal, b"go on\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 6
    os.close(terminal)
