"""A blocking control connection: stands in for the client library's own, with the same interface."""

from __future__ import annotations

import socket
from typing import Any

from fikit import protocol


class UnreachableError(ConnectionError):
    """No daemon answers, or it went away."""


class RefusedError(Exception):
    """The daemon refused a request."""

    def __init__(self, reason: protocol.ErrorCode, message: str, hint: str = "") -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.reason = reason
        self.hint = hint


class Connection:
    """One control connection, greeted."""

    def __init__(self, path: str, *, client: str, timeout: float | None) -> None:
        self._decoder = protocol.Decoder(protocol.AnyReply)
        self._ready: list[tuple[int, Any]] = []
        self._last = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(path)
            self.welcome = self.request(protocol.Hello(version=protocol.PROTOCOL_VERSION, client=client))
        except UnreachableError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise UnreachableError(f"no fikitd answers at {path}: {error.strerror or error}") from error
        except BaseException:
            self.close()
            raise

    def request(self, body: protocol.Request) -> Any:
        """The reply to ``body``."""
        return self.receive(self.send(body))

    def send(self, body: protocol.Request) -> int:
        """Send a request; its id."""
        self._last += 1
        try:
            self._socket.sendall(protocol.encode(self._last, body))
        except OSError as error:
            raise UnreachableError(f"the connection was lost: {error.strerror}") from error
        return self._last

    def receive(self, identifier: int) -> Any:
        """The next reply to the request of this id."""
        while True:
            for index, (number, body) in enumerate(self._ready):
                if number == identifier:
                    del self._ready[index]
                    if isinstance(body, protocol.Failure):
                        raise RefusedError(body.code, body.message, body.hint)
                    if isinstance(body, protocol.InvalidBody):
                        raise protocol.ProtocolError(body.message)
                    return body
            self._read()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except OSError as error:
            raise UnreachableError(f"the connection was lost: {error.strerror}") from error
        if not data:
            raise UnreachableError("fikitd closed the connection")
        self._decoder.feed(data)
        self._ready += self._decoder.frames()
