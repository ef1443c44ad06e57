"""A session that is refused, or lost: its program has an error of CUDA's, so others tell why."""

from __future__ import annotations

import os
import pwd
import select
import signal
from pathlib import Path
from typing import Any

import pytest
from fikit import protocol as p

from fikitd.executor import final_accounts
from fikitd.executor.messages import SessionEnded
from tests.integration.conftest import Client, Daemon
from tests.integration.end_to_end.conftest import listener
from tests.integration.test_daemon_jobs import submit, wait_for


def running(client: Client, script: str) -> str:
    """A job of it that runs."""
    job: str = client.ask(submit(script)).job.job
    while client.ask(p.Show(target=job)).job.state != "running":
        pass
    return job


def refused(events: Client) -> Any:
    """The next refusal that is told of."""
    while (event := events.receive()[1]).kind != "session_refused":
        pass
    return event


@pytest.mark.shares_daemon
def test_it_is_told_of_where_its_job_is_looked_at(daemon: Daemon, client: Client) -> None:
    events = daemon.client()
    events.subscribe()
    job = running(client, "exec sleep 1000")
    why = client.ask(p.OpenSession(name="refused", job=job, gpu=7)).message
    told = refused(events)
    assert (told.job, told.detail) == (job, {"code": "not_found", "reason": why})
    assert client.ask(p.Show(target=job)).job.reason == f"a session was refused: {why}"
    assert client.ask(p.OpenSession(name="of no job", gpu=7)).code == "not_found"
    assert refused(events).job is None
    assert client.ask(p.Kill(target=job, signal=9)) == p.Done()
    assert wait_for(client, job).reason.startswith("killed by ")


@pytest.mark.shares_daemon
def test_who_becomes_another_user_in_a_job_is_told_why_he_sees_no_gpu(
    daemon: Daemon, client: Client, as_user: Any
) -> None:
    """As in ``fikitctl run -- setpriv --reuid app``: a program asks for GPUs before it asks for a session."""
    events = daemon.client()
    events.subscribe()
    job = running(client, "exec sleep 1000")
    why = f"{pwd.getpwuid(65534).pw_name} has no job {job}, which FIKIT_JOB names"

    def ask() -> str:
        return str(Client(daemon.socket).ask(p.ListVisibleGpus(job=job)).message)

    assert as_user(65534, ask) == why
    told = refused(events)
    assert (told.tenant, told.job) == (pwd.getpwuid(65534).pw_name, None)
    assert told.detail == {"code": "not_found", "reason": why}
    assert client.ask(p.Kill(target=job, signal=9)) == p.Done()


@pytest.mark.shares_daemon
def test_who_asks_without_pause_does_not_fill_the_log(daemon: Daemon, client: Client) -> None:
    events = daemon.client()
    events.subscribe()
    job = running(client, "exec sleep 1000")
    for _ in range(50):
        assert client.ask(p.OpenSession(name="refused", job=job, gpu=7)).code == "not_found"
    assert client.ask(p.Kill(target=job, signal=9)) == p.Done()
    kinds = []
    while (event := events.receive()[1]).kind != "job_ended" or event.job != job:
        kinds.append(event.kind)
    assert 1 <= kinds.count("session_refused") < 50


@pytest.mark.shares_daemon
def test_a_job_that_fails_says_so(client: Client, tmp_path: Path) -> None:
    os.mkfifo(end := tmp_path / "end")
    job = running(client, f"read code < {end}; exit $code")
    why = client.ask(p.OpenSession(name="refused", job=job, gpu=7)).message
    end.write_text("3\n")
    done = wait_for(client, job)
    assert (done.state, done.exit_code, done.reason) == ("failed", 3, f"a session was refused: {why}")


@pytest.mark.shares_daemon
def test_why_a_session_was_lost_is_told_of_it_and_its_job(client: Client, tmp_path: Path) -> None:
    """As of all in a context, whoever's kernel it was that ended it."""
    os.mkfifo(end := tmp_path / "end")
    job = running(client, f"read code < {end}; exit $code")
    session = client.ask(p.OpenSession(name="lost", job=job)).session
    assert client.ask(p.Kill(target=session)) == p.Done()
    while not (shown := client.ask(p.Show(target=session)).session).reason:
        pass
    assert shown.state == "ended"
    assert client.ask(p.Show(target=job)).job.reason == f"{session} ended: {shown.reason}"
    end.write_text("3\n")
    assert wait_for(client, job).reason == f"{session} ended: {shown.reason}"


@pytest.mark.shares_daemon
def test_a_session_that_its_program_ends_has_no_reason_to_tell(daemon: Daemon, client: Client) -> None:
    events = daemon.client()
    events.subscribe()
    job = running(client, "exec sleep 1000")
    session = client.ask(p.OpenSession(name="done", job=job)).session
    os.close(client.descriptors.pop())
    while client.ask(p.Show(target=session)).session.state != "ended":
        pass
    while (event := events.receive()[1]).kind != "session_ended" or event.session != session:
        pass
    assert "error" not in event.detail  # it was told of number 4
    assert client.ask(p.Show(target=session)).session.reason == ""
    assert client.ask(p.Show(target=job)).job.reason == ""
    assert client.ask(p.Kill(target=job, signal=9)) == p.Done()


@pytest.mark.shares_daemon
def test_what_signal_ended_its_executor_is_told(daemon: Daemon, client: Client) -> None:
    """As the kernel's for want of memory: the executor itself could say nothing."""
    session = client.ask(p.OpenSession(name="lost")).session
    executor = client.ask(p.Show(target=session)).session.executor
    os.kill(listener(daemon.place / "run" / f"{executor}.sock"), signal.SIGKILL)
    while not (shown := client.ask(p.Show(target=session)).session).reason:
        pass
    assert shown.reason == f"executor {executor}: its process was ended by signal 9 (Killed)"


SHORT_OF_FILES = """
import errno, os, types
def short(place, call):
    real, left = getattr(place, call), [1, 2]
    def refuse(*arguments, **named):
        if left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(left.pop()))
        return real(*arguments, **named)
    setattr(place, call, refuse)
import fikitd.executor.final_accounts as accounts, fikitd.executor.supervisor as supervisor
short(accounts, "place")
short(supervisor, "left_behind")
"""


@pytest.mark.parametrize(("left", "prologue"), [(False, ""), (True, ""), (True, SHORT_OF_FILES)])
def test_a_job_says_what_became_of_its_session_while_no_daemon_ran(
    daemon: Daemon, left: bool, prologue: str
) -> None:
    """The executor left word of it, or was killed. The next daemon may be short of files as it starts."""
    client = daemon.client()
    os.mkfifo(end := daemon.place / "end")
    job = running(client, f"read code < {end}; exit $code")
    session = client.ask(p.OpenSession(name="lost", job=job)).session
    executor = client.ask(p.Show(target=session)).session.executor
    client.pid_of(job)
    daemon.stop(signal.SIGKILL)
    why = f"executor {executor} ended while no daemon ran"
    if left:
        why = "a fault of another's"
        ended = SessionEnded(session=session, error=700, reason=why, usage=p.Usage())
        final_accounts.leave(daemon.place / "run", ended)
    victim = os.pidfd_open(listener(daemon.place / "run" / f"{executor}.sock"))
    signal.pidfd_send_signal(victim, signal.SIGKILL)
    select.select([victim], [], [])
    os.close(victim)
    daemon.prologue = prologue
    later = daemon.start().client()
    assert later.ask(p.Show(target=job)).job.reason == f"{session} ended: {why}"
    end.write_text("3\n")
    assert wait_for(later, job).reason == f"{session} ended: {why}"
