"""What the connections of one user have together: their turns, their limits.

The daemon has one loop, one thread for its store, and memory that is everybody's. So who asks for much waits
for his own requests: a few of one user are served at a time, a piece of what he sends is read in each turn of
the loop, and what he has sent and not read is counted over all his connections. Those that wait for a disk
are no longer among the few, but they share the threads that he may have.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from fikitd.wire import Closer

MOST_SERVED: Final = 2
LONGEST_SECONDS: Final = 0.1
"""That a turn may keep others of the same user waiting."""
MOST_THREADS: Final = 8
MOST_OUTSTANDING: Final = 1024
MOST_HELD_BYTES: Final = 64 << 20
"""Of requests, finished or not, and of replies that wait to be sent."""


@dataclass(eq=False)
class User:
    """One user who is, or was, connected."""

    connections: int = 0
    closer: Closer = field(default_factory=Closer)
    outstanding: int = 0
    held_bytes: int = 0
    arriving: trio.Lock = field(default_factory=trio.Lock)
    next: trio.Lock = field(default_factory=trio.Lock)
    served: trio.Semaphore = field(default_factory=lambda: trio.Semaphore(MOST_SERVED))
    turns: dict[Turn, None] = field(default_factory=dict)
    """Those that are taken, the longest first."""
    reading: trio.Lock = field(default_factory=trio.Lock)
    threads: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(MOST_THREADS))


class Turn:
    """One request's: taken before it is served, given back while it waits for something to happen."""

    def __init__(self, user: User) -> None:
        self._user = user

    async def take(self) -> None:
        """Wait for it. A request that has had one for long waits for a disk, say, or for an executor that
        hangs: its turn is given back.

        To whoever is next alone: did all of those that wait look at the clock, a thousand of them would be
        served at once.
        """
        async with self._user.next:
            while True:
                with trio.move_on_after(LONGEST_SECONDS):
                    await self._user.served.acquire()
                    self._user.turns[self] = None
                    return
                for longest in list(self._user.turns)[:1]:
                    longest.give_back()

    def give_back(self) -> None:
        """Let others of the user be served; idempotent."""
        if self in self._user.turns:
            del self._user.turns[self]
            self._user.served.release()

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """What is waited for inside may take for ever; behind it the request is served again."""
        self.give_back()
        yield
        await self.take()
