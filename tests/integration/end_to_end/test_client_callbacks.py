"""Callbacks of the client library, and what they hold on to, when the session ends before or with them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import fikit
import pytest

pytestmark = pytest.mark.shares_daemon

Connect = Callable[..., fikit.Session]


class Kept:
    """What a callback holds on to."""

    def use(self) -> None:
        """Called back."""


def test_a_callback_that_never_runs_is_dropped_with_the_session(connect: Connect) -> None:
    session = connect()
    stream = session.stream()
    opened, begun = threading.Event(), threading.Event()

    def gate() -> None:
        begun.set()
        opened.wait()

    stream.add_callback(gate)
    kept = Kept()
    dropped = weakref.ref(kept)
    stream.add_callback(kept.use)  # behind the first one
    del kept
    assert begun.wait(60)
    assert dropped() is not None
    closing = threading.Thread(target=session.close)
    closing.start()
    while not session.core.lost:
        pass
    opened.set()
    closing.join()
    assert dropped() is None
