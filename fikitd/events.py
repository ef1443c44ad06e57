"""What happens, told once: to the log and to every subscriber who may see it.

A subscriber's queue is bounded; who does not read loses events and is told how many, and never delays the
teller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog
import trio
from fikit.protocol import Event, EventKind

from fikitd.errors import QuotaReached

QUEUE_EVENTS: Final = 1000
MOST_SUBSCRIPTIONS: Final = 32
"""Of one user: each event is sent to all of them, by the thread that serves everybody."""
Sees = Callable[[int | None], bool]


class Subscription:
    """Events for one subscriber, in order."""

    def __init__(self, sees: Sees, uid: int | None) -> None:
        self.sees = sees
        self.uid = uid
        self.send, self.receive = trio.open_memory_channel[Event](QUEUE_EVENTS)
        self.lost = 0

    def offer(self, event: Event) -> None:
        """Queue it, or count it as lost."""
        try:
            if self.lost:
                self.send.send_nowait(self._loss())
                self.lost = 0
            self.send.send_nowait(event)
        except trio.WouldBlock:
            self.lost += 1

    async def next(self) -> Event:
        """What comes next. That some are lost is told behind those before them, though none may follow."""
        try:
            return self.receive.receive_nowait()
        except trio.WouldBlock:
            if not self.lost:
                return await self.receive.receive()
        loss, self.lost = self._loss(), 0
        return loss

    def _loss(self) -> Event:
        return Event(kind="events_lost", unix=time.time(), detail={"count": self.lost})


class Events:
    """The teller."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._log = structlog.get_logger()

    def tell(
        self,
        kind: EventKind,
        *,
        uid: int | None = None,
        tenant: str | None = None,
        job: str | None = None,
        session: str | None = None,
        gpu: int | None = None,
        warning: bool = False,
        **detail: Any,
    ) -> None:
        """Something happened to what belongs to ``uid`` (None: to nobody in particular)."""
        named = {"tenant": tenant, "job": job, "session": session, "gpu": gpu}
        known = {name: value for name, value in named.items() if value is not None}
        (self._log.warning if warning else self._log.info)(kind, **known, **detail)
        event = Event(
            kind=kind, unix=time.time(), tenant=tenant, job=job, session=session, gpu=gpu, detail=detail
        )
        for subscription in self._subscriptions:
            if subscription.sees(uid):
                subscription.offer(event)

    @contextmanager
    def subscribed(self, sees: Sees, uid: int | None = None) -> Iterator[Subscription]:
        """Listen while inside; for a user (None: the daemon itself). Raises QuotaReached."""
        subscription = Subscription(sees, uid)
        if uid is not None and sum(each.uid == uid for each in self._subscriptions) >= MOST_SUBSCRIPTIONS:
            raise QuotaReached(
                f"user {uid} has {MOST_SUBSCRIPTIONS} subscriptions, the most one may have", "end some"
            )
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
