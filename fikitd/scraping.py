"""Who asks for metrics is told: a request of the protocol, or a scraper over HTTP.

What they are is imported where they are served, or once somebody asks: prometheus_client brings Python's
HTTP and mail libraries.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

import trio

from fikitd.tenants.peer import tenant_name

if TYPE_CHECKING:
    from fikitd.daemon import Daemon

HOST: Final = "127.0.0.1"
BACKLOG: Final = 64
MOST_CONNECTIONS: Final = 32
"""At a time. Of whatever users: anybody on the machine may connect."""


async def render(daemon: Daemon, sees: Callable[[int | None], bool]) -> str:
    """The Prometheus text."""
    from fikitd import metrics

    names = {uid: await tenant_name(uid) for uid in daemon.users() if sees(uid)}
    return metrics.text_of(daemon, sees, names)


def listen_http(port: int) -> socket.socket:
    """Where scrapers connect. Blocking. Raises OSError."""
    import_module("fikitd.metrics")  # as the first of them asks there may be no descriptor to read it with
    try:
        return socket.create_server((HOST, port), backlog=BACKLOG)
    except OSError as error:
        raise OSError(error.errno, f"cannot serve metrics: {error.strerror}", f"{HOST}:{port}") from None


async def serve_http(daemon: Daemon, listening: socket.socket) -> None:
    """``GET /metrics``, or HEAD, one request a connection (HTTP/1.0: all a scraper needs)."""
    listening.setblocking(False)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
    served: dict[trio.CancelScope, None] = {}

    async def answer(stream: trio.SocketStream) -> None:
        # Whoever may connect must not use up our descriptors, nor keep others from asking: a scraper asks at
        # once, so who has been here longest is hung up.
        if len(served) == MOST_CONNECTIONS:
            longest = next(iter(served))
            del served[longest]
            longest.cancel()
        with trio.CancelScope() as scope:
            served[scope] = None
            try:
                await answer_http(daemon, stream)
            finally:
                served.pop(scope, None)

    await trio.serve_listeners(answer, [listener])


async def answer_http(daemon: Daemon, stream: trio.SocketStream) -> None:
    """Answer one scraper."""
    request = b""
    with trio.move_on_after(10):
        try:
            while b"\r\n\r\n" not in request and len(request) < 16384:
                piece = await stream.receive_some(4096)
                if not piece:
                    return
                request += piece
            asked, _, rest = request.partition(b" ")
            found = asked in (b"GET", b"HEAD") and rest.startswith((b"/metrics ", b"/metrics?"))
            body = (await render(daemon, lambda uid: True)).encode() if found else b"see /metrics\n"
            status = b"200 OK" if found else b"404 Not Found"
            kind = b"text/plain; version=0.0.4; charset=utf-8"
            head = b"HTTP/1.0 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (
                status,
                kind,
                len(body),
            )
            await stream.send_all(head if asked == b"HEAD" else head + body)
        except trio.BrokenResourceError:
            return
