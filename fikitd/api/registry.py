"""Which function answers which request: keyed by the struct's type; a test holds it to REQUESTS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fikit.protocol import Event, Reply, Request

from fikitd.api.user import Turn
from fikitd.daemon import Daemon
from fikitd.tenants.peer import Peer
from fikitd.traces import Tracer


@dataclass(frozen=True)
class Handed:
    """A reply with descriptors beside it; they are the sender's to close."""

    reply: Reply
    descriptors: list[int]


@dataclass(eq=False)
class Caller:
    """Whose request is served, and how to reach him."""

    peer: Peer
    daemon: Daemon
    turn: Turn
    open_pidfd: Callable[[], int]
    """A new pidfd of the peer. Raises OSError when it has ended."""
    send_event: Callable[[Event], Awaitable[None]]
    """Under the request's id."""
    foreground: dict[int, int]
    """Numbers of the foreground jobs that end with the connection, and how deep in PID namespaces it was."""
    tracers: dict[int, Tracer]
    """The traces that it has started, by GPU; they end with it, too."""


Handler = Callable[[Caller, Any], Awaitable[Reply | Handed]]
HANDLERS: Final[dict[type[Request], Handler]] = {}
Kind = TypeVar("Kind", bound=Request)


def handles(
    kind: type[Kind],
) -> Callable[
    [Callable[[Caller, Kind], Awaitable[Reply | Handed]]], Callable[[Caller, Kind], Awaitable[Reply | Handed]]
]:
    """Make the decorated function the one that answers ``kind``."""

    def register(
        handler: Callable[[Caller, Kind], Awaitable[Reply | Handed]],
    ) -> Callable[[Caller, Kind], Awaitable[Reply | Handed]]:
        if kind in HANDLERS:
            raise ValueError(f"{kind.__name__} already has a handler")
        HANDLERS[kind] = handler
        return handler

    return register
