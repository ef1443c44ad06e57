"""Signals that end fikitctl, where something must be put right first: what was begun is then unwound."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handled(handler: Callable[[int, FrameType | None], None] | int, *numbers: int) -> Iterator[None]:
    """Handle these signals so inside of the block; what our caller has ignored, as nohup does, stays so."""
    heeded = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, earlier in previous.items():
            signal.signal(number, earlier)


def leave(number: int, _frame: FrameType | None) -> None:
    """A handler: unwind like Ctrl-C does."""
    raise SystemExit(128 + number)


@contextmanager
def put_off() -> Iterator[None]:
    """What would end us waits for the end of the block: what is begun there is known by then, and unwound."""
    came: list[int] = []
    try:
        ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        with handled(lambda number, _frame: came.append(number), *ending):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)
