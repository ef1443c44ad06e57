"""Jobs: run, queued, killed, read, and followed over a crash of the daemon."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fikit import protocol as p

from fikitd.jobs import files
from tests.integration.conftest import Daemon, of_a_runner

SH = "/bin/sh"


def submit(script: str, **fields: Any) -> p.Submit:
    environment = {"PATH": os.environ["PATH"]}
    return p.Submit(command=[SH, "-c", script], environment=environment, directory="/", **fields)


def wait_for(client: Any, job: str) -> p.JobRecord:
    return client.ask(p.Wait(job=job, wait_ms=15_000)).job


def until(client: Any, job: str, text: bytes) -> bytes:
    """Follow the output until it holds the text."""
    data, offset = b"", 0
    while text not in data:
        logs = client.ask(p.ReadLogs(job=job, offset=offset, follow=True))
        assert logs.data, data
        data, offset = data + logs.data, logs.offset
    return data


@pytest.mark.shares_daemon
def test_job_runs_and_its_output_is_kept(daemon: Any, client: Any) -> None:
    script = "echo out; echo err >&2; echo $FIKIT_JOB $FIKIT_SOCKET; pwd; exit 3"
    job = client.ask(submit(script, name="talker")).job
    assert job.state == "queued"
    done = wait_for(client, job.job)
    assert (done.state, done.exit_code, done.gpus, done.name) == ("failed", 3, [0], "talker")
    logs = client.ask(p.ReadLogs(job=job.job))
    assert logs.data.decode() == f"out\n{job.job} {daemon.socket}\n/\n"
    assert logs.end
    assert not logs.truncated
    assert client.ask(p.ReadLogs(job=job.job, stream="stderr")).data == b"err\n"


@pytest.mark.shares_daemon
@pytest.mark.parametrize(
    ("program", "directory", "code", "reason"),
    [
        ("no-such-program", "/", 127, "No such file or directory: no-such-program"),
        ("true", "/no/such/place", 127, "No such file or directory: /no/such/place"),
        ("", "/", 127, "No such file or directory: ''"),
        ("/dev", "/", 126, "Permission denied: /dev"),
    ],
)
def test_what_kept_a_job_from_starting_is_told_as_it_was_named(
    client: Any, program: str, directory: str, code: int, reason: str
) -> None:
    job = client.ask(p.Submit(command=[program], environment={}, directory=directory)).job
    done = wait_for(client, job.job)
    assert (done.state, done.exit_code, done.reason) == ("failed", code, reason)
    assert client.ask(p.ReadLogs(job=job.job, stream="stderr")).data.decode() == f"fikitd: {reason}\n"


@pytest.mark.shares_daemon
@pytest.mark.parametrize("name", ["{place}/moved", "./moved", "moved"])
def test_a_script_s_interpreter_is_told_to_be_missing(client: Any, tmp_path: Path, name: str) -> None:
    """As that of a virtual environment which was moved, or of a script with lines as Windows has them."""
    (tmp_path / "moved").write_bytes(b"#!/bin/sh\r\n")
    (tmp_path / "moved").chmod(0o755)
    command, environment = [name.format(place=tmp_path)], {"PATH": f"/usr/bin:{tmp_path}"}
    job = client.ask(p.Submit(command=command, environment=environment, directory=str(tmp_path))).job
    done = wait_for(client, job.job)
    assert (done.exit_code, done.reason) == (126, f"Interpreter not found: {command[0]}")


@pytest.mark.shares_daemon
@pytest.mark.parametrize("letter", ["x", "\u00e9", "\U0001f600", "\x01"])
def test_a_command_that_cannot_be_has_an_end_whatever_its_name(client: Any, letter: str) -> None:
    job = client.ask(p.Submit(command=["/" + letter * 30_000], environment={}, directory="/")).job
    done = wait_for(client, job.job)
    assert (done.state, done.exit_code) == ("failed", 126)
    assert "too long" in done.reason


def test_signals_are_a_jobs_own_whatever_the_daemons_caller_made_of_them(stopped_daemon: Daemon) -> None:
    odd = "signal.SIGCHLD, signal.SIGQUIT, signal.SIGUSR1"
    ignored = f"[signal.signal(each, signal.SIG_IGN) for each in ({odd})]"
    masked = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})"
    stopped_daemon.prologue = f"import signal; {ignored}; {masked}; "
    client = stopped_daemon.start().client()
    state = client.ask(submit("grep -E 'SigBlk|SigIgn' /proc/self/status; exit 3")).job.job
    done = wait_for(client, state)
    assert (done.state, done.exit_code) == ("failed", 3)
    logs = client.ask(p.ReadLogs(job=state))
    names, values = logs.data.split()[::2], logs.data.split()[1::2]
    assert names == [b"SigBlk:", b"SigIgn:"]
    # Signals 32 and 33 are the C library's: nobody can set them, and what its posix_spawn starts, as make
    # does, may find them ignored.
    settable = sum(1 << (number - 1) for number in signal.valid_signals())
    assert [int(value, 16) & settable for value in values] == [0, 0]


@pytest.mark.shares_daemon
def test_new_files_of_a_job_lack_what_was_asked(client: Any) -> None:
    jobs = [client.ask(submit("umask", **more)).job.job for more in ({}, {"umask": 0o027}, {"umask": 0})]
    assert all(wait_for(client, job).exit_code == 0 for job in jobs)
    masks = [int(client.ask(p.ReadLogs(job=job)).data, 8) for job in jobs]
    assert masks == [0o022, 0o027, 0]
    assert client.ask(submit("umask", umask=0o1000)).code == "invalid"


@pytest.mark.shares_daemon
def test_output_limit(client: Any) -> None:
    job = client.ask(submit("head -c 100000 /dev/zero; echo end", output_limit_bytes=1000)).job
    assert wait_for(client, job.job).state == "finished"
    logs = client.ask(p.ReadLogs(job=job.job))
    assert logs.truncated
    assert logs.data.startswith(b"\0" * 1000 + b"\n[fikitd: limit of 1000 bytes")
    assert len(logs.data) < 1200


@pytest.mark.shares_daemon
def test_kill_reaches_the_whole_group(client: Any) -> None:
    job = client.ask(submit("trap '' TERM; sleep 1000 & echo up; wait; sleep 1000")).job
    until(client, job.job, b"up")
    running = client.ask(p.Show(target=job.job)).job
    assert running.state == "running"
    assert client.ask(p.Kill(target=job.job, grace_ms=100)) == p.Done()
    done = wait_for(client, job.job)
    assert (done.state, done.exit_code) == ("killed", 128 + signal.SIGKILL)
    assert done.reason == f"killed by {done.tenant}"
    assert client.ask(p.Kill(target=job.job)).code == "invalid"


@pytest.mark.shares_daemon
def test_queue_by_memory_priority_and_age(client: Any) -> None:
    first = client.ask(submit("read line < /dev/zero; sleep 1000", memory_limit_bytes=3 << 30)).job
    low = client.ask(submit("true", memory_limit_bytes=2 << 30, priority=9)).job
    high = client.ask(submit("true", memory_limit_bytes=2 << 30, priority=0)).job
    assert [client.ask(p.Show(target=each.job)).job.state for each in (low, high)] == ["queued", "queued"]
    while not (reason := client.ask(p.Show(target=high.job)).job.reason):  # until the queue was looked at
        pass
    assert "left to reserve" in reason
    assert client.ask(p.Kill(target=first.job, signal=9)) == p.Done()
    done = [wait_for(client, each.job) for each in (high, low)]
    assert [each.state for each in done] == ["finished", "finished"]
    assert done[0].started_unix < done[1].started_unix
    assert client.ask(submit("true", memory_limit_bytes=5 << 30)).code == "quota"


def test_killed_daemon_takes_its_jobs_over(daemon: Any, client: Any) -> None:
    lives = client.ask(submit("echo up; read line < /dev/zero; sleep 1000")).job
    ends = client.ask(submit("echo up; sleep 0.3; exit 7")).job
    dies = client.ask(submit("echo up; kill -9 $PPID; sleep 0.5")).job
    waits = client.ask(submit("true", memory_limit_bytes=4 << 30)).job
    for job in (lives, ends):
        until(client, job.job, b"up")
    wait_for(client, dies.job)
    pid = client.pid_of(lives.job)
    daemon.stop(signal.SIGKILL)
    daemon.start()
    again = daemon.client()
    assert again.ask(p.Show(target=lives.job)).job.state == "running"
    assert again.ask(p.Show(target=lives.job)).job.pid == pid
    assert wait_for(again, ends.job).exit_code == 7
    assert wait_for(again, dies.job).state == "lost"
    assert wait_for(again, waits.job).state == "finished"
    assert again.ask(p.Kill(target=lives.job)) == p.Done()
    assert wait_for(again, lives.job).state == "killed"
    assert not os.path.exists(f"/proc/{pid}")
    assert [line for line in daemon.log.read_text().splitlines() if not line.startswith("{")] == []


@pytest.mark.parametrize("away", [False, True])
def test_a_job_whose_runner_is_killed_leaves_no_process(daemon: Any, client: Any, away: bool) -> None:
    job = client.ask(submit("sleep 1000 & echo $!; wait")).job.job
    child = int(until(client, job, b"\n"))
    while (pid := client.ask(p.Show(target=job)).job.pid) is None:
        pass
    runner = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    ended = os.pidfd_open(child)
    if away:
        daemon.stop(signal.SIGKILL)
    os.kill(runner, signal.SIGKILL)
    again = daemon.start().client() if away else client
    assert wait_for(again, job).state == "lost"
    assert select.select([ended], [], [], 10)[0]
    os.close(ended)


def test_a_runner_that_is_killed_before_it_has_noted_its_command_leaves_none(tmp_path: Path) -> None:
    directory, marker = tmp_path / "job-1", tmp_path / "marker"
    files.prepare(directory, of_a_runner("/usr/bin/touch", str(marker)))
    dies = (
        "import os, sys; from fikitd.jobs import files, runner; "
        "files.fill_space = lambda *_: os.kill(os.getpid(), 9); runner.main()"
    )
    reader, writer = os.pipe()  # whose end is that of the runner and of what it has forked
    command = [sys.executable, "-P", "-c", dies, str(directory)]
    assert subprocess.run(command, pass_fds=[writer], check=False).returncode == -signal.SIGKILL
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert not marker.exists()


@pytest.mark.parametrize("remembered", [True, False])
def test_job_that_ended_while_the_daemon_was_away(
    daemon: Any, client: Any, tmp_path: Path, remembered: bool
) -> None:
    away = tmp_path / "away"
    os.mkfifo(away)
    job = client.ask(submit(f"echo up; read line < {away}; exit 5")).job
    until(client, job.job, b"up")
    stat = Path(f"/proc/{client.pid_of(job.job)}/stat").read_text()
    runner = os.pidfd_open(int(stat.rpartition(")")[2].split()[1]))
    daemon.stop(signal.SIGKILL)
    up, _ = time.time(), away.write_text("\n")
    assert select.select([runner], [], [], 10)[0]
    os.close(runner)
    over = time.time()
    if not remembered:
        for part in (daemon.place / "state").glob("state.db*"):
            part.unlink()
    daemon.start()
    shown = wait_for(daemon.client(), job.job)
    assert shown.exit_code == 5
    assert job.submitted_unix <= shown.started_unix <= up <= shown.ended_unix <= over


ROOT = Path(__file__).resolve().parents[2]
OPENER = """
import os, signal, sys
sys.path.append({root!r})
from pathlib import Path
from tests.integration.conftest import Client
import pytest
from fikit import protocol as p
client = Client(Path(os.environ["FIKIT_SOCKET"]))
print(client.ask(p.OpenSession(name="busy", job=os.environ["FIKIT_JOB"])), flush=True)
signal.pause()
"""


@pytest.mark.shares_daemon
def test_sessions_of_a_job(client: Any) -> None:
    command = [sys.executable, "-P", "-c", OPENER.format(root=str(ROOT))]
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    request = p.Submit(
        command=command, environment=environment, directory="/", priority=2, memory_limit_bytes=1 << 30
    )
    job = client.ask(request).job
    until(client, job.job, b"SessionOpened")
    (session,) = client.ask(p.ListSessions()).sessions
    assert (session.job, session.priority, session.memory_limit_bytes) == (job.job, 2, 1 << 30)
    assert client.ask(p.ListGpus()).gpus[0].memory_reserved_bytes == 1 << 30
    assert client.ask(p.Pause(target=job.job)) == p.Done()
    assert client.ask(p.Show(target=session.session)).session.state == "paused"
    assert client.ask(p.Show(target=job.job)).job.state == "paused"
    assert client.ask(p.Resume(target=job.job)) == p.Done()
    assert client.ask(p.Kill(target=job.job)) == p.Done()
    done = wait_for(client, job.job)
    assert (done.state, done.sessions) == ("killed", [session.session])
    events = client.ask(p.ListSessions()).sessions
    assert events == [] or events[0].session == session.session
    assert client.ask(p.ListGpus()).gpus[0].memory_reserved_bytes == 0


@pytest.mark.shares_daemon
def test_foreground_job(daemon: Any, client: Any) -> None:
    started = client.ask(submit("unused", foreground=True))
    assert started.environment == {"FIKIT_JOB": started.job.job, "FIKIT_SOCKET": str(daemon.socket)}
    assert started.job.state == "running"
    child = subprocess.Popen(["sleep", "1000"])
    assert client.ask(p.JobStarted(job=started.job.job, pid=child.pid)) == p.Done()
    other = daemon.client()
    assert other.ask(p.Show(target=started.job.job)).job.pid == child.pid
    assert other.ask(p.Kill(target=started.job.job)) == p.Done()
    assert child.wait(10) == -signal.SIGTERM
    assert client.ask(p.JobFinished(job=started.job.job, exit_code=143)) == p.Done()
    done = wait_for(other, started.job.job)
    assert (done.state, done.exit_code) == ("killed", 143)


@pytest.mark.shares_daemon
def test_foreground_job_that_is_over_before_its_start_is_heard_of(client: Any) -> None:
    job = client.ask(submit("unused", foreground=True)).job.job
    assert client.ask(p.JobFinished(job=job, exit_code=0)) == p.Done()
    assert client.ask(p.JobStarted(job=job, pid=os.getpid())) == p.Done()
    done = wait_for(client, job)
    assert (done.state, done.pid) == ("finished", None)


@pytest.mark.shares_daemon
def test_foreground_job_whose_process_is_over_before_its_start_is_heard_of(client: Any) -> None:
    job = client.ask(submit("unused", foreground=True)).job.job
    with subprocess.Popen(["true"]) as process:
        pass
    assert client.ask(p.JobStarted(job=job, pid=process.pid)) == p.Done()
    assert client.ask(p.JobFinished(job=job, exit_code=3)) == p.Done()
    done = wait_for(client, job)
    assert (done.state, done.exit_code) == ("failed", 3)


def test_a_foreground_job_that_is_killed_while_it_waits_does_not_begin(daemon: Any, client: Any) -> None:
    whole = 4 << 30
    holds = client.ask(submit("sleep 1000", memory_limit_bytes=whole)).job.job
    caller = daemon.client()
    caller.send(submit("unused", foreground=True, memory_limit_bytes=whole))
    waiting: list[str] = []
    while not waiting:
        waiting = [each.job for each in client.ask(p.ListJobs()).jobs if each.job != holds]
    assert client.ask(p.Kill(target=waiting[0])) == p.Done()
    refused = caller.receive()[1]
    assert (refused.code, "killed while it was queued" in refused.message) == ("unavailable", True)
    assert client.ask(p.Kill(target=holds, signal=9)) == p.Done()


@pytest.mark.shares_daemon
def test_foreground_job_ends_with_its_connection(daemon: Any, client: Any) -> None:
    caller = daemon.client()
    started = caller.ask(submit("unused", foreground=True))
    child = subprocess.Popen(["sleep", "1000"])
    assert caller.ask(p.JobStarted(job=started.job.job, pid=child.pid)) == p.Done()
    caller.close()
    assert child.wait(10) == -signal.SIGTERM
    assert "caller went away" in wait_for(client, started.job.job).reason


@pytest.mark.shares_daemon
@pytest.mark.parametrize("caller_goes", [False, True])
def test_the_end_of_a_foreground_job_reaches_what_it_started(
    daemon: Any, client: Any, caller_goes: bool
) -> None:
    """As its process leads a group of its own, where fikitctl started it."""
    caller = daemon.client()
    job = caller.ask(submit("unused", foreground=True)).job.job
    script = "trap '' TERM; sleep 1000 & trap - TERM; echo $!; wait"
    child = subprocess.Popen(["sh", "-c", script], process_group=0, stdout=subprocess.PIPE)
    assert child.stdout is not None
    started = os.pidfd_open(int(child.stdout.readline()))
    assert caller.ask(p.JobStarted(job=job, pid=child.pid)) == p.Done()
    if caller_goes:
        caller.close()
    else:
        assert client.ask(p.Kill(target=job)) == p.Done()
    assert child.wait(10) == -signal.SIGTERM
    assert select.select([started], [], [], 10)[0]
    os.close(started)
    child.stdout.close()
    assert wait_for(client, job).state == "killed"


def test_restart_keeps_ended_jobs_and_numbers(daemon: Any, client: Any) -> None:
    job = client.ask(submit("true")).job
    wait_for(client, job.job)
    daemon.stop(signal.SIGTERM)
    daemon.start()
    again = daemon.client()
    assert again.ask(p.Show(target=job.job)).job.state == "finished"
    assert again.ask(submit("true")).job.job == "job-2"


@pytest.mark.shares_daemon
def test_bad_submissions(client: Any) -> None:
    assert client.ask(p.Submit(command=["x"], environment={"A=B": ""}, directory="/")).code == "invalid"
    assert client.ask(p.Submit(command=["x"], environment={}, directory="relative")).code == "invalid"
    assert client.ask(p.Submit(command=[], environment={}, directory="/")).code == "invalid"
    assert client.ask(p.Show(target="job-99999")).code == "not_found"


def test_output_on_a_full_disk_is_cut_and_says_so(stopped_daemon: Daemon, small_disk: Path) -> None:
    client = stopped_daemon.start().client()
    flood = ["/bin/sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; exit 9"]
    environment = {"PATH": "/bin:/usr/bin"}
    job = client.ask(p.Submit(command=flood, environment=environment, directory="/")).job.job
    assert client.ask(p.Wait(job=job)).job.exit_code == 9
    output = (small_disk / "jobs" / job / "stdout").read_bytes()
    assert output.startswith(b"xxxx")
    assert b"No space left on device; further output is discarded" in output
    logs = client.ask(p.ReadLogs(job=job))
    assert isinstance(logs, p.Logs)
    assert client.ask(p.OpenSession(name="full")).code == "unavailable"


def test_jobs_are_followed_without_inotify(stopped_daemon: Daemon) -> None:
    refused = "lambda *_: (ctypes.set_errno(errno.EMFILE), -1)[1]"
    watch = "fikitd.file_watch._libc.inotify_init1"
    stopped_daemon.prologue = f"import ctypes, errno, fikitd.file_watch; {watch} = {refused}; "
    client = stopped_daemon.start().client()
    job = client.ask(submit("sleep 0.5; echo up; sleep 1000")).job.job
    until(client, job, b"up")
    while (pid := client.ask(p.Show(target=job)).job.pid) is None:
        pass
    os.kill(pid, 9)
    assert wait_for(client, job).exit_code == 137


def niceness(pid: int) -> list[int]:
    """Of a process and, where the kernel has them, of its session's autogroup."""
    autogroup = Path(f"/proc/{pid}/autogroup")
    found = [os.getpriority(os.PRIO_PROCESS, pid)]
    return [*found, int(autogroup.read_text().split()[-1])] if autogroup.exists() else found


def may_lower() -> bool:
    """Whether a nice value may be taken back, by CAP_SYS_NICE."""
    (effective,) = re.findall(r"CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text())
    return bool(int(effective, 16) >> 23 & 1)


@pytest.mark.shares_daemon
def test_host_threads_of_a_low_priority_job_yield(client: Any) -> None:
    low = client.ask(submit("sleep 1000 & echo $!; wait", priority=9)).job
    usual = client.ask(submit("echo up; sleep 1000")).job
    child = int(until(client, low.job, b"\n"))
    until(client, usual.job, b"up")
    pid, other = (client.pid_of(each.job) for each in (low, usual))
    # A fifth of the usual weight, by steps of 1.25; the kernel may ask for patience.
    while set(niceness(pid)) != {7}:
        pass
    while os.getpriority(os.PRIO_PROCESS, child) != 7:
        pass
    assert set(niceness(other)) == {0}
    client.ask(p.SetPriority(target=usual.job, priority=8))
    while set(niceness(other)) != {7}:
        pass
    if may_lower():
        client.ask(p.SetPriority(target=low.job, priority=5))
        assert set(niceness(pid)) == {0}
    for each in (low, usual):
        client.ask(p.Kill(target=each.job, signal=9))


def test_a_nice_value_is_set_as_soon_as_the_kernel_lets_it(stopped_daemon: Daemon) -> None:
    """It lets one autogroup change at a time, whosever it is, for who is not its administrator."""
    refuse = "(_ for _ in ()).throw(BlockingIOError(11, 'changed a moment ago'))"
    stopped_daemon.prologue = (
        "from fikitd.jobs import running\nreal, refused = running.set_autogroup_nice, [None] * 3\n"
        f"running.set_autogroup_nice = lambda *to: (refused.pop(), {refuse}) if refused else real(*to)\n"
    )
    client = stopped_daemon.start().client()
    job = client.ask(submit("echo up; sleep 1000", priority=9)).job
    until(client, job.job, b"up")
    pid = client.pid_of(job.job)
    while set(niceness(pid)) != {7}:
        pass


def test_a_child_that_is_being_forked_is_not_missed(stopped_daemon: Daemon) -> None:
    """As if the first time it was the only one of the group."""
    stopped_daemon.prologue = (
        "from fikitd.jobs import running\nreal, missed = running.set_nice, [None]\n"
        "running.set_nice = lambda *to: missed.pop() if missed else real(*to)\n"
    )
    client = stopped_daemon.start().client()
    job = client.ask(submit("echo up; sleep 1000", priority=9)).job
    until(client, job.job, b"up")
    pid = client.pid_of(job.job)
    while os.getpriority(os.PRIO_PROCESS, pid) != 7:
        pass


def test_a_priority_is_raised_where_the_nice_value_may_not_be(stopped_daemon: Daemon) -> None:
    """As for everybody but root: the kernel lets nobody else lower it again."""
    refusing = "raise PermissionError(13, 'Permission denied')"
    patch = f"def refuse(*to): {refusing}\nfrom fikitd.jobs import running\nrunning.set_nice = refuse"
    stopped_daemon.prologue = f"exec({patch!r}); "
    client = stopped_daemon.start().client()
    job = client.ask(submit("sleep 1000", priority=9)).job.job
    client.pid_of(job)
    assert client.ask(p.SetPriority(target=job, priority=5)) == p.Done()
    assert client.ask(p.Show(target=job)).job.priority == 5
    assert '"cpu_weight_unchanged"' in stopped_daemon.log.read_text()
    assert client.ask(p.Kill(target=job, signal=9)) == p.Done()


@pytest.mark.shares_daemon
def test_host_threads_of_a_foreground_job_yield(client: Any) -> None:
    command = ["sleep", "1000"]
    job = client.ask(
        p.Submit(command=command, environment={}, directory="/", foreground=True, priority=9)
    ).job
    with subprocess.Popen(command, process_group=0) as process:
        client.ask(p.JobStarted(job=job.job, pid=process.pid))
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 7
        process.kill()
    client.ask(p.JobFinished(job=job.job, exit_code=137))
