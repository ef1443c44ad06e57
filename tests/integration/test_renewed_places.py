"""Directories that go while the daemon runs, as a user's runtime directory does when he logs out."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fikit import protocol as p

from fikitd.executor.process import listen
from tests.integration.conftest import DEADLINE_SECONDS, Daemon

LOOKS_OFTEN = "import fikitd.places; fikitd.places.LOOK_SECONDS = 0.05; "


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < end
        threading.Event().wait(0.01)


@pytest.fixture
def two_connections(stopped_daemon: Daemon) -> None:
    """Are what a user may hold."""
    text = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=text.replace("[daemon]", "[daemon]\nmax_connections_per_user = 2"))


@pytest.fixture
def user(stopped_daemon: Daemon) -> Path:
    """The directory of the socket and of the runtime directory."""
    directory = stopped_daemon.place / "user"
    directory.mkdir(mode=0o700)
    stopped_daemon.socket = directory / "fikitd.sock"
    stopped_daemon.prologue = LOOKS_OFTEN
    stopped_daemon.start(RUNTIME_DIRECTORY=str(directory / "fikitd"))
    return directory


def listens(place: Path) -> bool:
    """Whether somebody does: the socket is there a moment before."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(place)) == 0


def log_out_and_in(user: Path) -> None:
    shutil.rmtree(user)
    user.mkdir(mode=0o700)


def test_a_user_who_was_logged_out_finds_his_daemon(stopped_daemon: Daemon, user: Path) -> None:
    job = p.Submit(command=["/bin/sleep", "1000"], environment={}, directory="/")
    running = stopped_daemon.client().ask(job).job.job
    for _ in range(2):
        log_out_and_in(user)
        until(lambda: listens(stopped_daemon.socket))
        client = stopped_daemon.client()
        assert client.ask(p.Show(target=running)).job.state == "running"
    until(lambda: isinstance(client.ask(p.OpenSession(name="any")), p.SessionOpened))
    refused = subprocess.run(
        [*stopped_daemon.command(), "--socket", str(stopped_daemon.socket)],
        env={**stopped_daemon.environment(), "STATE_DIRECTORY": str(stopped_daemon.place / "another")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert f"uses the socket {stopped_daemon.socket}" in refused.stderr


@pytest.mark.usefixtures("two_connections", "user")
def test_who_is_connected_counts_also_where_the_socket_is_another(stopped_daemon: Daemon) -> None:
    for _ in range(2):
        stopped_daemon.client()
    log_out_and_in(stopped_daemon.socket.parent)
    until(lambda: listens(stopped_daemon.socket))
    assert stopped_daemon.client(hello=False).receive()[1].code == "quota"


def test_who_lives_knows_nobody_of_another_runtime_directory(stopped_daemon: Daemon, user: Path) -> None:
    """Executors share memory limits and the GPU by files that are in there."""
    before = stopped_daemon.client()
    assert isinstance(before.ask(p.OpenSession(name="first")), p.SessionOpened)
    (session,) = before.ask(p.ListSessions()).sessions
    log_out_and_in(user)
    until(lambda: listens(stopped_daemon.socket))
    client = stopped_daemon.client()
    assert isinstance(client.ask(p.OpenSession(name="second")), p.SessionOpened)
    same = {**stopped_daemon.environment(), "RUNTIME_DIRECTORY": str(user / "fikitd")}
    second = subprocess.run(stopped_daemon.command(), env=same, capture_output=True, timeout=20, check=False)
    assert b"uses the state directory" in second.stderr
    assert not (user / "fikitd").exists()
    assert client.ask(p.OpenSession(name="third", isolated=True)).code == "unavailable"
    (user / "fikitd").mkdir(mode=0o700)
    client.ask(p.Kill(target=session.executor))
    until((user / "fikitd" / "daemon.lock").exists)
    assert isinstance(client.ask(p.OpenSession(name="last", isolated=True)), p.SessionOpened)


@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="there is no systemd-tmpfiles to run")
def test_what_is_old_is_not_removed_below_a_daemon(stopped_daemon: Daemon, user: Path) -> None:
    """As it is in /tmp, where a user without XDG_RUNTIME_DIR has it: locks, and what executors share."""
    rules, run = stopped_daemon.place / "rules", user / "fikitd"
    rules.write_text(f"d {user} 0700 - - 0\n")
    (run / "old").touch()
    subprocess.run(["systemd-tmpfiles", "--clean", str(rules)], check=True)
    assert (run / "old").exists()
    stopped_daemon.stop()
    subprocess.run(["systemd-tmpfiles", "--clean", str(rules)], check=True)
    assert not run.exists()


def test_an_executor_says_where_it_cannot_listen(tmp_path: Path) -> None:
    place = tmp_path / "gone" / "x-1.sock"
    with pytest.raises(FileNotFoundError) as refused:
        listen(place, 1)
    assert refused.value.filename == str(place)
