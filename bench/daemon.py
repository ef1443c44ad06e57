"""The daemon that is measured: the one at FIKIT_SOCKET, else one of our own in a temporary directory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fikit import protocol
from fikit.control import Connection
from msgspec import to_builtins

START_SECONDS = 60.0
STOP_SECONDS = 60.0


@contextmanager
def daemon(device: str, configuration: str = "") -> Iterator[Path]:
    """The socket of a daemon that serves the device; started and ended here.

    Without a ``configuration`` of its own (text of a fikitd.toml), it may be the one at FIKIT_SOCKET.
    """
    if (given := os.environ.get("FIKIT_SOCKET")) and not configuration:
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="fikit-bench-") as folder:
        place = Path(folder)
        environment = {
            **os.environ,
            "STATE_DIRECTORY": str(place / "state"),
            "RUNTIME_DIRECTORY": str(place / "run"),
            "NOTIFY_SOCKET": str(place / "notify"),
        }
        command = [sys.executable, "-P", "-c", "from fikitd.main import main; main()"]
        options = ["--device", device, "--socket", str(place / "fikitd.sock")]
        if configuration:
            (place / "fikitd.toml").write_text(configuration)
            options += ["--config", str(place / "fikitd.toml")]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified, (place / "log").open("wb") as log:
            notified.bind(environment["NOTIFY_SOCKET"])
            process = subprocess.Popen(
                [*command, *options], env=environment, stderr=log, start_new_session=True
            )
            try:
                _await_ready(notified, process, place / "log")
                yield place / "fikitd.sock"
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _await_ready(notified: socket.socket, process: subprocess.Popen[bytes], log: Path) -> None:
    """Raises RuntimeError with what a daemon said last that ended instead, TimeoutError."""
    notified.settimeout(0.1)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with suppress(TimeoutError):
            if b"READY=1" in notified.recv(4096):
                return
        if process.poll() is not None:
            raise RuntimeError(f"the daemon ended with {process.returncode}: {log.read_text()[-300:]}")
    raise TimeoutError(f"the daemon is not ready after {START_SECONDS} s")


def explained(place: Path, session: str | None = None) -> dict[str, Any] | None:
    """How the daemon's gate treated a session and those beside it; without one named, any that is there."""
    with Connection(place, client="bench", timeout=60.0) as connection:
        if session is None:
            sessions = connection.expect(protocol.Sessions, protocol.ListSessions()).sessions
            if not sessions:
                return None
            session = sessions[0].session
        told = connection.expect(protocol.Explained, protocol.Explain(session=session))
    found: dict[str, Any] = to_builtins(told)
    return found


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def executors(daemon_pid: int) -> list[int]:
    """The executors among a daemon's children."""
    children = Path(f"/proc/{daemon_pid}/task/{daemon_pid}/children").read_text().split()
    return [int(pid) for pid in children if b"fikitd.executor" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def listener(path: Path) -> int:
    """The process that listens at a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.connect(str(path))
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], sys.byteorder)
