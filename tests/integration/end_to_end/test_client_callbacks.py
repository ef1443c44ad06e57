"""Callbacks of the client library, and what they hold on to, when the session ends before or with them."""

from __future__ import annotations

import subprocess
import threading
import weakref
from collections.abc import Callable

import fikit
import pytest

pytestmark = pytest.mark.shares_daemon

Connect = Callable[..., fikit.Session]
Program = Callable[[str], subprocess.Popen[str]]


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


def test_a_callback_may_have_the_last_of_its_session(program: Program) -> None:
    child = program("""
import gc, os, threading, weakref

def dropped():
    session = fikit.connect()
    module = session.load(PTX)
    stream = session.stream()
    module.kernel("spin").launch(20_000_000, grid=1, block=1, stream=stream)
    over = threading.Event()
    objects = [session, module, stream]
    stream.add_callback(lambda: len(objects))
    weakref.finalize(session.core, over.set)
    return over

for _ in range(3):
    over = dropped()
    gc.collect()
    assert over.wait(60)
print("gone")
""")
    assert child.communicate(timeout=120)[0] == "gone\n"
    assert child.returncode == 0
