"""What a wait of the client library waits for, and what it leaves to the next one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import fikit
import fikit.trio
import pytest
import trio
from fikit import protocol as p
from trio.testing import wait_all_tasks_blocked

from tests.integration.conftest import Client, Daemon
from tests.integration.end_to_end.conftest import PTX

pytestmark = pytest.mark.shares_daemon

KERNEL_SECONDS = 5e-3
AHEAD = 40
"""Kernels that are always enqueued: 0.2 s of work."""
PATIENCE_SECONDS = 10.0


@pytest.mark.parametrize(
    "wait", [lambda session: session.synchronize, lambda session: session.default_stream.synchronize]
)
def test_what_another_thread_enqueues_meanwhile_is_not_waited_for(
    session: fikit.Session, wait: Callable[[fikit.Session], Callable[[float], None]]
) -> None:
    spin = session.load(PTX).kernel("spin")
    full, enough = threading.Event(), threading.Event()

    def work() -> None:
        behind: deque[fikit.Event] = deque()
        while not enough.is_set():
            spin.launch(int(KERNEL_SECONDS * 1e9 / session.device.time_scale), grid=1, block=1)
            behind.append(session.event())
            behind[-1].record()
            if len(behind) > AHEAD:
                full.set()
                behind.popleft().synchronize()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert full.wait(60)
        wait(session)(PATIENCE_SECONDS)
    finally:
        enough.set()
        worker.join()


@pytest.mark.parametrize("what", ["session", "stream", "event"])
async def test_an_error_that_came_once_its_task_had_left_is_told_to_the_next(
    daemon: Daemon, what: str
) -> None:
    async with await fikit.trio.connect(socket=daemon.socket) as session:
        nothing = await (await session.load(PTX)).kernel("nothing")
        with session.stream() as stream, session.event() as event:
            opened, over = threading.Event(), threading.Event()
            stream.add_callback(opened.wait)
            await nothing.launch(grid=1, block=4096, stream=stream)  # refused once it is its turn
            event.record(stream)
            stream.add_callback(over.set)  # who asks the event would be told
            waits = {"session": session, "stream": stream, "event": event}
            async with trio.open_nursery() as nursery:
                nursery.start_soon(waits[what].synchronize)
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            opened.set()
            while not over.is_set() or trio.to_thread.current_default_thread_limiter().borrowed_tokens:
                await trio.lowlevel.checkpoint()
            with pytest.raises(fikit.CudaError, match="the block has more threads"):
                await stream.synchronize()


async def test_many_tasks_may_wait(daemon: Daemon) -> None:
    async with await fikit.trio.connect(socket=daemon.socket) as session:
        opened = threading.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(2 * trio.to_thread.current_default_thread_limiter().total_tokens):
                stream = session.stream()
                stream.add_callback(opened.wait)
                nursery.start_soon(stream.synchronize)
            await wait_all_tasks_blocked()
            memory = await session.allocate(4)
            memory.fill(1, stream=(free := session.stream(non_blocking=True)))
            with trio.fail_after(PATIENCE_SECONDS):
                assert await memory.read(stream=free) == b"\1\1\1\1"
            opened.set()


def test_a_session_outlives_the_run_that_opened_it(daemon: Daemon, client: Client) -> None:
    async def abandon() -> fikit.trio.Session:
        session = await fikit.trio.connect(socket=daemon.socket)
        assert client.ask(p.Pause(target=session.identifier)) == p.Done()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.allocate, 4)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        return session

    async def go_on(session: fikit.trio.Session) -> None:
        async with session:
            assert client.ask(p.Resume(target=session.identifier)) == p.Done()
            with trio.fail_after(PATIENCE_SECONDS):
                (await session.allocate(4)).free()

    trio.run(go_on, trio.run(abandon))
