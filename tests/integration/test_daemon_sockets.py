"""Where the daemon's socket is: wherever systemd has made it, and not where no daemon came to serve."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fikit import protocol as p

from tests.integration.conftest import Client, Daemon

ACTIVATED = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "WATCHDOG_USEC": "400000"}
os.execv(sys.argv[2], sys.argv[2:])
"""


@contextmanager
def activated(daemon: Daemon, place: str) -> Iterator[socket.socket]:
    """Started as by systemd, with a watchdog, and a socket that it listens on; what it tells."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified,
    ):
        listening.bind(place)
        listening.listen()
        notified.bind(str(daemon.place / "notify"))
        notified.settimeout(20)
        daemon.process = subprocess.Popen(
            [sys.executable, "-c", ACTIVATED, str(listening.fileno()), *daemon.command()],
            env={**daemon.environment(), "NOTIFY_SOCKET": str(daemon.place / "notify")},
            pass_fds=[listening.fileno(), 3],
            stderr=subprocess.DEVNULL,
        )
        assert notified.recv(4096).startswith(b"READY=1")
        yield notified


def test_a_socket_of_systemd_s_is_used_wherever_it_is(stopped_daemon: Daemon) -> None:
    """A drop-in of fikitd.socket may move it; what the daemon was told of its place else is not so."""
    elsewhere = stopped_daemon.place / "elsewhere.sock"
    with activated(stopped_daemon, str(elsewhere)) as notified:
        assert notified.recv(4096).startswith(b"WATCHDOG=1")
        client = Client(elsewhere)
        command = ["/bin/sh", "-c", "echo $FIKIT_SOCKET"]
        job = client.ask(p.Submit(command=command, environment={}, directory="/")).job.job
        assert client.ask(p.Wait(job=job)).job.exit_code == 0
        assert client.ask(p.ReadLogs(job=job)).data == f"{elsewhere}\n".encode()
        client.close()
        assert stopped_daemon.stop() == 0


@pytest.mark.parametrize("failure", ["store", "port"])
def test_a_daemon_that_does_not_start_leaves_no_socket(stopped_daemon: Daemon, failure: str) -> None:
    """Clients look for no other daemon where there is one."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        if failure == "store":
            (stopped_daemon.place / "state/state.db").mkdir(parents=True)
        else:
            stopped_daemon.configure(f"[metrics]\nport = {taken.getsockname()[1]}\n")
        refused = subprocess.run(
            stopped_daemon.command(),
            env=stopped_daemon.environment(),
            capture_output=True,
            timeout=20,
            check=False,
        )
    left = stopped_daemon.socket.exists()
    stopped_daemon.configure()
    if failure == "store":
        (stopped_daemon.place / "state/state.db").rmdir()
    assert (refused.returncode, b"Traceback" in refused.stderr) == (1, False), refused.stderr
    assert not left


def test_systemd_hears_that_the_daemon_is_ready_though_it_was_busy_then(stopped_daemon: Daemon) -> None:
    """Else it would take it for one that does not start."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
        contextlib.ExitStack() as others,
    ):
        place = str(stopped_daemon.place / "notify")
        systemd.bind(place)
        systemd.settimeout(20)
        for _ in range(8):  # of what one has sent only so much may wait
            other = others.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            other.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    other.sendto(b"STATUS=of another", place)
        with stopped_daemon.log.open("ab") as log:
            stopped_daemon.process = subprocess.Popen(
                stopped_daemon.command(),
                env={**stopped_daemon.environment(), "NOTIFY_SOCKET": place, "WATCHDOG_USEC": "400000"},
                stderr=log,
            )
        while "serving" not in stopped_daemon.log.read_text():
            assert stopped_daemon.process.poll() is None
        Client(stopped_daemon.socket).close()  # by now it was said
        heard = b""
        while b"WATCHDOG=1" not in heard:
            heard = systemd.recv(4096)
        assert b"READY=1" in heard.split(b"\n")
