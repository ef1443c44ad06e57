"""The daemon's own life: one at a time, reload, drain, watchdog, socket activation, full disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fikit import protocol as p

from fikitd.directories import Directories, state_lock
from fikitd.errors import AlreadyRunningError
from fikitd.executor.supervisor import STOP_SECONDS
from tests.integration.conftest import Client, Daemon, fill

HOLDER = """
import os, sys, time
from pathlib import Path
from fikitd.directories import Directories, state_lock
place = Path(sys.argv[1])
state_lock(Directories(place / "sock", place, place)).take()
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(600)
"""


def test_second_daemon_refuses_to_start(daemon: Daemon) -> None:
    second = subprocess.run(
        daemon.command(), env=daemon.environment(), capture_output=True, timeout=20, check=False
    )
    assert second.returncode == 1
    assert b"another fikitd (pid " in second.stderr
    elsewhere = {**daemon.environment(), "STATE_DIRECTORY": str(daemon.place / "other")}
    second = subprocess.run(daemon.command(), env=elsewhere, capture_output=True, timeout=20, check=False)
    assert b"uses the socket" in second.stderr
    # It would take over, and end, the other's executors.
    elsewhere["FIKIT_SOCKET"] = str(daemon.place / "other.sock")
    second = subprocess.run(daemon.command(), env=elsewhere, capture_output=True, timeout=20, check=False)
    assert b"uses the runtime directory" in second.stderr
    assert isinstance(daemon.client(), Client)


def test_a_child_of_a_killed_daemon_holds_no_lock(tmp_path: Path) -> None:
    """It may be just starting a process when it is killed."""
    places = Directories(tmp_path / "sock", tmp_path, tmp_path)
    command = [sys.executable, "-P", "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            with pytest.raises(AlreadyRunningError, match=f"pid {holder.pid}"):
                state_lock(places).take()
            holder.kill()
            holder.wait(60)
            state_lock(places).take()
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_socket_is_there_while_a_daemon_is_or_will_be_again(stopped_daemon: Daemon) -> None:
    """Clients look for no other daemon where there is one: the machine's, for instance, beside one's own."""
    stopped_daemon.start().stop(signal.SIGKILL)
    assert stopped_daemon.socket.is_socket()
    stopped_daemon.start().stop()
    assert not stopped_daemon.socket.exists()
    stopped_daemon.start()
    stopped_daemon.socket.unlink()
    with socket.socket(socket.AF_UNIX) as systemd:
        systemd.bind(str(stopped_daemon.socket))
        stopped_daemon.stop()
        assert stopped_daemon.socket.is_socket()


def test_wrong_configuration_is_named(stopped_daemon: Daemon) -> None:
    stopped_daemon.configure("[device.typo]\nx = 1\n")
    result = subprocess.run(
        stopped_daemon.command(),
        env=stopped_daemon.environment(),
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert result.returncode == 1
    assert b"fikitd.toml" in result.stderr
    assert b"typo" in result.stderr
    assert b"Traceback" not in result.stderr
    stopped_daemon.configure()


def next_event(client: Client, kind: str) -> Any:
    while (event := client.receive()[1]).kind != kind:
        pass
    return event


def test_the_doctor_tells_what_the_next_reload_would_do(daemon: Daemon, client: Client) -> None:
    assert daemon.process is not None
    client.subscribe()
    asking = daemon.client()

    def told(configured: str, *, reload: bool = False) -> tuple[bool, str]:
        daemon.configure(configured)
        if reload:
            daemon.process.send_signal(signal.SIGHUP)
            next_event(client, "reloaded")
        (check,) = [each for each in asking.ask(p.Doctor()).checks if each.name == "configuration"]
        return check.ok, check.detail

    assert told("") == (True, f"{daemon.config}, as it was read")
    ok, detail = told("[jobs]\nmax_runing = 3\n")
    assert not ok
    assert "do you mean max_running?; what was read before is kept, but fikitd would not start" in detail
    assert "reload" in told("[jobs]\nmax_running = 3\n")[1]
    assert told("[jobs]\nmax_running = 3\n", reload=True) == (True, f"{daemon.config}, as it was read")
    changed = (True, "metrics.port changed: read when fikitd starts anew")
    assert told("[metrics]\nport = 1\n", reload=True) == changed


def test_reload(daemon: Daemon, client: Client) -> None:
    assert daemon.process is not None
    client.subscribe()
    daemon.configure("[device.typo]\nx = 1\n")
    daemon.process.send_signal(signal.SIGHUP)
    assert "typo" in next_event(client, "reload_refused").detail["reason"]
    daemon.configure("[metrics]\nport = " + "[" * 20_000)
    daemon.process.send_signal(signal.SIGHUP)
    assert "nested" in next_event(client, "reload_refused").detail["reason"]
    daemon.configure("[jobs]\nmax_running = 0\n[metrics]\nport = 1\n")
    for _ in range(2):  # the second is told of the same
        daemon.process.send_signal(signal.SIGHUP)
        assert next_event(client, "reloaded").detail == {"needs_restart": ["metrics.port"]}
    other = daemon.client()
    job = other.ask(p.Submit(command=["/bin/true"], environment={}, directory="/")).job
    assert other.ask(p.Wait(job=job.job, wait_ms=100)).job.state == "queued"
    daemon.configure()
    daemon.process.send_signal(signal.SIGHUP)
    assert next_event(client, "reloaded").detail == {"needs_restart": []}
    assert other.ask(p.Wait(job=job.job)).job.state == "finished"


def test_drain_is_remembered(daemon: Daemon, client: Client) -> None:
    assert client.ask(p.Drain(reason="new driver")) == p.Done()
    refused = client.ask(p.OpenSession(name="late"))
    assert (refused.code, "new driver" in refused.message) == ("draining", True)
    assert client.ask(p.Submit(command=["true"], environment={}, directory="/")).code == "draining"
    daemon.stop(signal.SIGKILL)
    daemon.start()
    again = daemon.client()
    assert again.ask(p.GetStatus()).draining == "new driver"
    assert [
        each.detail for each in again.ask(p.Doctor()).checks if each.name == "new work" and not each.ok
    ] == ["refused, the daemon is draining: new driver"]
    assert again.ask(p.Undrain()) == p.Done()
    assert isinstance(again.ask(p.OpenSession(name="early")), p.SessionOpened)


def test_sigterm_waits_for_what_runs(stopped_daemon: Daemon) -> None:
    text = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=text.replace("drain_seconds = 0.0", "drain_seconds = 30.0"))
    client = stopped_daemon.start().client()
    job = client.ask(p.Submit(command=["/bin/sh", "-c", "sleep 0.4"], environment={}, directory="/")).job.job
    client.send(p.Wait(job=job))
    assert stopped_daemon.process is not None
    stopped_daemon.process.send_signal(signal.SIGTERM)
    assert client.receive()[1].job.state == "finished"
    assert stopped_daemon.process.wait(20) == 0
    stopped_daemon.process = None


def test_sigterm_does_not_wait_for_a_session_that_is_given_up(stopped_daemon: Daemon) -> None:
    text = stopped_daemon.config.read_text().replace("drain_seconds = 0.0", "drain_seconds = 300.0")
    late = "command = ['/bin/sh', '-c', 'sleep 2; exec \"$@\"', 'sh', "
    stopped_daemon.configure(settings=text.replace("command = [", late))
    client, events = stopped_daemon.start().client(), stopped_daemon.client()
    events.subscribe()
    client.send(p.OpenSession(name="impatient"))
    next_event(events, "executor_started")
    assert stopped_daemon.process is not None
    stopped_daemon.process.send_signal(signal.SIGTERM)
    next_event(events, "daemon_ending")
    client.socket.shutdown(socket.SHUT_RDWR)
    assert stopped_daemon.process.wait(20) == 0
    stopped_daemon.process = None


def test_sigterm_ends_an_executor_that_starts(stopped_daemon: Daemon) -> None:
    text = stopped_daemon.config.read_text()
    never = "command = ['/bin/sh', '-c', 'exec sleep 1000', 'sh', "
    stopped_daemon.configure(settings=text.replace("command = [", never))
    client, events = stopped_daemon.start().client(), stopped_daemon.client()
    events.subscribe()
    client.send(p.OpenSession(name="waits"))
    executor = next_event(events, "executor_started").detail["pid"]
    assert stopped_daemon.process is not None
    stopped_daemon.process.send_signal(signal.SIGTERM)
    assert stopped_daemon.process.wait(STOP_SECONDS / 2) == 0
    stopped_daemon.process = None
    assert not Path(f"/proc/{executor}").exists()


def test_a_daemon_that_ends_takes_no_new_work_whatever_it_is_told(stopped_daemon: Daemon) -> None:
    text = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=text.replace("drain_seconds = 0.0", "drain_seconds = 300.0"))
    client = stopped_daemon.start().client()
    events = stopped_daemon.client()
    events.subscribe()
    assert isinstance(client.ask(p.OpenSession(name="stays")), p.SessionOpened)
    assert stopped_daemon.process is not None
    stopped_daemon.process.send_signal(signal.SIGTERM)
    next_event(events, "daemon_ending")
    assert client.ask(p.Undrain()) == p.Done()
    assert client.ask(p.Submit(command=["true"], environment={}, directory="/")).code == "draining"
    assert client.ask(p.GetStatus()).draining == "the daemon is ending"
    assert client.ask(p.Drain(reason="maintenance")) == p.Done()
    assert stopped_daemon.stop() == 0
    assert stopped_daemon.start().client().ask(p.GetStatus()).draining == "maintenance"


def test_second_sigterm_ends_jobs_and_executors(stopped_daemon: Daemon) -> None:
    text = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=text.replace("drain_seconds = 0.0", "drain_seconds = 300.0"))
    client = stopped_daemon.start().client()
    events = stopped_daemon.client()
    events.subscribe()
    client.ask(p.OpenSession(name="stays"))
    job = client.ask(p.Submit(command=["/bin/sleep", "1000"], environment={}, directory="/")).job
    next_event(events, "job_started")
    assert stopped_daemon.process is not None
    stopped_daemon.process.send_signal(signal.SIGTERM)
    next_event(events, "daemon_ending")
    assert client.ask(p.OpenSession(name="late")).code == "draining"
    assert stopped_daemon.stop() == 0
    assert list((stopped_daemon.place / "run").glob("*.sock")) == []
    ended = stopped_daemon.start().client().ask(p.Show(target=job.job)).job
    assert (ended.state, ended.reason) == ("killed", "the daemon is ending")


@contextmanager
def watched(daemon: Daemon) -> Iterator[socket.socket]:
    """Started as by systemd with a watchdog, and ready: what it tells that."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        place = daemon.place / "watched"
        notified.bind(str(place))
        notified.settimeout(20)
        daemon.process = subprocess.Popen(
            daemon.command(),
            env={**daemon.environment(), "NOTIFY_SOCKET": str(place), "WATCHDOG_USEC": "400000"},
            stderr=subprocess.DEVNULL,
        )
        assert notified.recv(4096).startswith(b"READY=1")
        yield notified


def test_watchdog_is_fed_whatever_connections_a_user_holds(stopped_daemon: Daemon) -> None:
    text = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=text.replace("[daemon]", "[daemon]\nmax_connections_per_user = 2"))
    with watched(stopped_daemon) as notified:
        assert notified.recv(4096).startswith(b"WATCHDOG=1")
        held = [stopped_daemon.client() for _ in range(2)]
        assert stopped_daemon.client(hello=False).receive()[1].code == "quota"
        for _ in range(3):
            assert notified.recv(4096).startswith(b"WATCHDOG=1")
        held[0].close()


def test_watchdog_is_fed_after_a_reload_with_a_shorter_heartbeat(stopped_daemon: Daemon) -> None:
    """The heartbeat that was begun takes as long as it was to."""
    text = stopped_daemon.config.read_text()
    slow, quick = (
        text.replace("heartbeat_seconds = 0.1", f"heartbeat_seconds = {beat}\nunresponsive_seconds = 0.1")
        for beat in (3600.0, 0.1)
    )
    stopped_daemon.configure(settings=slow)
    with watched(stopped_daemon) as notified:
        assert isinstance(stopped_daemon.client().ask(p.OpenSession(name="served")), p.SessionOpened)
        stopped_daemon.configure(settings=quick)
        stopped_daemon.process.send_signal(signal.SIGHUP)
        while not notified.recv(4096).startswith(b"READY=1"):
            pass
        for _ in range(5):
            assert notified.recv(4096).startswith(b"WATCHDOG=1")


def test_socket_activation(stopped_daemon: Daemon) -> None:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(stopped_daemon.socket))
    listening.listen()
    early = stopped_daemon.client(hello=False)
    script = "import os,sys; os.dup2(int(sys.argv[1]), 3); os.environ['LISTEN_PID'] = str(os.getpid());"
    script += "os.environ['LISTEN_FDS'] = '1'; os.execv(sys.argv[2], sys.argv[2:])"
    command = [sys.executable, "-c", script, str(listening.fileno()), *stopped_daemon.command()]
    stopped_daemon.process = subprocess.Popen(
        command, env=stopped_daemon.environment(), pass_fds=[listening.fileno(), 3], stderr=subprocess.DEVNULL
    )
    listening.close()
    assert isinstance(early.ask(p.Hello(version=1, client="early")), p.Welcome)


def test_full_disk_refuses_and_keeps(stopped_daemon: Daemon, small_disk: Path) -> None:
    client = stopped_daemon.start().client()
    kept = client.ask(p.Submit(command=["/bin/true"], environment={}, directory="/")).job
    assert client.ask(p.Wait(job=kept.job)).job.state == "finished"
    runs = client.ask(
        p.Submit(command=["/bin/sh", "-c", "echo up; sleep 0.5; exit 4"], environment={}, directory="/")
    )
    while not client.ask(p.ReadLogs(job=runs.job.job, follow=True)).data:
        pass
    filler = fill(small_disk)
    refused = client.ask(p.Submit(command=["/bin/true"], environment={}, directory="/"))
    assert (refused.code, "disk" in refused.message + refused.hint) == ("unavailable", True)
    assert client.ask(p.OpenSession(name="full")).code in ("unavailable",)
    assert client.ask(p.Wait(job=runs.job.job)).job.exit_code == 4
    filler.unlink()
    assert isinstance(client.ask(p.OpenSession(name="room")), p.SessionOpened)
    stopped_daemon.stop(signal.SIGKILL)
    again = stopped_daemon.start().client()
    assert again.ask(p.Show(target=kept.job)).job.state == "finished"


def test_a_daemon_starts_on_a_full_disk(stopped_daemon: Daemon, small_disk: Path) -> None:
    client = stopped_daemon.start().client()
    over, runs = (
        client.ask(p.Submit(command=["/bin/sleep", seconds], environment={}, directory="/")).job.job
        for seconds in ("0", "1000")
    )
    session = client.ask(p.OpenSession(name="kept")).session
    assert client.ask(p.Wait(job=over)).job.state == "finished"
    client.pid_of(runs)
    filler = fill(small_disk)
    stopped_daemon.stop(signal.SIGKILL)
    again = stopped_daemon.start().client()
    assert [each.session for each in again.ask(p.ListSessions()).sessions] == [session]
    assert [again.ask(p.Show(target=each)).job.state for each in (over, runs)] == ["finished", "running"]
    assert again.ask(p.Submit(command=["/bin/true"], environment={}, directory="/")).code == "unavailable"
    assert again.ask(p.Kill(target=runs, signal=9)) == p.Done()
    assert again.ask(p.Wait(job=runs)).job.exit_code == 137
    filler.unlink()
    assert isinstance(again.ask(p.OpenSession(name="room")), p.SessionOpened)


def test_a_daemon_that_ended_cleanly_starts_on_a_full_disk(stopped_daemon: Daemon, small_disk: Path) -> None:
    client = stopped_daemon.start().client()
    job = client.ask(p.Submit(command=["/bin/true"], environment={}, directory="/")).job.job
    assert client.ask(p.Wait(job=job)).job.state == "finished"
    stopped_daemon.stop(signal.SIGTERM)
    filler = fill(small_disk)
    client = stopped_daemon.start().client()
    assert client.ask(p.Show(target=job)).job.state == "finished"
    assert client.ask(p.OpenSession(name="full")).code == "unavailable"
    filler.unlink()
    assert isinstance(client.ask(p.OpenSession(name="room")), p.SessionOpened)


@pytest.mark.parametrize("no_daemon_there", [True, False])
def test_a_foreground_job_ends_with_its_caller_under_a_later_daemon(
    stopped_daemon: Daemon, no_daemon_there: bool
) -> None:
    client = stopped_daemon.start().client()
    code = "from fikitctl.main import main; main()"
    command = [sys.executable, "-P", "-c", code, "run", "--", "sh", "-c", "echo up; exec sleep 1000"]
    caller = subprocess.Popen(command, env=stopped_daemon.environment(), stdout=subprocess.PIPE)
    with caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"up\n"
        client.pid_of("job-1")
        stopped_daemon.stop(signal.SIGKILL)
        if no_daemon_there:
            caller.kill()
        again = stopped_daemon.start().client()
        if not no_daemon_there:
            assert again.ask(p.Wait(job="job-1", wait_ms=200)).job.state == "running"
            caller.kill()
        assert caller.stdout.read() == b""  # the command, which has it too, is over
    ended = again.ask(p.Wait(job="job-1")).job
    assert (ended.state, ended.reason) == ("killed", "its caller went away")


def test_restart_under_load(daemon: Daemon) -> None:
    for _ in range(3):
        client = daemon.client()
        sessions = [client.ask(p.OpenSession(name=f"load-{number}")).session for number in range(5)]
        for number in range(20):
            client.send(
                p.Submit(command=["/bin/true"], environment={}, directory="/", name=f"burst-{number}")
            )
        daemon.stop(signal.SIGKILL)
        daemon.start()
        again = daemon.client()
        assert set(sessions) <= {each.session for each in again.ask(p.ListSessions()).sessions}
        for job in again.ask(p.ListJobs()).jobs:
            assert again.ask(p.Wait(job=job.job)).job.state == "finished"


def test_stale_socket_of_an_executor_is_cleared(stopped_daemon: Daemon) -> None:
    run = Path(stopped_daemon.place / "run")
    run.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(run / "x-0.sock"))
    stopped_daemon.start()
    assert list(run.glob("*.sock")) == []


@pytest.mark.shares_daemon
def test_events_are_only_the_peers_own(daemon: Daemon, client: Client, as_user: Any) -> None:
    def listen() -> str:
        mine = Client(daemon.socket)
        mine.subscribe()
        other = Client(daemon.socket)
        client.ask(p.OpenSession(name="roots"))
        session = other.ask(p.OpenSession(name="own")).session
        while (event := mine.receive()[1]).kind != "session_opened":
            pass
        return "own" if event.session == session else "somebody else's"

    assert as_user(65534, listen) == "own"
