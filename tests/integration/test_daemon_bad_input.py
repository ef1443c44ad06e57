"""Clients that break the rules: told why, at most disconnected; nobody else notices. Files, too."""

from __future__ import annotations

import array
import contextlib
import os
import signal
import socket
from typing import Any

import fikit
import msgpack
import pytest
from fikit import protocol as p
from fikit.control import Connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.conftest import Client, Daemon

pytestmark = pytest.mark.shares_daemon


def raw(daemon: Daemon) -> Client:
    return daemon.client(hello=False)


def last_words(client: Client) -> Any:
    _, failure = client.receive()
    with pytest.raises((EOFError, ConnectionError)):
        client.receive()
    return failure


def test_request_before_hello(daemon: Daemon) -> None:
    client = raw(daemon)
    client.send(p.GetStatus())
    assert "must be hello, not get_status" in last_words(client).message


def test_wrong_version(daemon: Daemon) -> None:
    client = raw(daemon)
    client.send(p.Hello(version=99, client="future"))
    failure = last_words(client)
    assert (failure.code, "version 1, not 99" in failure.message) == ("protocol", True)


def test_hello_is_said_once(daemon: Daemon, client: Client) -> None:
    failure = client.ask(p.Hello(version=p.PROTOCOL_VERSION, client="polite"))
    assert isinstance(failure, p.Failure)
    assert (failure.code, failure.message) == ("invalid", "hello was said already")
    assert isinstance(client.ask(p.GetStatus()), p.Status)


def test_a_client_of_another_version_says_what_the_daemon_told_it(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fikit.protocol.PROTOCOL_VERSION", 99)
    with pytest.raises(fikit.RefusedError, match="not 99: install the client that came with it"):
        Connection(daemon.socket)


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        msgpack.packb([1, 2]),
        msgpack.packb({"id": -1, "body": {}}),
        msgpack.packb({"id": 1}),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_not_a_frame(daemon: Daemon, data: bytes) -> None:
    client = daemon.client()
    client.socket.sendall(data)
    assert last_words(client).code == "protocol"


def test_frame_too_large(daemon: Daemon) -> None:
    client = daemon.client()
    with contextlib.suppress(ConnectionError):  # it may hang up while we still send
        client.socket.sendall(b"\xdb\x7f\xff\xff\xff" + b"x" * (p.MAX_FRAME_BYTES + 1_000_000))
    with contextlib.suppress(ConnectionError):
        assert last_words(client).code == "protocol"
    assert isinstance(daemon.client().ask(p.GetStatus()), p.Status)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"type": "no_such_request"}, "no_such_request"),
        ({"type": "show"}, "target"),
        ({"type": "show", "target": 5}, "target"),
        ({"type": "get_status", "extra": 1}, "extra"),
        ({"type": "set_priority", "target": "job-1", "priority": 10}, "priority"),
        (None, "object"),
    ],
)
def test_wrong_field_is_named_and_the_connection_goes_on(daemon: Daemon, body: Any, word: str) -> None:
    client = daemon.client()
    client.socket.sendall(msgpack.packb({"id": 77, "body": body}))
    identifier, failure = client.receive()
    assert (identifier, failure.code) == (77, "invalid")
    assert word in failure.message
    assert isinstance(client.ask(p.GetStatus()), p.Status)


def test_descriptors_nobody_asked_for(daemon: Daemon) -> None:
    client = daemon.client()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1]))]
    client.socket.sendmsg([p.encode(9, p.GetStatus())], rights)
    while (failure := client.receive()[1]) and not isinstance(failure, p.Failure):
        pass
    assert "descriptors" in failure.message


def send_for_ever(client: Client, data: bytes) -> None:
    while True:
        client.socket.sendall(data)


def test_client_that_does_not_read_is_cut_off_and_hinders_nobody(daemon: Daemon) -> None:
    stuck, other = daemon.client(), daemon.client()
    frame = p.encode(5, p.GetStatus())
    stuck.socket.settimeout(10)
    with pytest.raises((ConnectionError, TimeoutError)):
        send_for_ever(stuck, frame * 100)
    assert isinstance(other.ask(p.GetStatus()), p.Status)


def test_too_many_outstanding_requests(daemon: Daemon) -> None:
    client = daemon.client()
    job = client.ask(p.Submit(command=["/bin/sleep", "100"], environment={}, directory="/")).job.job
    for _ in range(65):
        client.send(p.Wait(job=job, wait_ms=20_000))
    assert client.receive()[1].code == "quota"


def test_too_many_connections(stopped_daemon: Daemon) -> None:
    text = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=text.replace("[daemon]", "[daemon]\nmax_connections_per_user = 2"))
    daemon = stopped_daemon.start()
    kept = [daemon.client(), daemon.client()]
    kept[1].subscribe()
    assert "2 connections" in last_words(raw(daemon)).message
    told = kept[1].receive()[1]
    refusal = {"reason": f"user {os.getuid()} has 2 connections, the most one may have"}
    assert (told.kind, told.detail) == ("connection_refused", refusal)
    with pytest.raises(fikit.RefusedError, match="has 2 connections, the most one may have"):
        Connection(daemon.socket)
    kept[0].close()
    assert isinstance(kept[1].ask(p.GetStatus()), p.Status)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=200) | st.sampled_from(p.REQUESTS).map(lambda kind: kind), max_size=4))
def test_random_clients_never_hurt_the_daemon(daemon: Daemon, pieces: list[Any]) -> None:
    client = Client(daemon.socket, hello=False)
    try:
        for piece in pieces:
            data = (
                piece if isinstance(piece, bytes) else msgpack.packb({"id": 1, "body": {"type": str(piece)}})
            )
            client.socket.sendall(data)
    except ConnectionError:
        pass
    client.close()
    fresh = Client(daemon.socket)
    assert isinstance(fresh.ask(p.GetStatus()), p.Status)
    fresh.close()


def test_nothing_leaks(stopped_daemon: Daemon) -> None:
    daemon = stopped_daemon.start()
    assert daemon.process is not None
    place = f"/proc/{daemon.process.pid}/fd"
    keeper = daemon.client()
    keeper.ask(p.GetStatus())
    before = len(os.listdir(place))
    for _ in range(20):
        client = daemon.client()
        session = client.ask(p.OpenSession(name="brief")).session
        client.ask(p.Kill(target=session))
        client.close()
    keeper.ask(p.GetStatus())
    assert (
        len(os.listdir(place)) <= before + 6
    )  # the executor's connection and pidfd; closing may lag a little


def test_what_cannot_be_read_of_one_job_or_session_keeps_no_daemon_from_starting(
    stopped_daemon: Daemon,
) -> None:
    """As on a disk that begins to fail: reading a directory as a file is refused, too."""
    state, run = stopped_daemon.place / "state", stopped_daemon.place / "run"
    (state / "jobs/job-3/spec").mkdir(parents=True)
    (state / "jobs/job-4/lock").mkdir(parents=True)
    (state / "jobs/job-4/spec").mkdir()
    (run / "s-0123456789.account").mkdir(parents=True)
    client = stopped_daemon.start().client()
    job = client.ask(p.Submit(command=["/bin/true"], environment={}, directory="/")).job.job
    assert (job, client.ask(p.Wait(job=job)).job.exit_code) == ("job-5", 0)
    assert "job_unreadable" in stopped_daemon.log.read_text()


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (["true"], {"LONG": "x" * (1 << 17)}),
        (["true", "\u00e9" * (1 << 16)], {}),
        (["true", *["y" * 100_000] * 64], {}),
        (["true"], {f"E{number}": "x" * 100_000 for number in range(63)}),
        (["true", *[""] * 700_000], {}),
    ],
)
def test_what_linux_starts_no_program_with_is_refused(
    client: Client, command: list[str], environment: dict[str, str]
) -> None:
    """Queued, it would lie on the daemon's disk, and fail once its turn has come."""
    refused = client.ask(p.Submit(command=command, environment=environment, directory="/"))
    assert (refused.code, "bytes at most" in refused.message) == ("invalid", True), refused


def test_jobs_that_wait_do_not_fill_the_disk(stopped_daemon: Daemon) -> None:
    """A user may have a thousand, of 6 MiB each."""
    stopped_daemon.prologue = "import fikitd.api.requests.jobs as j; j.MOST_WRITTEN_BYTES = 1 << 20; "
    client = stopped_daemon.start().client()
    large = p.Submit(
        command=["sleep", "1000"], environment={"PATH": "/bin", "E": "x" * 100_000}, directory="/"
    )
    answers = [client.ask(large) for _ in range(12)]
    jobs = [each.job.job for each in answers if isinstance(each, p.Submitted)]
    assert len(jobs) == 10
    assert {each.code for each in answers[10:]} == {"quota"}
    assert "wait until some of them are over" in answers[-1].hint
    stopped_daemon.stop(signal.SIGKILL)
    client = stopped_daemon.start().client()
    assert client.ask(large).code == "quota"
    client.ask(p.Kill(target=jobs[0], signal=9))
    client.ask(p.Wait(job=jobs[0]))
    assert isinstance(client.ask(large), p.Submitted)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["x" * 1994, ""], ["x" * 1994, ""]),
        (["x" * 1995, "y"], ["x" * 1995, "..."]),
        (["x" * 1994, "y"], ["x" * 1994, "..."]),
        (["x" * 2000, "y"], ["x" * 1995 + "..."]),
    ],
)
def test_a_command_that_is_not_remembered_whole_says_so(
    client: Client, words: list[str], shown: list[str]
) -> None:
    submitted = client.ask(p.Submit(command=["true", *words], environment={}, directory="/"))
    assert submitted.job.command == ["true", *shown]


def test_who_works_in_a_job_that_is_over_is_told_by_what(client: Client) -> None:
    """As in a shell of the tmux that a job's command left behind."""
    job = client.ask(p.Submit(command=["true"], environment={}, directory="/")).job.job
    client.ask(p.Wait(job=job))
    for name, message in (
        (job, f"{job}, which FIKIT_JOB names, is finished; only a running job opens sessions"),
        ("job-999", f"{client.welcome.tenant} has no job job-999, which FIKIT_JOB names"),
    ):
        refused = client.ask(p.OpenSession(name="late", job=name))
        assert refused.message == message
        assert refused.hint == "without FIKIT_JOB a program works outside of a job"
