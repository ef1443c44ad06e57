"""A real daemon in a directory of its own, and a plain blocking client. Readiness comes from sd_notify.

Starting one takes longer than most tests do. So those that do it no harm are marked ``shares_daemon`` and use
one together; what a test configures, stops or kills is its own.
"""

from __future__ import annotations

import array
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fikit import protocol as p

ROOT = Path(__file__).resolve().parents[2]
DOUBLE = Path(__file__).with_name("executor_double.py")
REAL = os.environ.get("FIKIT_TEST_EXECUTOR") == "real"
"""Run against the real executor on the device that the settings choose, where the double would do."""
EXECUTOR = "start_seconds = 30.0" if REAL else f"command = [{sys.executable!r}, {str(DOUBLE)!r}]"
SETTINGS = f"""
[daemon]
socket_mode = "0666"
drain_seconds = 0.0
[device]
choice = "sim"
[executor]
{EXECUTOR}
heartbeat_seconds = 0.1
[profiles]
interval_seconds = 0.2
[tenants.nobody]
max_jobs = 20
"""
DEADLINE_SECONDS = 20.0


def heed_hangups() -> None:
    """In a child before it starts: SIGHUP ends it, though who started us ignores that, as nohup does."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Client:
    """Asks one thing at a time, and keeps the descriptors that came."""

    def __init__(self, path: Path, hello: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(DEADLINE_SECONDS)
        self.socket.connect(str(path))
        self.decoder = p.Decoder(p.AnyReply)
        self.frames: list[tuple[int, Any]] = []
        self.descriptors: list[int] = []
        self.next_id = 1
        if hello:
            self.welcome = self.ask(p.Hello(version=p.PROTOCOL_VERSION, client="test"))

    def send(self, body: Any) -> int:
        self.next_id += 1
        self.socket.sendall(p.encode(self.next_id, body))
        return self.next_id

    def receive(self) -> tuple[int, Any]:
        while not self.frames:
            data, ancillary, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(64), socket.MSG_CMSG_CLOEXEC)
            for _, _, content in ancillary:
                descriptors = array.array("i")
                descriptors.frombytes(content)
                self.descriptors.extend(descriptors)
            if not data:
                raise EOFError
            self.decoder.feed(data)
            self.frames.extend(self.decoder.frames())
        return self.frames.pop(0)

    def ask(self, body: Any) -> Any:
        """Its answer. Events that come before it are kept for who receives."""
        identifier, before = self.send(body), []
        while True:
            answered, reply = frame = self.receive()
            if answered in (identifier, 0):
                self.frames[:0] = before
                return reply
            if isinstance(reply, p.Event):
                before.append(frame)

    def subscribe(self) -> None:
        """To events; what happens before the daemon said so is told to nobody."""
        identifier = self.send(p.Subscribe())
        while (answered := self.receive())[0] != identifier:
            pass
        assert answered[1].kind == "subscribed"

    def pid_of(self, job: str) -> int:
        """Of its command, once the daemon has learnt it, which it may after the command's first output."""
        while (pid := self.ask(p.Show(target=job)).job.pid) is None:
            pass
        return int(pid)

    def close(self) -> None:
        self.socket.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []


class Daemon:
    """One place for a daemon, which can be started, killed and started again."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.socket = place / "fikitd.sock"
        self.config = place / "fikitd.toml"
        self.log = place / "daemon.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.clients: list[Client] = []
        self.prologue = ""
        """Python that the daemon's process runs first."""
        self.configure()

    def configure(self, extra: str = "", settings: str = SETTINGS) -> None:
        self.config.write_text(settings + extra)

    def command(self) -> list[str]:
        return [
            sys.executable,
            "-P",
            "-c",
            f"{self.prologue}from fikitd.main import main; main()",
            "--config",
            str(self.config),
        ]

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "FIKIT_SOCKET": str(self.socket),
            "STATE_DIRECTORY": str(self.place / "state"),
            "RUNTIME_DIRECTORY": str(self.place / "run"),
        }

    def start(self, **environment: str) -> Daemon:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            place = self.place / "notify"
            place.unlink(missing_ok=True)
            notified.bind(str(place))
            notified.settimeout(0.2)
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.command(),
                    env={**self.environment(), "NOTIFY_SOCKET": str(place), **environment},
                    stderr=log,
                    start_new_session=True,
                )
            message = b""
            for _ in range(100):
                try:
                    message = notified.recv(4096)
                except TimeoutError:
                    assert self.process.poll() is None, self.log.read_text()
                if b"READY=1" in message:
                    break
            assert b"READY=1" in message, message
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE_SECONDS)
        self.process = None
        return code

    def client(self, hello: bool = True) -> Client:
        client = Client(self.socket, hello)
        self.clients.append(client)
        return client

    def tidy(self) -> None:
        """End what a test has left, before others use the daemon."""
        self._close_clients()
        client = Client(self.socket)
        for job in client.ask(p.ListJobs()).jobs:
            if job.ended_unix is None:
                client.ask(p.Kill(target=job.job, signal=signal.SIGKILL))
                assert client.ask(p.Wait(job=job.job)).job.ended_unix is not None, job
        for _ in range(1000):
            if not (left := client.ask(p.ListSessions()).sessions):
                break
            for session in left:
                client.ask(p.Kill(target=session.session))
            threading.Event().wait(0.01)
        assert not left, left
        client.ask(p.ClearProfiles())
        client.close()

    def _close_clients(self) -> None:
        for client in self.clients:
            client.close()
        self.clients.clear()

    def clear(self) -> None:
        self._close_clients()
        if self.process is None:
            self.start()
        assert self.stop() == 0, self.log.read_text()


@contextmanager
def new_place() -> Iterator[Path]:
    """A directory that every user may enter."""
    directory = Path(tempfile.mkdtemp(prefix="fikitd-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def place() -> Iterator[Path]:
    with new_place() as directory:
        yield directory


def daemons(kind: type[Daemon]) -> tuple[Any, Any]:
    """The fixtures of these names, for the tests beside or below: one for a test, and one for many."""

    @pytest.fixture
    def stopped_daemon(place: Path) -> Iterator[Daemon]:
        daemon = kind(place)
        yield daemon
        daemon.clear()

    @pytest.fixture(scope="session")
    def lasting_daemon() -> Iterator[Daemon]:
        with new_place() as place:
            daemon = kind(place).start()
            yield daemon
            daemon.clear()

    return stopped_daemon, lasting_daemon


stopped_daemon, lasting_daemon = daemons(Daemon)


@pytest.fixture
def shared_daemon(lasting_daemon: Daemon) -> Iterator[Daemon]:
    yield lasting_daemon
    lasting_daemon.tidy()


@pytest.fixture
def chosen_daemon(request: pytest.FixtureRequest) -> Daemon:
    """The shared daemon, if that will do for the test; else its own, which need not run yet."""
    shares = request.node.get_closest_marker("shares_daemon") and "stopped_daemon" not in request.fixturenames
    daemon: Daemon = request.getfixturevalue("shared_daemon" if shares else "stopped_daemon")
    return daemon


@contextmanager
def small_file_system(daemon: Daemon, directory: str) -> Iterator[Path]:
    """A directory of the daemon's, on a file system of its own of 1 MiB."""
    place = daemon.place / directory
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"only root, where it may mount, has a small file system: {mounted.stderr.strip()}")
    yield place
    if daemon.process is not None:
        daemon.stop()
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def small_disk(stopped_daemon: Daemon) -> Iterator[Path]:
    """The state directory."""
    with small_file_system(stopped_daemon, "state") as place:
        yield place


@pytest.fixture
def small_runtime(stopped_daemon: Daemon) -> Iterator[Path]:
    """The runtime directory."""
    with small_file_system(stopped_daemon, "run") as place:
        yield place


def fill(disk: Path, *files: Path) -> Path:
    """Leave no room, nor behind the end of the files; the file to remove."""
    filler = disk / "filler"
    for path in (filler, *files):
        with path.open("ab", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))
    return filler


@pytest.fixture
def daemon(chosen_daemon: Daemon) -> Daemon:
    return chosen_daemon if chosen_daemon.process is not None else chosen_daemon.start()


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return daemon.client()


@pytest.fixture
def as_user() -> Callable[..., Any]:
    """Run a function in a process of another user; its result must be a short text."""

    def run(uid: int, function: Callable[[], str]) -> str:
        if os.geteuid() != 0:
            pytest.skip("only root can become somebody else")
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                os.write(writer, function().encode())
            except BaseException as error:
                os.write(writer, f"{type(error).__name__}: {error}".encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        return text

    return run


def of_a_runner(*command: str, uid: int = os.getuid(), gid: int = os.getgid()) -> dict[str, Any]:
    """What a runner is told of a job that has this command, and little else."""
    rest = {"environment": {}, "directory": "/", "groups": [], "output_limit_bytes": 100}
    return {"command": list(command), "uid": uid, "gid": gid, **rest}
