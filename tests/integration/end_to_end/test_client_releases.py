"""What a program drops, however it does: the client library gives it back, and names the limits there are."""

from __future__ import annotations

import gc
import signal
import subprocess
from collections.abc import Callable
from types import FrameType

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import Client, Daemon
from tests.integration.end_to_end.conftest import PTX

pytestmark = pytest.mark.shares_daemon

Program = Callable[[str], subprocess.Popen[str]]

IMAGE = PTX + ".global .align 4 .u32 counter;\n"


def used_event(session: fikit.Session) -> fikit.Event:
    event = session.event()
    event.record()
    return event


def used_stream(session: fikit.Session) -> fikit.Stream:
    stream = session.stream()
    stream.wait(used_event(session))
    return stream


def used_module(session: fikit.Session) -> fikit.Module:
    module = session.load(IMAGE)
    module.kernel("nothing").launch(grid=1, block=1)
    module.global_("counter").fill(1)
    return module


@pytest.mark.parametrize(("make", "most"), [(used_event, 65_535), (used_stream, 4095), (used_module, 16_383)])
def test_what_is_dropped_is_given_back(
    session: fikit.Session, make: Callable[[fikit.Session], object], most: int
) -> None:
    for _ in range(most + 1):
        make(session)
    session.synchronize()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (fikit.Session.event, "the session has 65535 events, the most it may have"),
        (fikit.Session.stream, "the session has 4095 streams, the most it may have"),
    ],
)
def test_a_limit_that_was_reached_is_named(
    session: fikit.Session, make: Callable[[fikit.Session], object], message: str
) -> None:
    kept: list[object] = []
    with pytest.raises(fikit.OutOfMemoryError, match=message):
        while True:
            kept.append(make(session))
    kept.pop()
    make(session)


def test_work_outlives_what_it_was_enqueued_with(session: fikit.Session) -> None:
    with session.load(PTX) as module, session.allocate(4) as memory:
        first, second = session.stream(non_blocking=True), session.stream(non_blocking=True)
        module.kernel("spin").launch(100_000_000, grid=1, block=1, stream=first)
        module.kernel("store").launch(memory, 7, grid=1, block=1, stream=first)
        event = session.event()
        event.record(first)
        second.wait(event)
        del event, first
        # Whatever gets the numbers now changes nothing.
        others = [used_event(session) for _ in range(8)], [session.stream() for _ in range(8)]
        module.kernel("increment").launch(memory, grid=1, block=1, stream=second)
        del second
        session.synchronize()
        assert memory.read(4) == (8).to_bytes(4, "little")
        del others


def test_kernels_and_globals_keep_their_module(session: fikit.Session) -> None:
    increment = session.load(IMAGE).kernel("increment")
    counter = session.load(IMAGE).global_("counter")
    gc.collect()
    with session.load(IMAGE):  # which unloads what nobody holds on to
        counter.fill(41, width=4)
        increment.launch(counter, grid=1, block=1)
        assert counter.read() == (42).to_bytes(4, "little")
        increment.launch(counter, grid=1, block=1)
        del increment
        session.memory_information()
        assert counter.read() == (43).to_bytes(4, "little")


def test_what_is_dropped_once_the_session_is_over(session: fikit.Session) -> None:
    kept = [used_event(session), used_stream(session), used_module(session)]
    session.close()
    kept.clear()
    with pytest.raises(fikit.SessionLostError, match="closed"):
        session.load(PTX)


def test_a_dropped_session_ends_although_a_forked_child_lives(daemon: Daemon, program: Program) -> None:
    watcher = daemon.client()
    watcher.subscribe()
    parent = program("""
import gc, os
session = fikit.connect(name="dropped")
end, held = os.pipe()
if os.fork() == 0:
    os.close(held)
    os.read(end, 1)  # until the parent ends
    os._exit(0)
print(session.identifier, flush=True)
del session
gc.collect()
input()
""")
    assert parent.stdout
    identifier = parent.stdout.readline().strip()
    while (event := watcher.receive()[1]).kind != "session_ended" or event.session != identifier:
        pass
    assert parent.poll() is None


def test_a_stream_may_be_dropped_while_another_waits_to_be_closed(
    session: fikit.Session, client: Client
) -> None:
    nothing = session.load(PTX).kernel("nothing")
    closed, dropped = session.stream(), [session.stream()]
    session.synchronize()
    assert client.ask(p.Pause(target=session.identifier)) == p.Done()

    def resume(number: int, frame: FrameType | None) -> None:
        assert client.ask(p.Resume(target=session.identifier)) == p.Done()
        dropped.clear()

    before = signal.signal(signal.SIGALRM, resume)
    try:
        while nothing.launch_nowait(grid=1, block=1):
            pass
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        closed.close()
        while dropped:
            signal.pause()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    session.synchronize()
