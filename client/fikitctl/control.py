"""A blocking control connection (stands in until the client library's own is here)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import msgspec
from fikit import protocol


class RequestFailed(Exception):  # noqa: N818
    """The daemon refused; ``failure`` says why."""

    def __init__(self, failure: protocol.Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Control:
    """One connection: a request, its reply."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._decoder = protocol.Decoder(protocol.AnyReply)
        self._pending: list[tuple[int, Any]] = []
        self._next_identifier = 1
        self.welcome: protocol.Welcome

    @classmethod
    def connect(cls, path: str) -> Control:
        """Connect and say hello."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
            control = cls(connection)
            hello = protocol.Hello(version=protocol.PROTOCOL_VERSION, client="fikitctl")
            control.welcome = control.request(hello)
        except BaseException:
            connection.close()
            raise
        return control

    def request(self, body: protocol.Request) -> Any:
        """The reply to ``body``."""
        return self._reply(self._send(body))

    def events(self, subscription: protocol.Subscribe) -> Iterator[protocol.Event]:
        """What happens from now on."""
        identifier = self._send(subscription)
        while True:
            reply = self._reply(identifier)
            if isinstance(reply, protocol.Event):
                yield reply

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _send(self, body: msgspec.Struct) -> int:
        identifier, self._next_identifier = self._next_identifier, self._next_identifier + 1
        self._socket.sendall(protocol.encode(identifier, body))
        return identifier

    def _reply(self, identifier: int) -> Any:
        while True:
            for position, (number, body) in enumerate(self._pending):
                if number == identifier:
                    del self._pending[position]
                    if isinstance(body, protocol.Failure):
                        raise RequestFailed(body)
                    if isinstance(body, protocol.InvalidBody):
                        raise protocol.ProtocolError(body.message)
                    return body
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("connection closed")
            self._decoder.feed(data)
            self._pending += self._decoder.frames()
