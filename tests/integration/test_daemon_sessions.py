"""Sessions: opened, seen, changed, ended; over crashes of the daemon and of an executor."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from typing import Any

import pytest
from fikit import protocol as p

from fikitd.executor import messages as m
from tests.integration.conftest import REAL, Client, Daemon

needs_double = pytest.mark.skipif(
    REAL, reason="asks the double for something that no executor does on request"
)


@pytest.mark.shares_daemon
def test_hello_and_status(client: Any) -> None:
    assert client.welcome.version == p.PROTOCOL_VERSION
    assert client.welcome.uid == os.getuid()
    status = client.ask(p.GetStatus())
    assert isinstance(status, p.Status)
    assert len(status.gpus) == 1


@pytest.mark.shares_daemon
def test_open_session_hands_over_the_channel(daemon: Any, client: Any) -> None:
    opened = client.ask(p.OpenSession(name="first"))
    assert isinstance(opened, p.SessionOpened), opened
    outbox, inbox, lifeline = client.descriptors
    assert os.fstat(outbox).st_size >= 4096
    assert os.fstat(inbox).st_size >= 4096
    (record,) = client.ask(p.ListSessions()).sessions
    assert (record.session, record.pid, record.state) == (opened.session, os.getpid(), "running")
    assert record.memory_limit_bytes == opened.memory_limit_bytes > 0
    events = daemon.client()
    events.subscribe()
    os.close(lifeline)
    client.descriptors.remove(lifeline)
    while (ended := events.receive()[1]).session != opened.session:
        pass  # of an executor that nobody has used for long
    assert ended.kind == "session_ended"
    assert client.ask(p.Show(target=opened.session)).session.state == "ended"


@pytest.mark.shares_daemon
def test_pause_priority_kill(client: Any) -> None:
    session = client.ask(p.OpenSession(name="changed")).session
    assert client.ask(p.Pause(target=session)) == p.Done()
    assert client.ask(p.Show(target=session)).session.state == "paused"
    assert client.ask(p.Resume(target=session)) == p.Done()
    assert client.ask(p.SetPriority(target=session, priority=9)) == p.Done()
    assert client.ask(p.Show(target=session)).session.priority == 9
    assert client.ask(p.Kill(target=session)) == p.Done()
    lifeline = socket.socket(fileno=client.descriptors.pop())
    lifeline.settimeout(10)
    assert lifeline.recv(1) == b""
    lifeline.close()


def test_killed_daemon_takes_its_sessions_over(daemon: Any, client: Any) -> None:
    session = client.ask(p.OpenSession(name="busy", memory_limit_bytes=1 << 20)).session
    before = client.ask(p.Show(target=session)).session
    daemon.stop(signal.SIGKILL)
    daemon.start()
    again = daemon.client()
    after = again.ask(p.Show(target=session)).session
    assert (after.executor, after.pid, after.opened_unix) == (before.executor, before.pid, before.opened_unix)
    assert after.usage.launches == (0 if REAL else 10)
    assert again.ask(p.ListGpus()).gpus[0].memory_reserved_bytes == 1 << 20
    assert again.ask(p.Kill(target=session)) == p.Done()


@needs_double
def test_dead_executor_ends_only_its_sessions(daemon: Any, client: Any) -> None:
    events = daemon.client()
    events.subscribe()
    kept = client.ask(p.OpenSession(name="kept", isolated=True))
    lost = client.ask(p.OpenSession(name="lost"))
    refused = client.ask(p.OpenSession(name="crash"))
    assert isinstance(refused, p.Failure)
    assert refused.code == "unavailable"
    while (event := events.receive()[1]).kind != "session_ended":
        pass
    assert event.session == lost.session
    fresh = client.ask(p.OpenSession(name="fresh"))
    assert isinstance(fresh, p.SessionOpened)
    assert {each.session for each in client.ask(p.ListSessions()).sessions} == {kept.session, fresh.session}


def test_a_session_that_comes_as_its_executor_is_killed_gets_another(daemon: Any, client: Any) -> None:
    events = daemon.client()
    events.subscribe()
    client.ask(p.OpenSession(name="first"))
    for _ in range(10):  # in whichever order the daemon finds the two when it goes on
        while (event := events.receive()[1]).kind != "executor_started":
            pass
        daemon.process.send_signal(signal.SIGSTOP)
        os.kill(event.detail["pid"], signal.SIGKILL)
        asked = client.send(p.OpenSession(name="next"))
        daemon.process.send_signal(signal.SIGCONT)
        answered, opened = client.receive()
        assert answered == asked
        assert isinstance(opened, p.SessionOpened), opened


@pytest.mark.shares_daemon
@needs_double
def test_refused_attach(client: Any) -> None:
    refused = client.ask(p.OpenSession(name="unattachable"))
    assert (refused.code, "unattachable" in refused.message) == ("unavailable", True)
    assert client.descriptors == []


@needs_double
def test_unresponsive_executor_is_replaced(stopped_daemon: Any) -> None:
    settings = stopped_daemon.config.read_text()
    stopped_daemon.configure(
        settings=settings.replace(
            "heartbeat_seconds = 0.1", "heartbeat_seconds = 0.1\nunresponsive_seconds = 2.0"
        )
    )
    client = stopped_daemon.start().client()
    assert client.ask(p.OpenSession(name="deaf")).code == "unavailable"
    # On a machine that is busy one may itself need longer than that to start.
    answers = (client.ask(p.OpenSession(name="after")) for _ in range(5))
    assert any(isinstance(answer, p.SessionOpened) for answer in answers)


def test_an_executor_answers_a_daemon_that_was_stopped(stopped_daemon: Any) -> None:
    settings = stopped_daemon.config.read_text()
    quick = "heartbeat_seconds = 0.1\nunresponsive_seconds = 2.0"
    stopped_daemon.configure(settings=settings.replace("heartbeat_seconds = 0.1", quick))
    daemon = stopped_daemon.start()
    client = daemon.client()
    events = daemon.client()
    events.subscribe()
    session = client.ask(p.OpenSession(name="kept")).session
    while (event := events.receive()[1]).kind != "executor_started":
        pass
    stopped = (event.detail["pid"], daemon.process.pid)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.5)  # by now the executor has been asked
    time.sleep(2)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)
    time.sleep(1)
    assert [each.session for each in client.ask(p.ListSessions()).sessions] == [session]
    assert "executor_unresponsive" not in daemon.log.read_text()


def test_idle_executor_stops(stopped_daemon: Any) -> None:
    settings = stopped_daemon.config.read_text()
    stopped_daemon.configure(
        settings=settings.replace("heartbeat_seconds = 0.1", "heartbeat_seconds = 0.1\nidle_seconds = 0.3")
    )
    client = stopped_daemon.start().client()
    events = stopped_daemon.client()
    events.subscribe()
    session = client.ask(p.OpenSession(name="short")).session
    client.ask(p.Kill(target=session))
    while (event := events.receive()[1]).kind != "executor_ended":
        pass
    assert "idle" in event.detail["reason"]


def test_an_isolated_session_s_executor_ends_with_it(client: Any, daemon: Any) -> None:
    events = daemon.client()
    events.subscribe()
    kept = client.ask(p.OpenSession(name="kept"))
    over = client.ask(p.OpenSession(name="over", isolated=True))
    executor = client.ask(p.Show(target=over.session)).session.executor
    client.ask(p.Kill(target=over.session))  # idle_seconds is 30: nobody can come to this executor any more
    while (event := events.receive()[1]).kind != "executor_ended":
        pass
    assert event.detail["executor"] == executor
    assert [each.session for each in client.ask(p.ListSessions()).sessions] == [kept.session]


@pytest.mark.parametrize("isolated", [False, True])
def test_an_executor_starts_with_the_job_whose_session_will_come(
    client: Any, daemon: Any, isolated: bool
) -> None:
    events = daemon.client()
    events.subscribe()
    sleep = p.Submit(command=["/bin/sleep", "1000"], environment={}, directory="/", isolated=isolated)
    jobs = [client.ask(sleep).job.job for _ in range(2)]
    domains = []
    while len(domains) < 1 + isolated:
        if (event := events.receive()[1]).kind == "executor_started":
            domains.append(event.detail["domain"])
    assert sorted(domains) == (jobs if isolated else [f"uid-{os.getuid()}"])
    while client.ask(p.Show(target=jobs[1])).job.state != "running":
        pass
    opened = client.ask(p.OpenSession(name="one", job=jobs[1]))
    assert isinstance(opened, p.SessionOpened)
    client.ask(p.Kill(target=jobs[0]))
    while isolated and events.receive()[1].kind != "executor_ended":
        pass
    assert client.ask(p.GetStatus()).gpus[0].executors == 1


def test_of_the_logs_of_executors_that_have_ended_the_latest_are_kept(stopped_daemon: Any) -> None:
    stopped_daemon.prologue = "import fikitd.executor.supervisor_launch as launch; launch.KEPT_LOGS = 2; "
    client, events = stopped_daemon.start().client(), stopped_daemon.client()
    events.subscribe()
    lives = client.ask(p.OpenSession(name="lives")).session
    names = [client.ask(p.Show(target=lives)).session.executor]
    for number in range(4):
        session = client.ask(p.OpenSession(name=f"ends-{number}", isolated=True)).session
        names.append(client.ask(p.Show(target=session)).session.executor)
        client.ask(p.Kill(target=session))
        while (event := events.receive()[1]).kind != "executor_ended":
            pass
        assert event.detail["executor"] == names[-1]
    logs = stopped_daemon.place / "state" / "logs"
    while len(found := {each.stem for each in logs.glob("x-*.log")}) > 3:
        pass
    assert found == {names[0], *names[-2:]}


def test_a_full_gpu_gives_the_place_of_an_idle_executor(stopped_daemon: Any) -> None:
    settings = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=settings.replace("[executor]", "[executor]\nmax_per_gpu = 2"))
    client = stopped_daemon.start().client()
    events = stopped_daemon.client()
    events.subscribe()
    idle = client.ask(p.OpenSession(name="idle")).session
    client.ask(p.Kill(target=idle))
    first = client.ask(p.OpenSession(name="first", isolated=True))
    while isinstance(second := client.ask(p.OpenSession(name="second", isolated=True)), p.Failure):
        assert second.code == "quota"  # until the user's own executor has told that it is idle
    while (event := events.receive()[1]).kind != "executor_ended":
        pass
    assert "another domain" in event.detail["reason"]
    assert client.ask(p.OpenSession(name="third", isolated=True)).code == "quota"
    living = {each.session for each in client.ask(p.ListSessions()).sessions}
    assert living == {first.session, second.session}


def test_isolated_sessions_of_one_user_leave_room_for_others(stopped_daemon: Any, as_user: Any) -> None:
    settings = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=settings.replace("[executor]", "[executor]\nmax_per_gpu = 4"))
    client = stopped_daemon.start().client()
    isolated = [client.ask(p.OpenSession(name="alone", isolated=True)) for _ in range(4)]
    assert [isinstance(each, p.SessionOpened) for each in isolated] == [True, True, True, False]
    assert (isolated[3].code, "3 executors" in isolated[3].message) == ("quota", True)

    def other() -> str:
        return type(Client(stopped_daemon.socket).ask(p.OpenSession(name="other"))).__name__

    assert as_user(65534, other) == "SessionOpened"


def test_an_isolated_session_that_is_taken_over_is_still_its_user_s(
    stopped_daemon: Any, as_user: Any
) -> None:
    daemon = stopped_daemon.start()
    session = daemon.client().ask(p.OpenSession(name="alone", isolated=True)).session
    daemon.stop(signal.SIGKILL)
    own = daemon.start().client()
    assert own.ask(p.Show(target=session)).session.isolated

    def executors(client: Client) -> str:
        return " ".join(re.findall(r"^fikit_executors\{.+?\} (.+)", client.ask(p.ReadMetrics()).text, re.M))

    assert executors(own) == "1.0"
    assert as_user(65534, lambda: executors(Client(daemon.socket))) == "0.0"


@pytest.mark.shares_daemon
def test_quota(client: Any) -> None:
    assert client.ask(p.OpenSession(name="big", memory_limit_bytes=1 << 60)).code == "quota"
    assert client.ask(p.OpenSession(name="nowhere", gpu=7)).code == "not_found"
    first = client.ask(p.OpenSession(name="most", memory_limit_bytes=3 << 30))
    assert first.memory_limit_bytes == 3 << 30
    assert client.ask(p.OpenSession(name="rest", memory_limit_bytes=2 << 30)).code == "quota"


@needs_double
def test_who_always_has_more_to_trace_keeps_nobody_from_being_read(client: Any) -> None:
    assert client.ask(p.StartTrace()) == p.Done()
    names = ("flood", "calm", "flood", "calm")
    opened = {client.ask(p.OpenSession(name=name, isolated=True)).session for name in names}
    read = [client.ask(p.ReadTrace(stop=False)) for _ in names]
    assert {each.session for trace in read for each in trace.operations} == opened


@needs_double
def test_profiles_and_traces(client: Any) -> None:
    assert client.ask(p.StartTrace()) == p.Done()
    session = client.ask(p.OpenSession(name="busy")).session
    trace = client.ask(p.ReadTrace())
    assert [operation.session for operation in trace.operations] == [session]
    assert client.ask(p.ReadTrace()).code == "invalid"
    (profile,) = client.ask(p.ListProfiles()).profiles
    assert (profile.function, profile.device) == ("busy", "double")
    assert client.ask(p.ClearProfiles()) == p.Done()
    assert client.ask(p.ImportProfiles(profiles=[profile])) == p.Done()


@pytest.mark.shares_daemon
def test_metrics_and_doctor(client: Any) -> None:
    client.ask(p.OpenSession(name="busy"))
    assert "fikit_sessions{" in client.ask(p.ReadMetrics()).text
    checks = client.ask(p.Doctor()).checks
    assert any(check.name.startswith("executor") and check.ok for check in checks)


def test_an_executor_that_does_not_start_is_quoted(stopped_daemon: Daemon) -> None:
    failing = ["/bin/sh", "-c", "echo 'the driver is too old' >&2; exit 3"]
    stopped_daemon.configure(settings=f"[device]\nchoice = 'sim'\n[executor]\ncommand = {failing!r}\n")
    client = stopped_daemon.start().client()
    refused = client.ask(p.OpenSession(name="unlucky"))
    assert refused.code == "unavailable"
    assert "did not start" in refused.message
    assert refused.message.endswith("the driver is too old")


@needs_double
def test_explain_tells_of_the_gate_and_keeps_it_when_the_session_is_over(daemon: Any, client: Any) -> None:
    session = client.ask(p.OpenSession(name="gated")).session
    other = client.ask(p.OpenSession(name="other")).session
    explained = client.ask(p.Explain(session=session))
    assert explained.gated.gate.refused == {"bound": 7}
    assert [each.session.session for each in explained.beside] == [other]
    text = client.ask(p.ReadMetrics()).text
    assert 'fikit_refused_operations_total{gpu="0",reason="bound",tenant="' in text
    assert "fikit_filled_seconds_total{" in text
    client.ask(p.Kill(target=session))
    events = daemon.client()
    while events.ask(p.Show(target=session)).session.state != "ended":
        pass
    assert client.ask(p.Explain(session=session)).gated.gate.filled == 4
    text = client.ask(p.ReadMetrics()).text
    assert any(
        line.startswith("fikit_filled_operations_total{") and line.endswith(" 4.0")
        for line in text.splitlines()
    )


@pytest.mark.shares_daemon
def test_explaining_a_session_that_there_is_not_is_refused(client: Any) -> None:
    assert client.ask(p.Explain(session="s-none")).code == "not_found"


@pytest.mark.shares_daemon
def test_explaining_a_job_names_its_sessions(client: Any) -> None:
    request = p.Submit(command=["/bin/sleep", "1000"], environment={}, directory="/")
    job = client.ask(request).job.job
    while client.ask(p.Show(target=job)).job.state != "running":
        pass
    refused = client.ask(p.Explain(session=job))
    assert (refused.code, refused.hint) == ("invalid", "it has no session now")
    session = client.ask(p.OpenSession(name="of it", job=job)).session
    assert client.ask(p.Explain(session=job)).hint == f"name one of its sessions: {session}"
    assert client.ask(p.Explain(session="job-99999")).code == "not_found"
    assert client.ask(p.Kill(target=job, signal=9)) == p.Done()


def test_of_a_job_s_sessions_that_are_over_the_latest_are_known(stopped_daemon: Any) -> None:
    """Its record is written for each that comes or goes, and listed whole."""
    stopped_daemon.prologue = "import fikitd.jobs.job_sessions as jobs; jobs.REMEMBERED_SESSIONS = 2\n"
    stopped_daemon.start()
    client = stopped_daemon.client()
    job = client.ask(p.Submit(command=["unused"], environment={}, directory="/", foreground=True)).job.job
    opened = []
    for _ in range(4):
        tenant = stopped_daemon.client()
        opened.append(tenant.ask(p.OpenSession(name="short", job=job)).session)
        if len(opened) > 1:  # the first one lives
            tenant.close()
            while len(client.ask(p.ListSessions()).sessions) > 1:
                pass
    assert client.ask(p.Show(target=job)).job.sessions == [opened[0], *opened[2:]]


def weights(daemon: Daemon) -> list[float]:
    """Of all sessions, as their executor has them; the daemon must be dead."""
    (place,) = (daemon.place / "run").glob("x-*.sock")
    decoder = p.Decoder(m.AnyAnswer)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as executor:
        executor.connect(str(place))
        executor.sendall(p.encode(1, m.ListAttached()))
        while not (frames := list(decoder.frames())):
            decoder.feed(executor.recv(65536))
    return [each.weight for each in frames[0][1].sessions]


def test_a_session_has_the_weight_that_its_tenant_is_given(stopped_daemon: Daemon) -> None:
    """By a reload, and by a daemon that is started with another configuration."""
    client = stopped_daemon.start().client()
    opened = client.ask(p.OpenSession(name="service"))
    tenant = client.welcome.tenant
    client.subscribe()
    stopped_daemon.configure(f"[tenants.{tenant}]\nweight = 4.0\n")
    assert stopped_daemon.process is not None
    stopped_daemon.process.send_signal(signal.SIGHUP)
    while client.receive()[1].kind != "reloaded":
        pass
    other = stopped_daemon.client()
    assert isinstance(other.ask(p.Explain(session=opened.session)), p.Explained)
    stopped_daemon.stop(signal.SIGKILL)
    assert weights(stopped_daemon) == [4.0]
    stopped_daemon.configure(f"[tenants.{tenant}]\nweight = 0.5\n")
    again = stopped_daemon.start().client()
    assert isinstance(again.ask(p.Explain(session=opened.session)), p.Explained)
    stopped_daemon.stop(signal.SIGKILL)
    assert weights(stopped_daemon) == [0.5]


def metric(client: Client, name: str) -> list[float]:
    """Its values, of whatever labels."""
    lines = client.ask(p.ReadMetrics()).text.splitlines()
    return [float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{")]


@needs_double
def test_counters_that_are_not_stored_begin_anew_with_the_daemon(stopped_daemon: Daemon) -> None:
    """One that fell, by what was over, was taken for one begun at zero: all it showed counted twice."""
    client = stopped_daemon.start().client()
    over, lives = (client.ask(p.OpenSession(name="gated")).session for _ in range(2))
    client.ask(p.Kill(target=over))
    names = ("fikit_filled_operations_total", "fikit_executor_busy_seconds_total")
    while [metric(client, name) for name in names] != [[8.0], [5e-9]]:
        pass
    stopped_daemon.stop(signal.SIGKILL)
    again = stopped_daemon.start().client()
    assert [metric(again, name) for name in names] == [[0.0], [0.0]]
    assert again.ask(p.Explain(session=lives)).gated.gate.filled == 4
    again.ask(p.Kill(target=lives))
    while again.ask(p.Show(target=lives)).session.state != "ended":
        pass
    assert [metric(again, name) for name in names] == [[0.0], [0.0]]


def test_doctor_waits_for_a_heartbeat_that_is_not_due(stopped_daemon: Daemon) -> None:
    text = stopped_daemon.config.read_text()
    slow = "heartbeat_seconds = 3600.0\nunresponsive_seconds = 0.1"
    stopped_daemon.configure(settings=text.replace("heartbeat_seconds = 0.1", slow))
    client = stopped_daemon.start().client()
    client.ask(p.OpenSession(name="quiet"))
    time.sleep(0.2)
    checks = [each for each in client.ask(p.Doctor()).checks if each.name.startswith("executor")]
    assert [each.ok for each in checks] == [True]


def test_doctor_finds_nothing_wrong_with_an_executor_that_starts_or_stops(stopped_daemon: Daemon) -> None:
    text = stopped_daemon.config.read_text()
    never = "command = ['/bin/sh', '-c', 'exec sleep 1000', 'sh', "
    stopped_daemon.configure(settings=text.replace("command = [", never))
    client, other = stopped_daemon.start().client(), stopped_daemon.client()
    other.send(p.OpenSession(name="waits"))
    while not (checks := [x for x in client.ask(p.Doctor()).checks if x.name.startswith("executor")]):
        pass
    assert [(each.ok, each.detail) for each in checks] == [(True, f"starting, gpu 0, uid-{os.getuid()}")]


BREAKS = """
from fikitd.executor import connection, messages
ask, broken = connection.ExecutorConnection.ask, []
async def breaking(self, body, *more):
    if isinstance(body, messages.Attach) and not broken:
        broken.append(self._wire.socket.shutdown(2))
    return await ask(self, body, *more)
connection.ExecutorConnection.ask = breaking
"""


def test_an_executor_whose_connection_broke_serves_again_and_is_stopped_when_idle(
    stopped_daemon: Daemon,
) -> None:
    text = stopped_daemon.config.read_text()
    brief = "heartbeat_seconds = 0.1\nidle_seconds = 0.3"
    stopped_daemon.configure(settings=text.replace("heartbeat_seconds = 0.1", brief))
    stopped_daemon.prologue = BREAKS
    client = stopped_daemon.start().client()
    session = client.ask(p.OpenSession(name="twice")).session

    def executors() -> list[bool]:
        return [x.ok for x in client.ask(p.Doctor()).checks if x.name.startswith("executor")]

    deadline = time.monotonic() + 10
    while executors() != [True] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert executors() == [True]
    assert client.ask(p.Show(target=session)).session.state == "running"
