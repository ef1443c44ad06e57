"""What Prometheus is told, and who may ask."""

from __future__ import annotations

import re
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from fikit import __version__
from fikit import protocol as p

from tests.integration.conftest import Daemon


@pytest.fixture
def metrics_port(stopped_daemon: Daemon) -> Iterator[int]:
    """One that nobody else gets: it is held, by a socket that lets only those listen who ask for that."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        text = stopped_daemon.config.read_text()
        stopped_daemon.configure(settings=f"{text}\n[metrics]\nport = {port}\n")
        yield port


def test_metrics_over_http(stopped_daemon: Daemon, metrics_port: int) -> None:
    stopped_daemon.start().client().ask(p.OpenSession(name="seen"))
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=20) as answer:
        assert b'fikit_sessions{gpu="0"' in answer.read()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/", timeout=20)


def test_executors_that_come_and_go_make_no_series_of_their_own(
    stopped_daemon: Daemon, metrics_port: int
) -> None:
    """One for each isolated job would be kept by Prometheus for ever."""
    client = stopped_daemon.start().client()

    def busy() -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=20) as answer:
            text: str = answer.read().decode()
        return [line for line in text.splitlines() if line.startswith("fikit_executor_busy_seconds")]

    for count in range(1, 4):
        session = client.ask(p.OpenSession(name="isolated", isolated=True)).session
        expected = [f'fikit_executor_busy_seconds_total{{gpu="0"}} {count * 5 / 1e9}']
        while busy() != expected:  # once its heart has beaten
            pass
        client.ask(p.Kill(target=session))
        while client.ask(p.GetStatus()).gpus[0].executors:
            assert busy() == expected
    assert busy() == expected


def test_of_those_who_ask_for_metrics_and_say_nothing_few_are_held(
    stopped_daemon: Daemon, metrics_port: int
) -> None:
    """Anybody may connect: descriptors are the tenants'. And they keep nobody from asking."""
    stopped_daemon.start()
    asking = [socket.create_connection(("127.0.0.1", metrics_port), timeout=5) for _ in range(40)]
    assert [each.recv(1) for each in asking[:8]] == [b""] * 8
    for each in (asking[8], asking[39]):
        each.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert each.recv(9) == b"HTTP/1.0 "
    for each in asking:
        each.close()


def test_who_looks_whether_metrics_are_served_is_told(stopped_daemon: Daemon, metrics_port: int) -> None:
    """Monitors ask for the head alone."""
    stopped_daemon.start()
    with socket.create_connection(("127.0.0.1", metrics_port), timeout=5) as asking:
        asking.sendall(b"HEAD /metrics HTTP/1.1\r\n\r\n")
        answer = asking.makefile("rb").read()
    assert (answer[:15], answer[-4:]) == (b"HTTP/1.0 200 OK", b"\r\n\r\n")


def test_a_name_service_that_is_slow_holds_up_who_reads_metrics_alone(stopped_daemon: Daemon) -> None:
    """It is never asked in the daemon's own thread."""
    stopped_daemon.prologue = """
import pwd, threading
ask = pwd.getpwuid
def getpwuid(uid):
    assert threading.current_thread() is not threading.main_thread()
    return ask(uid)
pwd.getpwuid = getpwuid
"""
    client = stopped_daemon.start().client()
    client.ask(p.OpenSession(name="seen"))
    assert "fikit_sessions{" in client.ask(p.ReadMetrics()).text


def test_a_port_that_is_taken_is_named(stopped_daemon: Daemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        stopped_daemon.configure(f"[metrics]\nport = {port}\n")
        result = subprocess.run(
            stopped_daemon.command(),
            env=stopped_daemon.environment(),
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr.startswith(f"fikitd: 127.0.0.1:{port}: cannot serve metrics: Address already in use")
    stopped_daemon.configure()


def test_jobs_that_ended_are_counted_also_once_they_are_forgotten(stopped_daemon: Daemon) -> None:
    stopped_daemon.configure("[jobs]\nkeep_ended = 0\n")
    client = stopped_daemon.start().client()

    def run(*command: str) -> None:
        job = client.ask(p.Submit(command=[*command], environment={}, directory="/")).job.job
        client.ask(p.Wait(job=job))

    def ended() -> dict[str, float]:
        text = client.ask(p.ReadMetrics()).text
        found = re.findall(r'^fikit_jobs_ended_total{state="(\w+)",tenant="[^"]+"} (.*)', text, re.MULTILINE)
        return {state: float(count) for state, count in found}

    for _ in range(3):
        run("true")
    run("false")
    assert {state: count for state, count in ended().items() if count} == {"finished": 3, "failed": 1}
    run("true")
    assert ended()["finished"] == 4


def test_the_release_is_told(stopped_daemon: Daemon) -> None:
    text = stopped_daemon.start().client().ask(p.ReadMetrics()).text
    assert f'fikit_build_info{{version="{__version__}"}} 1.0' in text
