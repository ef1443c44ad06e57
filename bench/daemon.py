"""The daemon that is measured: the one at FIKIT_SOCKET, else one of our own in a temporary directory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fikit import protocol
from fikit.control import Connection
from fikitctl.failures import CommandError
from fikitctl.own_daemon import await_ready, last_words
from msgspec import to_builtins

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
                try:
                    await_ready(notified, process)
                except CommandError as error:
                    raise RuntimeError(f"{error.message}{last_words(place)}") from error
                yield place / "fikitd.sock"
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


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
