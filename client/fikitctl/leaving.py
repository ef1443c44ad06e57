"""Signals that end fikitctl, where something must be put right first: what was begun is then unwound."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handled(handler: Callable[[int, FrameType | None], None] | int, *numbers: int) -> Iterator[None]:
    """Handle these signals so inside of the block."""
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in previous.items():
            signal.signal(number, earlier)


def leave(number: int, _frame: FrameType | None) -> None:
    """A handler: unwind like Ctrl-C does."""
    raise SystemExit(128 + number)
