"""The control connection against peers that answer, refuse, or break the protocol."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fikit
import msgspec
import pytest
from fikit import protocol
from fikit.control import Connection

WELCOME = protocol.Welcome(version=1, daemon="0", uid=0, tenant="t", administrator=False, priority_ceiling=0)
Answer = Callable[[socket.socket, int, Any], None]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[[Answer], Path]]:
    """Starts a peer that greets, and then answers every request as it is told to."""
    threads, listeners = [], []

    def start(answer: Answer) -> Path:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listeners.append(listener)

        def serve() -> None:
            try:
                peer, _ = listener.accept()
            except OSError:  # nobody has come
                return
            # Who leaves may not have read all.
            with listener, peer, suppress(ConnectionResetError):
                decoder = protocol.Decoder(protocol.AnyRequest)
                while data := peer.recv(65536):
                    decoder.feed(data)
                    for number, request in decoder.frames():
                        if isinstance(request, protocol.Hello):
                            peer.sendall(protocol.encode(number, WELCOME))
                        else:
                            answer(peer, number, request)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return tmp_path / "s"

    yield start
    for listener in listeners:
        with suppress(OSError), listener:
            listener.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()


def test_a_daemon_with_a_queue_of_those_who_connect_is_waited_for(tmp_path: Path) -> None:
    place = str(tmp_path / "s")

    def leave_one_in_the_queue() -> bool:
        with socket.socket(socket.AF_UNIX) as other:
            other.setblocking(False)
            return other.connect_ex(place) == 0

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(0)
        while leave_one_in_the_queue():
            pass
        with pytest.raises(fikit.UnreachableError, match="no fikitd answers"):
            Connection(place, timeout=0.05)

        def serve() -> None:
            listener.settimeout(10)
            greeted = False
            while not greeted:
                with listener.accept()[0] as peer:
                    if greeted := bool(peer.recv(65536)):
                        peer.sendall(protocol.encode(1, WELCOME))

        server = threading.Timer(0.2, serve)
        server.start()
        with Connection(place, timeout=10) as connection:
            assert connection.welcome == WELCOME
        server.join()


def test_requests_and_refusals(daemon: Callable[[Answer], Path]) -> None:
    def answer(peer: socket.socket, number: int, request: Any) -> None:
        failure = protocol.Failure(code="permission", message="not yours", hint="ask")
        reply = failure if isinstance(request, protocol.Drain) else protocol.Done()
        frame = protocol.encode(number, reply)
        for byte in range(len(frame)):  # in as many pieces as there can be
            peer.sendall(frame[byte : byte + 1])

    with Connection(daemon(answer)) as connection:
        assert connection.welcome == WELCOME
        assert connection.request(protocol.Undrain()) == protocol.Done()
        with pytest.raises(fikit.RefusedError, match=r"not yours \(ask\)") as caught:
            connection.request(protocol.Drain())
        assert (caught.value.reason, caught.value.hint) == ("permission", "ask")
        with pytest.raises(protocol.ProtocolError, match="answered with Done"):
            connection.expect(protocol.Jobs, protocol.ListJobs())


def test_replies_find_their_requests(daemon: Callable[[Answer], Path]) -> None:
    waiting: list[int] = []

    def answer(peer: socket.socket, number: int, request: Any) -> None:
        waiting.append(number)
        if len(waiting) == 2:
            for each in reversed(waiting):
                peer.sendall(protocol.encode(each, protocol.Event(kind=f"event {each}", unix=0.0)))

    with Connection(daemon(answer)) as connection:
        numbers = [connection.send(protocol.Subscribe()) for _ in range(2)]
        assert [connection.receive(number).kind for number in numbers] == [
            f"event {each}" for each in numbers
        ]


def test_descriptors_are_counted(daemon: Callable[[Answer], Path]) -> None:
    def answer(peer: socket.socket, number: int, request: Any) -> None:
        socket.send_fds(peer, [protocol.encode(number, protocol.Done())], [null.fileno()] * 2)

    with Path(os.devnull).open() as null, Connection(daemon(answer)) as connection:
        connection.request(protocol.Undrain())
        for descriptor in connection.take_descriptors(2):
            assert not os.get_inheritable(descriptor)
            os.close(descriptor)
        connection.request(protocol.Undrain())
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(protocol.ProtocolError, match="2 descriptors"):
            connection.take_descriptors(3)
        assert len(os.listdir("/proc/self/fd")) == before - 2


def test_descriptors_that_there_is_no_room_for_are_named(daemon: Callable[[Answer], Path]) -> None:
    def answer(peer: socket.socket, number: int, request: Any) -> None:
        socket.send_fds(peer, [protocol.encode(number, protocol.Done())], [null.fileno()])

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open() as null, Connection(daemon(answer)) as connection:
        with Path(os.devnull).open() as lowest_free:
            free = lowest_free.fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            with pytest.raises(fikit.UnreachableError, match="Too many open files"):
                connection.request(protocol.Undrain())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"\xc1", protocol.ProtocolError, "not a MessagePack frame"),
        (b"\x81\xa2id\x02", protocol.ProtocolError, "a frame is a map"),
        (b"\x82\xa2id\x02\xa4body\x80", protocol.ProtocolError, "the daemon's reply"),
        (b"", fikit.UnreachableError, "closed the connection"),
    ],
)
def test_a_peer_that_breaks_the_protocol(
    daemon: Callable[[Answer], Path], content: bytes, error: type[Exception], message: str
) -> None:
    def answer(peer: socket.socket, number: int, request: Any) -> None:
        peer.sendall(content) if content else peer.shutdown(socket.SHUT_RDWR)

    with Connection(daemon(answer)) as connection, pytest.raises(error, match=message):
        connection.request(protocol.Undrain())


def test_no_answer_in_time(daemon: Callable[[Answer], Path]) -> None:
    with Connection(daemon(lambda peer, number, request: None)) as connection, pytest.raises(TimeoutError):
        connection.request(protocol.Undrain(), timeout=0.01)


def test_a_process_of_a_job_waits_for_its_daemon(
    daemon: Callable[[Answer], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(peer: socket.socket, number: int, request: Any) -> None:
        peer.sendall(protocol.encode(number, protocol.Failure(code="permission", message="it is there")))

    path = tmp_path / "s"
    with pytest.raises(fikit.UnreachableError):
        fikit.connect(socket=path)
    monkeypatch.setenv("FIKIT_JOB", "j-1")
    with pytest.raises(fikit.UnreachableError):
        fikit.connect(socket=path, timeout=0.1)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            daemon(answer)

    monkeypatch.setattr(fikit.control.time, "sleep", pause)
    with pytest.raises(fikit.RefusedError, match="it is there"):
        fikit.connect(socket=path)
    assert len(pauses) == 3


@pytest.fixture
def asked(daemon: Callable[[Answer], Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What ``fikit.connect`` asks a daemon for, which refuses it."""
    requests: list[Any] = []

    def answer(peer: socket.socket, number: int, request: Any) -> None:
        requests.append(request)
        peer.sendall(protocol.encode(number, protocol.Failure(code="unavailable", message="not now")))

    path = daemon(answer)
    monkeypatch.delenv("FIKIT_JOB", raising=False)

    def ask(**arguments: Any) -> Any:
        with pytest.raises(fikit.RefusedError, match="not now"):
            fikit.connect(socket=path, **arguments)
        return requests.pop()

    return ask


def test_a_session_has_the_priority_that_its_surroundings_name(
    asked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIKIT_PRIORITY", "low")
    assert asked().priority == 9


@pytest.mark.parametrize(
    ("surroundings", "argument", "wanted"),
    [("low", "high", 0), ("low", 0, 0), ("", None, None), (None, None, None)],
)
def test_a_priority_that_is_asked_for_comes_first(
    surroundings: str | None,
    argument: str | int | None,
    wanted: int | None,
    asked: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FIKIT_PRIORITY", raising=False)
    if surroundings is not None:
        monkeypatch.setenv("FIKIT_PRIORITY", surroundings)
    assert asked(priority=argument).priority == wanted


def test_of_a_job_the_surroundings_decide_nothing(
    asked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIKIT_PRIORITY", "urgent")
    with pytest.raises(fikit.UsageError, match=r"^FIKIT_PRIORITY: priority 'urgent' is none of"):
        fikit.connect()
    monkeypatch.setenv("FIKIT_JOB", "job-1")
    assert asked().priority is None


@pytest.mark.parametrize(
    ("gpu", "wanted"),
    [
        (None, None),
        (3, 3),
        ("3", 3),
        ("GPU-8932f937", "GPU-8932f937"),
        ("GPU-8932F937", "GPU-8932f937"),
        ("MIG-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"),
    ],
)
def test_a_gpu_is_named_as_on_the_command_line(
    gpu: int | str | None, wanted: int | str | None, asked: Callable[..., Any]
) -> None:
    assert asked(gpu=gpu).gpu == wanted


def test_what_names_no_gpu_is_told_how_to() -> None:
    for gpu in ("", "all", "GPU-", "GPU-x", "8932f937"):
        with pytest.raises(fikit.UsageError, match=r"how a UUID begins \(GPU-8932f937\)"):
            fikit.connect(gpu=gpu)


def test_a_daemon_that_does_not_greet_is_told_to_be_stopped(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        with pytest.raises(fikit.UnreachableError) as told:
            fikit.connect(socket=tmp_path / "s", timeout=0.05)
    assert str(told.value).endswith("did not answer within 0.05 s (it is stopped, or hangs)")


def test_an_executor_of_another_release_is_named(daemon: Callable[[Answer], Path]) -> None:
    def answer(peer: socket.socket, number: int, request: Any) -> None:
        files = [os.memfd_create(name, os.MFD_ALLOW_SEALING) for name in ("outbox", "inbox", "lifeline")]
        for file, magic in zip(files, (0x584F464B, 0x5849464B, 0), strict=True):
            os.write(file, struct.pack("<II", magic, 99).ljust(4096, b"\0"))
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        opened = protocol.SessionOpened(
            session="s-1", gpu=0, device_name="", time_scale=1.0, priority=0, memory_limit_bytes=0
        )
        socket.send_fds(peer, [protocol.encode(number, opened)], files)
        for file in files:
            os.close(file)

    with pytest.raises(fikit.FikitError, match="the daemon is of another release"):
        fikit.connect(socket=daemon(answer))


def test_why_a_daemon_hung_up_before_it_was_asked_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung_up, encode = threading.Event(), protocol.encode

    def late(*arguments: Any) -> bytes:
        assert hung_up.wait(20)
        return encode(*arguments)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()

        def refuse() -> None:
            with listener.accept()[0] as peer:
                peer.sendall(encode(0, protocol.Failure(code="quota", message="you have 128 connections")))
            hung_up.set()

        thread = threading.Thread(target=refuse)
        thread.start()
        monkeypatch.setattr("fikit.protocol.encode", late)
        with pytest.raises(fikit.RefusedError, match="you have 128 connections"):
            Connection(tmp_path / "s")
        thread.join()


@pytest.mark.parametrize(("said", "seconds"), [(7, 67), (0, 60), (1 << 62, 3660)])
def test_a_session_is_waited_for_as_long_as_its_executor_may_take(
    daemon: Callable[[Answer], Path], monkeypatch: pytest.MonkeyPatch, said: int, seconds: int
) -> None:
    monkeypatch.setitem(globals(), "WELCOME", msgspec.structs.replace(WELCOME, start_seconds=said))
    clock, hear = [0.0], Connection._read

    def read(self: Connection) -> None:
        if self._last == 1:  # the greeting
            return hear(self)
        clock[0] += self._socket.gettimeout()
        raise TimeoutError

    monkeypatch.setattr(fikit.control.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(Connection, "_read", read)
    message = f"has opened no session within {seconds} s; it lets an executor start for {seconds - 60} s"
    with pytest.raises(TimeoutError, match=message):
        fikit.connect(socket=daemon(lambda peer, number, request: None))
    assert clock == [seconds]


def test_an_older_daemon_is_waited_for_as_long_as_it_lets_executors_start_by_default() -> None:
    decoder = protocol.Decoder(protocol.AnyReply)
    earlier = {"type": "welcome", **msgspec.structs.asdict(WELCOME)}
    del earlier["start_seconds"]
    decoder.feed(msgspec.msgpack.encode({"id": 1, "body": earlier}))
    assert [body.start_seconds for _, body in decoder.frames()] == [60]


@pytest.mark.parametrize("said", [-1, 1 << 63, math.nan, math.inf, 0.5, "long", None])
def test_a_daemon_that_says_nonsense_of_how_long_a_start_takes_is_none(said: Any, tmp_path: Path) -> None:
    welcome = {"type": "welcome", **msgspec.structs.asdict(WELCOME), "start_seconds": said}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()

        def greet() -> None:
            with listener.accept()[0] as peer:
                peer.recv(65536)
                peer.sendall(msgspec.msgpack.encode({"id": 1, "body": welcome}))
                peer.recv(65536)

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(protocol.ProtocolError, match="start_seconds"):
            Connection(tmp_path / "s")
        thread.join()


def test_who_sends_something_else_all_the_time_is_not_waited_for_any_longer(
    daemon: Callable[[Answer], Path],
) -> None:
    def answer(peer: socket.socket, number: int, request: Any) -> None:
        with suppress(ConnectionError):
            while True:
                peer.sendall(protocol.encode(number + 1, protocol.Done()))

    late = pytest.raises(TimeoutError, match=r"did not answer within 0\.05 s")
    with Connection(daemon(answer)) as connection, late:
        connection.request(protocol.Undrain(), timeout=0.05)


def test_a_process_of_a_job_waits_for_the_successor_of_a_daemon_that_it_has_asked(
    daemon: Callable[[Answer], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it has waited for its executor by then."""
    clock = [0.0]
    monkeypatch.setattr(fikit.control.time, "monotonic", lambda: clock[0])

    def hang_up(peer: socket.socket, number: int, request: Any) -> None:
        clock[0] += 10 * fikit.control.ANSWER_SECONDS
        (tmp_path / "s").unlink()
        peer.shutdown(socket.SHUT_RDWR)

    def refuse(peer: socket.socket, number: int, request: Any) -> None:
        peer.sendall(protocol.encode(number, protocol.Failure(code="permission", message="it is there")))

    monkeypatch.setenv("FIKIT_JOB", "j-1")
    monkeypatch.setattr(fikit.control.time, "sleep", lambda seconds: daemon(refuse))
    place = daemon(hang_up)
    with pytest.raises(fikit.RefusedError, match="it is there"):
        fikit.connect(socket=place)


def test_a_process_of_a_job_that_may_not_connect_says_so_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that has given up its user: a daemon that is started anew would let it in no more than this."""
    clock = [0.0]

    def deny(path: object, **_: object) -> None:
        raise fikit.UnreachableError("no fikitd answers") from PermissionError(errno.EACCES, "denied")

    def pause(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setenv("FIKIT_JOB", "j-1")
    monkeypatch.setattr(fikit.control.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(fikit.control.time, "sleep", pause)
    monkeypatch.setattr("fikit.session.Connection", deny)
    with pytest.raises(fikit.UnreachableError):
        fikit.connect(socket=tmp_path / "s")
    assert 0.5 < clock[0] < 2


def test_a_machine_that_was_paused_meanwhile_is_no_daemon_that_hangs(
    daemon: Callable[[Answer], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused as well, and has its answer yet to give."""
    clock, read, reads = [0.0], Connection._read, []

    def paused(self: Connection) -> None:
        reads.append(clock[0])
        if len(reads) == 1:
            clock[0] += 3600
            raise TimeoutError
        read(self)

    def answer(peer: socket.socket, number: int, _: Any) -> None:
        peer.sendall(protocol.encode(number, protocol.Done()))

    with Connection(daemon(answer)) as connection:
        monkeypatch.setattr(fikit.control.time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(Connection, "_read", paused)
        assert connection.request(protocol.GetStatus(), timeout=30) == protocol.Done()
    assert len(reads) > 1


def test_what_is_at_its_default_is_not_sent() -> None:
    """So that a daemon which does not know the field, or that it may be null, serves the client."""
    asked = protocol.OpenSession(name="any")
    sent = msgspec.msgpack.decode(protocol.encode(1, asked))["body"]
    assert sent == {"type": "open_session", "name": "any"}
    assert msgspec.convert(sent, protocol.OpenSession) == asked
