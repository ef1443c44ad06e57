"""What is asked while something else is under way: the last word holds, however long disks take."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import pytest
import trio
from fikit import protocol as p

from fikitd.processes import Process
from tests.integration.conftest import REAL, Client, Daemon

SLOW_DISK = """
import trio
from fikitd.jobs.model import Job
from fikitd.store import Store, unpack
write = Store.write
async def slowly(self, statements):
    statements = list(statements)
    for statement, values in statements:
        if "INTO jobs" in statement:
            job = unpack(values[1], Job)
            with open(self._path.with_name("begun"), "a") as begun:
                print(job.job, job.state, file=begun)
    await trio.sleep(0.3)
    await write(self, statements)
Store.write = slowly
"""
FAILS_WHEN_CHOSEN = """
import trio
from fikitd.executor.messages import DeviceFailed
from fikitd.executor.supervisor import Supervisor
living = Supervisor._living
def fails_next(self, device, domain):
    chosen = living(self, device, domain)
    if chosen is not None and chosen.state == "serving":
        async def fail():
            self._on_event(chosen, DeviceFailed(error=700, reason="lost"))
            chosen.process.send(9)
        self._nursery.start_soon(fail)
    return chosen
Supervisor._living = fails_next
"""
SLOW_EXECUTOR = "command = ['/bin/sh', '-c', 'sleep 1; exec \"$@\"', 'sh', "

RUNNER = """
import dataclasses
from fikitd.jobs import running
launch = running.launch
runner = "import os, runpy, time; {changed}; runpy.run_module('fikitd.jobs.runner', run_name='__main__')"
async def changed(what):
    python, *_, place = what.command
    return await launch(dataclasses.replace(what, command=[python, "-P", "-c", runner, place]))
running.launch = changed
"""
SLOW_TO_LEAD = RUNNER.format(changed="lead = os.setsid; os.setsid = lambda: (time.sleep(0.5), lead())")
NO_DIRECTORY = RUNNER.format(changed="os.chdir = lambda _: time.sleep(1000)")


def submit(client: Client, script: str, **options: Any) -> str:
    request = p.Submit(
        command=["/bin/sh", "-c", script], environment=dict(os.environ), directory="/", **options
    )
    return str(client.ask(request).job.job)


def state_of(client: Client, target: str) -> str:
    shown = client.ask(p.Show(target=target))
    return str((shown.job or shown.session).state)


def running(client: Client, job: str) -> str:
    while state_of(client, job) != "running":
        pass
    return job


@pytest.fixture
def one_by_one(stopped_daemon: Daemon) -> Client:
    """One job runs at a time, and every write to the disk takes long."""
    stopped_daemon.prologue = f"exec({SLOW_DISK!r}); "
    stopped_daemon.configure("[jobs]\nmax_running = 1\n")
    return stopped_daemon.start().client()


def test_what_is_asked_of_queued_jobs_while_one_is_started_holds(
    stopped_daemon: Daemon, one_by_one: Client
) -> None:
    first = running(one_by_one, submit(one_by_one, "sleep 1000"))
    second, third = submit(one_by_one, "sleep 1000"), submit(one_by_one, "true")
    assert one_by_one.ask(p.Kill(target=first, signal=9)) == p.Done()
    while f"{second} running" not in (stopped_daemon.place / "state" / "begun").read_text():
        pass
    one_by_one.send(p.SetPriority(target=second, priority=7))
    one_by_one.send(p.Kill(target=third))
    running(one_by_one, second)
    assert one_by_one.ask(p.Show(target=second)).job.priority == 7
    assert one_by_one.ask(p.Kill(target=second, signal=9)) == p.Done()
    assert one_by_one.ask(p.Wait(job=second)).job.state == "killed"
    assert one_by_one.ask(p.Wait(job=third)).job.reason == "killed while it was queued"


def test_a_job_s_process_leads_its_session_once_it_is_known(stopped_daemon: Daemon) -> None:
    """Else a nice value would be set for a group and an autogroup that it is about to leave."""
    stopped_daemon.prologue = f"exec({SLOW_TO_LEAD!r}); "
    client = stopped_daemon.start().client()
    job = submit(client, "sleep 1000", priority=9)
    while (pid := client.ask(p.Show(target=job)).job.pid) is None:
        pass
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert client.ask(p.Kill(target=job, signal=9)) == p.Done()


def test_a_job_whose_directory_does_not_answer_can_be_killed(stopped_daemon: Daemon) -> None:
    """As that of a file server that is down: the command has not begun."""
    stopped_daemon.prologue = f"exec({NO_DIRECTORY!r}); "
    client = stopped_daemon.start().client()
    job = submit(client, "true")
    client.pid_of(job)
    assert client.ask(p.Kill(target=job)) == p.Done()
    assert client.ask(p.Wait(job=job, wait_ms=10_000)).job.state == "killed"


def test_a_foreground_job_ends_while_its_start_is_written(one_by_one: Client) -> None:
    job = one_by_one.ask(p.Submit(command=["true"], environment={}, directory="/", foreground=True)).job.job
    with subprocess.Popen(["sleep", "0.1"]) as child:
        one_by_one.send(p.JobStarted(job=job, pid=child.pid))
    assert one_by_one.ask(p.JobFinished(job=job, exit_code=3)) == p.Done()
    one_by_one.receive()
    ended = one_by_one.ask(p.Wait(job=job)).job
    assert (ended.state, ended.exit_code) == ("failed", 3)
    next_one = submit(one_by_one, "exit 4")
    assert one_by_one.ask(p.Wait(job=next_one)).job.exit_code == 4
    assert one_by_one.ask(p.Show(target=job)).job == ended


def test_a_foreground_job_that_is_killed_before_its_process_is_known_does_not_run(
    stopped_daemon: Daemon, one_by_one: Client
) -> None:
    """Its caller, which was stopped meanwhile, goes on."""
    caller = stopped_daemon.client()
    job = caller.ask(p.Submit(command=["x"], environment={}, directory="/", foreground=True)).job.job
    assert one_by_one.ask(p.Kill(target=job)) == p.Done()
    assert one_by_one.ask(p.Wait(job=job)).job.state == "killed"
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as child:
        try:
            caller.send(p.JobStarted(job=job, pid=child.pid))
            assert child.wait(10) == -signal.SIGTERM
        finally:
            child.kill()


def test_a_foreground_job_ends_with_its_caller_whose_last_word_is_its_process(
    stopped_daemon: Daemon, one_by_one: Client
) -> None:
    """Killed at once after it: by then its process may not have been noted."""
    caller = stopped_daemon.client()
    job = caller.ask(p.Submit(command=["x"], environment={}, directory="/", foreground=True)).job.job
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as child:
        caller.send(p.JobStarted(job=job, pid=child.pid))
        caller.close()
        try:
            assert child.wait(10) == -signal.SIGTERM
        finally:
            child.kill()
    ended = one_by_one.ask(p.Wait(job=job)).job
    assert (ended.state, ended.reason) == ("killed", "its caller went away")


@pytest.mark.shares_daemon
def test_a_foreground_job_that_has_ended_before_its_start_is_reported(daemon: Daemon, client: Client) -> None:
    job = client.ask(p.Submit(command=["true"], environment={}, directory="/", foreground=True)).job.job
    with subprocess.Popen(["true"]) as child:
        pass
    assert client.ask(p.JobStarted(job=job, pid=child.pid)) == p.Done()
    assert client.ask(p.JobFinished(job=job, exit_code=5)) == p.Done()
    assert client.ask(p.Show(target=job)).job.exit_code == 5


@pytest.mark.skipif(REAL, reason="a real executor takes long by itself")
@pytest.mark.parametrize("paused", [True, False])
def test_a_job_is_changed_while_its_session_is_opened(stopped_daemon: Daemon, paused: bool) -> None:
    text = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=text.replace("command = [", SLOW_EXECUTOR))
    client = stopped_daemon.start().client()
    job = running(client, submit(client, "sleep 1000"))
    if not paused:
        assert client.ask(p.Pause(target=job)) == p.Done()
    opening = stopped_daemon.client()
    opening.send(p.OpenSession(name="late", job=job))
    while not client.ask(p.Doctor()).checks[-1].name.startswith("executor"):
        pass
    assert client.ask(p.Pause(target=job) if paused else p.Resume(target=job)) == p.Done()
    assert client.ask(p.SetPriority(target=job, priority=8)) == p.Done()
    opened = opening.receive()[1]
    assert opened.priority == 8
    stopped_daemon.stop(signal.SIGKILL)  # the executor knows best, and the next daemon asks it
    again = stopped_daemon.start().client()
    session = again.ask(p.Show(target=opened.session)).session
    assert (session.state, session.priority) == ("paused" if paused else "running", 8)
    assert state_of(again, job) == session.state
    assert again.ask(p.Kill(target=job, signal=9)) == p.Done()


def test_a_pause_outlives_the_daemon(daemon: Daemon, client: Client) -> None:
    job = running(client, submit(client, "sleep 1000"))
    session = client.ask(p.OpenSession(name="held", job=job)).session
    assert client.ask(p.Pause(target=job)) == p.Done()
    daemon.stop(signal.SIGKILL)
    again = daemon.start().client()
    assert [state_of(again, each) for each in (job, session)] == ["paused", "paused"]
    assert again.ask(p.Resume(target=job)) == p.Done()
    assert [state_of(again, each) for each in (job, session)] == ["running", "running"]
    assert again.ask(p.Pause(target=session)) == p.Done()
    assert again.ask(p.Resume(target=job)) == p.Done()
    assert state_of(again, session) == "running"
    assert again.ask(p.Kill(target=job, signal=9)) == p.Done()


def test_a_session_is_resumed_whatever_became_of_who_paused_it(daemon: Daemon, client: Client) -> None:
    """Its executor has paused it though nobody waited for the answer any more."""
    events, pauses = daemon.client(), daemon.client()
    events.subscribe()
    session = client.ask(p.OpenSession(name="held")).session
    while (event := events.receive()[1]).kind != "executor_started":
        pass
    os.kill(event.detail["pid"], signal.SIGSTOP)
    pauses.send(p.Pause(target=session))
    for _ in range(5):  # by then the executor was asked
        pauses.ask(p.ListSessions())
    pauses.close()
    for _ in range(5):  # and this is over
        client.ask(p.ListSessions())
    os.kill(event.detail["pid"], signal.SIGCONT)
    assert client.ask(p.Resume(target=session)) == p.Done()
    daemon.stop(signal.SIGKILL)  # the executor knows best, and the next daemon asks it
    assert state_of(daemon.start().client(), session) == "running"


def test_a_kill_outlives_the_daemon(daemon: Daemon, client: Client) -> None:
    job = running(client, submit(client, "trap 'sleep 1; exit 3' TERM; echo up; while :; do sleep 0.1; done"))
    while not client.ask(p.ReadLogs(job=job, follow=True)).data:
        pass
    assert client.ask(p.Kill(target=job)) == p.Done()
    daemon.stop(signal.SIGKILL)
    ended = daemon.start().client().ask(p.Wait(job=job)).job
    assert (ended.state, ended.exit_code) == ("killed", 3)


def test_a_device_that_fails_as_a_session_comes_is_no_business_of_that_session(
    stopped_daemon: Daemon,
) -> None:
    stopped_daemon.prologue = f"exec({FAILS_WHEN_CHOSEN!r}); "
    client = stopped_daemon.start().client()
    opened = []
    for _ in range(6):  # all but the first come as the device fails, just before they wait or just after
        opened.append(client.ask(p.OpenSession(name="test")))
        assert isinstance(opened[-1], p.SessionOpened), opened[-1]
        assert client.ask(p.Show(target=opened[-1].session)).session.state == "running"
    assert len({each.session for each in opened}) == len(opened)


def test_jobs_that_come_at_once_are_no_more_than_a_user_may_have(stopped_daemon: Daemon) -> None:
    stopped_daemon.prologue = f"exec({SLOW_DISK!r}); "
    stopped_daemon.configure("[tenant_defaults]\nmax_jobs = 2\n")
    client = stopped_daemon.start().client()
    request = p.Submit(command=["/bin/sleep", "1000"], environment={}, directory="/")
    for _ in range(5):
        client.send(request)
    answers = [client.receive()[1] for _ in range(5)]
    assert sorted(type(each).__name__ for each in answers) == 3 * ["Failure"] + 2 * ["Submitted"]
    refused = {(each.code, each.hint) for each in answers if isinstance(each, p.Failure)}
    assert refused == {("quota", "wait until one is over, or have the tenant's max_jobs raised")}


SLOW_PROFILES = """
import trio
from fikitd.profiles import Profiles
save = Profiles.save
async def slowly(self, records, uid):
    records = list(records)
    self._store._path.with_name("saving").touch()
    await trio.sleep(0.5)
    await save(self, records, uid)
Profiles.save = slowly
"""


@pytest.mark.skipif(REAL, reason="the double knows at once what it has learnt")
def test_profiles_that_are_cleared_while_they_are_saved_are_gone(stopped_daemon: Daemon) -> None:
    stopped_daemon.prologue = f"exec({SLOW_PROFILES!r}); "
    client = stopped_daemon.start().client()
    session = client.ask(p.OpenSession(name="busy")).session
    while not (stopped_daemon.place / "state" / "saving").exists():
        pass
    assert client.ask(p.Kill(target=session)) == p.Done()  # nothing is learnt any more
    assert client.ask(p.ClearProfiles()) == p.Done()
    assert client.ask(p.ListProfiles()).profiles == []


DIES_INSTEAD = """
import os, signal
from fikitd.jobs import files
from fikitd.jobs.running import JobProcesses
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_daemon_killed_before_it_started_a_job_s_runner_starts_it_next_time(stopped_daemon: Daemon) -> None:
    stopped_daemon.prologue = f"exec({f'{DIES_INSTEAD}JobProcesses.start = die'!r}); "
    client = stopped_daemon.start().client()
    job = client.ask(p.Submit(command=["/bin/sh", "-c", "echo once"], environment={}, directory="/")).job.job
    assert stopped_daemon.process is not None
    stopped_daemon.process.wait(20)
    stopped_daemon.prologue = ""
    again = stopped_daemon.start().client()
    ended = again.ask(p.Wait(job=job)).job
    assert (ended.state, ended.exit_code) == ("finished", 0)
    assert again.ask(p.ReadLogs(job=job)).data == b"once\n"


STARTS_AND_FAILS = """
from fikitd.jobs import files, running
launch = running.launch
async def unheard(what):
    if {started}:
        await launch(what)
        while files.lock_holder(what.output.parent) is None:
            pass
    raise OSError("systemd-run did not answer")
running.launch = unheard
"""


@pytest.mark.parametrize("started", [True, False])
def test_a_runner_of_whose_start_nobody_told_is_followed_or_does_nothing(
    stopped_daemon: Daemon, started: bool
) -> None:
    """A job that is over must not go on, nor begin when a busy machine comes to it."""
    stopped_daemon.prologue = f"exec({STARTS_AND_FAILS.format(started=started)!r}); "
    client = stopped_daemon.start().client()
    mark = stopped_daemon.place / "begun"
    command = ["/bin/sh", "-c", f"touch {mark}; exit 3"]
    job = client.ask(p.Submit(command=command, environment={}, directory="/")).job.job
    ended = client.ask(p.Wait(job=job)).job
    assert (ended.state, ended.exit_code) == ("failed", 3 if started else None), ended.reason
    late = [sys.executable, "-P", "-m", "fikitd.jobs.runner", stopped_daemon.place / "state/jobs" / job]
    subprocess.run(late, timeout=20, check=False)
    assert mark.exists() == started


def test_a_daemon_killed_as_it_makes_a_job_s_directory_refuses_nobody_afterwards(
    stopped_daemon: Daemon,
) -> None:
    stopped_daemon.prologue = f"exec({f'{DIES_INSTEAD}files.write_whole = die'!r}); "
    client = stopped_daemon.start().client()
    request = p.Submit(command=["/bin/true"], environment={}, directory="/")
    client.send(request)
    assert stopped_daemon.process is not None
    stopped_daemon.process.wait(20)
    jobs = stopped_daemon.place / "state" / "jobs"
    assert [each.name for each in jobs.iterdir()] == ["job-1"]
    (jobs / "job-2").mkdir()
    (jobs / "job-2" / "spec").write_text("damaged")
    (jobs / "job-3.tar").touch()
    stopped_daemon.prologue = ""
    again = stopped_daemon.start().client()
    job = again.ask(request).job.job
    assert again.ask(p.Wait(job=job)).job.state == "finished"
    assert sorted(each.name for each in jobs.iterdir()) == ["job-2", "job-3", "job-3.tar"]


SLOW_DIRECTORY = """
import time
from fikitd.jobs import files
prepare = files.prepare
def slowly(directory, spec):
    prepare(directory, spec)
    time.sleep(0.5)
files.prepare = slowly
"""


def test_who_leaves_while_his_job_is_written_down_leaves_no_directory(stopped_daemon: Daemon) -> None:
    stopped_daemon.prologue = f"exec({SLOW_DIRECTORY!r}); "
    client = stopped_daemon.start().client()
    client.send(p.Submit(command=["/bin/true"], environment={}, directory="/"))
    jobs = stopped_daemon.place / "state" / "jobs"
    while not any(jobs.iterdir()):
        pass
    client.socket.shutdown(socket.SHUT_RDWR)
    limit = time.monotonic() + 20
    while any(jobs.iterdir()):
        assert time.monotonic() < limit, list(jobs.iterdir())
    assert stopped_daemon.client().ask(p.ListJobs()).jobs == []


@pytest.mark.parametrize("reported", [True, False])
def test_a_foreground_job_whose_daemon_was_killed_before_it_heard_of_its_process_goes_on(
    stopped_daemon: Daemon, reported: bool
) -> None:
    asking = """
import os, sys
from fikit import protocol as p
from fikit.control import Connection
with Connection(os.environ["FIKIT_SOCKET"]) as control:
    submit = p.Submit(command=["x"], environment={}, directory="/", foreground=True)
    print(control.request(submit).job.job, flush=True)
    sys.stdin.read()
"""
    environment = stopped_daemon.start().environment()
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", asking], env=environment, **pipes) as caller:
        job = caller.stdout.readline().strip()
        stopped_daemon.stop(signal.SIGKILL)
        client = stopped_daemon.start().client()
        assert client.ask(p.Show(target=job)).job.state == "running"
        assert isinstance(client.ask(p.OpenSession(name="of its process", job=job)), p.SessionOpened)
        if reported:
            assert client.ask(p.JobFinished(job=job, exit_code=3)) == p.Done()
        else:
            caller.kill()
        ended = client.ask(p.Wait(job=job)).job
    why = ("failed", 3, "") if reported else ("killed", None, "its caller went away")
    assert (ended.state, ended.exit_code, ended.reason) == why


@pytest.mark.parametrize("caller_lives", [True, False])
def test_a_foreground_job_s_end_is_told_to_the_daemon_that_comes(
    stopped_daemon: Daemon, caller_lives: bool
) -> None:
    client = stopped_daemon.start().client()
    code = "from fikitctl.main import main; main()"
    command = [sys.executable, "-P", "-c", code, "run", "--", "sh", "-c", "echo up; read line; exit 3"]
    environment, note = stopped_daemon.environment(), stopped_daemon.place / "note"
    with note.open("w") as file:
        caller = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file
        )
    with caller:
        assert caller.stdin is not None
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"up\n"
        ending = Process.by_pid(client.pid_of("job-1"))
        assert ending is not None
        stopped_daemon.stop(signal.SIGKILL)
        if not caller_lives:
            caller.kill()
        caller.stdin.close()
        trio.run(ending.wait)
        ending.close()
        ended = stopped_daemon.start().client().ask(p.Wait(job="job-1")).job
    assert note.read_text() == ""
    assert (ended.state, ended.exit_code) == (("failed", 3) if caller_lives else ("lost", None))
