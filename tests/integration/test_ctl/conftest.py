"""A daemon that says what a test scripts, over a real socket; and fikitctl called in this process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fikit import protocol
from fikitctl import main

Answer = (
    protocol.Reply
    | list[protocol.Reply]
    | Callable[[Any], protocol.Reply | list[protocol.Reply] | None]
    | None
)

HANG_UP = protocol.Done()
WELCOME = protocol.Welcome(
    version=1, daemon="0.1.0", uid=1000, tenant="ada", administrator=False, priority_ceiling=0
)


class ScriptedDaemon:
    """Answers each request with what ``script`` holds for its type; None: no answer at all.

    A list is sent reply by reply under the request's id; HANG_UP there ends the connection. ``hang_up``: end
    it at that request.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.script: dict[type[protocol.Request], Answer] = {protocol.Hello: WELCOME}
        self.hang_up: set[type[protocol.Request]] = set()
        self.received: list[Any] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def of(self, kind: type[Any]) -> list[Any]:
        """The requests of one type so far."""
        return [request for request in self.received if isinstance(request, kind)]

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        decoder = protocol.Decoder(protocol.AnyRequest)
        with connection, contextlib.suppress(ConnectionError):  # the client may leave first
            while data := self._receive(connection):
                decoder.feed(data)
                for identifier, request in decoder.frames():
                    self.received.append(request)
                    if type(request) in self.hang_up:
                        return
                    for reply in self._replies(request):
                        if reply is HANG_UP:
                            return
                        connection.sendall(protocol.encode(identifier, reply))

    @staticmethod
    def _receive(connection: socket.socket) -> bytes:
        try:
            return connection.recv(1 << 16)
        except OSError:
            return b""

    def _replies(self, request: protocol.Request) -> list[protocol.Reply]:
        answer = self.script[type(request)]
        replies = answer(request) if callable(answer) else answer
        if replies is None:
            return []
        return replies if isinstance(replies, list) else [replies]


class Result(NamedTuple):
    code: int
    out: str
    err: str


Fikitctl = Callable[..., Result]


class Screen(NamedTuple):
    """A process that leads the session of a terminal, and the terminal's other side."""

    process: subprocess.Popen[bytes]
    terminal: int

    def read_until(self, text: bytes) -> None:
        seen = b""
        while text not in seen:
            seen += os.read(self.terminal, 1024)


OnTerminal = Callable[..., Screen]
# In its new session the process takes its standard input as its terminal, then becomes the command.
_ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
_FIKITCTL = [sys.executable, "-c", "from fikitctl.main import main; main()"]


@pytest.fixture
def on_terminal() -> Iterator[OnTerminal]:
    screens: list[Screen] = []

    def start(*arguments: str, shell: Sequence[str] = (), **variables: str) -> Screen:
        """``shell``: what gets fikitctl and its arguments as more arguments, and is to call it."""
        ours, its = os.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", _ON_TERMINAL, *shell, *_FIKITCTL, *arguments],
            stdin=its,
            stdout=its,
            stderr=its,
            env=os.environ | variables,
            start_new_session=True,
        )
        os.close(its)
        screens.append(Screen(process, ours))
        return screens[-1]

    yield start
    for screen in screens:
        screen.process.kill()
        screen.process.wait()
        os.close(screen.terminal)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedDaemon]:
    scripted = ScriptedDaemon(tmp_path / "fikitd.sock")
    monkeypatch.setenv("FIKIT_SOCKET", str(scripted.path))
    yield scripted
    scripted.close()


@pytest.fixture
def fikitctl(capfd: pytest.CaptureFixture[str]) -> Fikitctl:
    def call(*arguments: str) -> Result:
        code = main.call(arguments)
        captured = capfd.readouterr()
        return Result(int(code), captured.out, captured.err)

    return call
