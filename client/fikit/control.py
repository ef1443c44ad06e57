"""A blocking connection to the daemon: frames over a Unix socket, descriptors beside them.

Also what ``fikitctl`` uses, so it imports neither trio nor the native module.
"""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from types import EllipsisType
from typing import Any, Final, Self, TypeVar

from fikit import protocol
from fikit.errors import RefusedError, UnreachableError, UsageError
from fikit.place import UnsafePlaceError, default_socket

_CHUNK: Final = 256 * 1024
_MOST_DESCRIPTORS: Final = 16
_GREETING_SECONDS: Final = 20.0
"""A daemon that is not stopped or hung greets at once, however long what is then asked may take."""
ANSWER_SECONDS: Final = 60.0
"""So long a session waits for the daemon itself, on the busiest machine; where it belongs to a job, also for
one that may be about to start anew."""
LONGEST_START_SECONDS: Final = 3600
"""An executor may take no longer to start, whatever a daemon says."""
_UNASKED: Final = 0
"""The id under which a daemon says why it ends the connection, whatever it was asked."""

_PAUSE_SECONDS: Final = 0.05
RESTART_SECONDS: Final = 10.0
"""So long those who look at jobs wait for a daemon that may be about to start anew."""
_OPENING_SECONDS: Final = 1.0
"""A daemon that starts makes its socket before it lets others in: so long who is kept out asks again."""
_HELD_UP_SECONDS: Final = 1.0
"""Who finds a wait over so late was paused with the machine: the daemon's answer may be yet to come."""
MOST_RESTARTS: Final = 100
"""Of the daemon while one thing is asked: one that hangs up whenever it is asked is not asked for ever."""

ReplyType = TypeVar("ReplyType", bound=protocol.Reply)
Result = TypeVar("Result")


def once_it_answers(ask: Callable[[], Result], patience: float) -> Result:
    """What ``ask`` returns, asked again so long while no daemon is there. Raises UnreachableError."""
    begin = time.monotonic()
    while True:
        try:
            return ask()
        except UnreachableError as error:
            denied = isinstance(error.__cause__, PermissionError)
            if time.monotonic() - begin >= (min(patience, _OPENING_SECONDS) if denied else patience):
                raise
        time.sleep(_PAUSE_SECONDS)


class Connection:
    """One control connection, greeted. Not thread-safe: one request at a time.

    Raises UnreachableError when no daemon answers, or when it goes away.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        client: str = "fikit",
        timeout: float | None = 30.0,
    ) -> None:
        try:
            self.path = Path(path) if path is not None else default_socket()
        except UnsafePlaceError as error:
            raise UnreachableError(str(error)) from error
        self._decoder = protocol.Decoder(protocol.AnyReply)
        self._ready: list[tuple[int, Any]] = []
        self._descriptors: list[int] = []
        self._last = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            patience = _GREETING_SECONDS if timeout is None else timeout
            # The kernel waits: with a timeout of Python's, a queue that is full just now is an error at once.
            self._limit_sending(patience)
            self._socket.connect(os.fspath(self.path))
            self._limit_sending(0)
            self._socket.settimeout(patience)
            self.welcome = self.expect(
                protocol.Welcome, protocol.Hello(version=protocol.PROTOCOL_VERSION, client=client)
            )
            self._socket.settimeout(timeout)
        except OSError as error:
            self._socket.close()
            if isinstance(error, UnreachableError):
                raise
            reason = f"no fikitd answers at {self.path}: {error.strerror or error}"
            hint = "is it running? FIKIT_SOCKET names another place"
            if isinstance(error, TimeoutError):  # somebody listens
                reason, hint = str(error), "it is stopped, or hangs"
            raise UnreachableError(f"{reason} ({hint})") from error
        except BaseException:
            self._socket.close()
            raise

    def request(self, body: protocol.Request, *, timeout: float | EllipsisType | None = ...) -> Any:
        """Send one request and return its reply. Raises RefusedError where the daemon says no.

        ``timeout``, in seconds, replaces the connection's own for this request; None: no limit.
        """
        return self.receive(self.send(body), timeout=timeout)

    def expect(
        self,
        reply_type: type[ReplyType],
        body: protocol.Request,
        *,
        timeout: float | EllipsisType | None = ...,
    ) -> ReplyType:
        """``request``, for a reply of one type. Raises ProtocolError for any other."""
        reply = self.request(body, timeout=timeout)
        if not isinstance(reply, reply_type):
            raise protocol.ProtocolError(f"{type(body).__name__} was answered with {type(reply).__name__}")
        return reply

    def send(self, body: protocol.Request) -> int:
        """Send a request whose replies ``receive`` will get; its id. Raises UsageError, RefusedError."""
        self._last += 1
        try:
            self._socket.sendall(protocol.encode(self._last, body))
        except protocol.UnsendableError as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError | ConnectionResetError):
                with suppress(OSError):
                    self.receive(_UNASKED)  # raises RefusedError where it has said why
            raise self._lost(error) from error
        return self._last

    def receive(self, identifier: int, *, timeout: float | EllipsisType | None = ...) -> Any:
        """The next reply to one request (a subscription has many). Raises TimeoutError, RefusedError."""
        return self.receive_first((identifier,), timeout=timeout)[1]

    def receive_first(
        self, identifiers: Collection[int], *, timeout: float | EllipsisType | None = ...
    ) -> tuple[int, Any]:
        """Of several requests, which is answered first, and the reply. Raises as ``receive`` does."""
        before = self._socket.gettimeout()
        try:
            identifier, reply = self._next(identifiers, before if timeout is ... else timeout)
        finally:
            self._socket.settimeout(before)
        if isinstance(reply, protocol.Failure):
            raise RefusedError(reply.code, reply.message, reply.hint)
        if isinstance(reply, protocol.InvalidBody):
            raise protocol.ProtocolError(f"the daemon's reply: {reply.message}")
        return identifier, reply

    def take_descriptors(self, count: int) -> list[int]:
        """The descriptors that came beside the last reply; the caller closes them."""
        taken, self._descriptors = self._descriptors, []
        if len(taken) != count:
            for descriptor in taken:
                os.close(descriptor)
            raise protocol.ProtocolError(f"{len(taken)} descriptors came with a reply that has {count}")
        return taken

    def fileno(self) -> int:
        """The socket's descriptor, for polling."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection, and descriptors that nobody took."""
        self._socket.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self, identifiers: Collection[int], seconds: float | None) -> tuple[int, Any]:
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            for index, (number, _) in enumerate(self._ready):
                if number in identifiers or number == _UNASKED:
                    return self._ready.pop(index)
            # All in all: who sends a little now and then must not stretch it.
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= -_HELD_UP_SECONDS:
                return self._next(identifiers, seconds)
            if left is not None and left <= 0:
                raise TimeoutError(f"fikitd at {self.path} did not answer within {seconds:g} s")
            self._socket.settimeout(left)
            with suppress(TimeoutError):
                self._read()

    def _read(self) -> None:
        integers = array.array("i")
        try:
            data, control, flags, _ = self._socket.recvmsg(
                _CHUNK, socket.CMSG_SPACE(_MOST_DESCRIPTORS * integers.itemsize), socket.MSG_CMSG_CLOEXEC
            )
        except TimeoutError:
            raise
        except OSError as error:
            raise self._lost(error) from error
        for level, kind, payload in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                integers.frombytes(payload[: len(payload) - len(payload) % integers.itemsize])
        self._descriptors.extend(integers)
        if flags & socket.MSG_CTRUNC:  # the kernel drops what there is no descriptor left for
            raise self._lost(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        if not data:
            raise UnreachableError(f"fikitd at {self.path} closed the connection")
        self._decoder.feed(data)
        self._ready.extend(self._decoder.frames())

    def _limit_sending(self, seconds: float) -> None:
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def _lost(self, error: OSError) -> UnreachableError:
        return UnreachableError(
            f"the connection to fikitd at {self.path} was lost: {error.strerror or error}"
        )
