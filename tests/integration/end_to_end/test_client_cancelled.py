"""Tasks that leave a session which is paused: at once, and nothing goes on behind their back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import fikit.trio
import pytest
import trio
from fikit import protocol as p

from tests.integration.conftest import Client, Daemon
from tests.integration.end_to_end.conftest import PTX

pytestmark = pytest.mark.shares_daemon

SIZE = 1 << 20
LONGER_THAN_STAGING = 8 << 20
RESCUE_SECONDS = 10.0
LEFT_SECONDS = 5.0


class Paused:
    """A session that the operator pauses, with work that was enqueued since."""

    def __init__(self, session: fikit.trio.Session, module: fikit.trio.Module, client: Client) -> None:
        self.session, self.module, self.client = session, module, client

    async def prepare(self) -> None:
        self.kernel = await self.module.kernel("nothing")
        self.memory = await self.session.allocate(LONGER_THAN_STAGING)
        self.pinned = await self.session.allocate_pinned(SIZE)
        self.start, self.end = self.session.event(timing=True), self.session.event(timing=True)
        for event in (self.start, self.end):
            event.record()
        self.memory.fill(1)
        await self.session.synchronize()
        assert self.client.ask(p.Pause(target=self.session.identifier)) == p.Done()
        self.memory.fill(2)

    def resume(self) -> None:
        assert self.client.ask(p.Resume(target=self.session.identifier)) == p.Done()

    async def launch(self) -> None:
        while True:
            await self.kernel.launch(grid=1, block=1)


@asynccontextmanager
async def paused(daemon: Daemon, client: Client) -> AsyncIterator[Paused]:
    async with await fikit.trio.connect(socket=daemon.socket) as session:
        made = Paused(session, await session.load(PTX), client)
        await made.prepare()
        rescue = threading.Timer(RESCUE_SECONDS, made.resume)  # of a test that would hang
        rescue.start()
        try:
            yield made
        finally:
            rescue.cancel()
            made.resume()


WAITS: dict[str, Callable[[Paused], Awaitable[object]]] = {
    "read": lambda at: at.memory.read(4),
    "copy_to": lambda at: at.memory.copy_to(bytearray(SIZE)),
    "copy_to pinned": lambda at: at.memory.copy_to(memoryview(at.pinned)),
    "copy_from": lambda at: at.memory.copy_from(bytes(LONGER_THAN_STAGING)),
    "copy_from pinned": lambda at: at.memory.copy_from(memoryview(at.pinned)),
    "allocate": lambda at: at.session.allocate(SIZE),
    "allocate_pinned": lambda at: at.session.allocate_pinned(SIZE),
    "memory_information": lambda at: at.session.memory_information(),
    "load": lambda at: at.session.load(PTX),
    "kernel": lambda at: at.module.kernel("spin"),
    "occupancy": lambda at: at.kernel.occupancy(32),
    "elapsed": lambda at: at.end.elapsed(at.start),
    "unload": lambda at: at.module.unload(),
    "launch": lambda at: at.launch(),
    "synchronize": lambda at: at.session.synchronize(),
}


@pytest.mark.parametrize("name", WAITS)
async def test_a_cancelled_task_leaves_a_paused_session(daemon: Daemon, client: Client, name: str) -> None:
    async with paused(daemon, client) as at:
        begin = trio.current_time()
        for _ in range(2):
            with trio.move_on_after(0.1) as scope:
                await WAITS[name](at)
            assert scope.cancelled_caught
        assert trio.current_time() - begin < LEFT_SECONDS
        at.resume()
        assert await at.memory.read(4) in (b"\2\2\2\2", bytes(4))


async def test_nothing_is_written_once_the_task_has_left(daemon: Daemon, client: Client) -> None:
    async with paused(daemon, client) as at:
        content = bytearray(SIZE)
        with trio.move_on_after(0.1):
            await at.memory.copy_to(content)
        content.clear()  # a buffer that is in use refuses it
        at.resume()
        await at.session.synchronize()


async def test_what_comes_too_late_is_given_back(daemon: Daemon, client: Client) -> None:
    async with paused(daemon, client) as at:
        at.resume()
        before = await at.session.memory_information()
        assert client.ask(p.Pause(target=at.session.identifier)) == p.Done()
        for make in (partial(at.session.allocate, 64 << 20), partial(at.session.load, PTX)):
            with trio.move_on_after(0.1):
                await make()
        at.resume()
        await at.session.memory_information()  # after the one that was abandoned
        await at.session.synchronize()
        assert await at.session.memory_information() == before


async def test_connecting_can_be_cancelled(tmp_path: Path) -> None:
    with trio.socket.socket(trio.socket.AF_UNIX) as deaf:
        await deaf.bind(str(tmp_path / "s"))
        deaf.listen()
        with trio.move_on_after(0.1) as scope:
            await fikit.trio.connect(socket=tmp_path / "s", timeout=LEFT_SECONDS)
        assert scope.cancelled_caught


@pytest.mark.parametrize("wait", ["memory.read(4)", "session.allocate(4)"])
def test_ctrl_c_ends_a_program_that_waits(daemon: Daemon, client: Client, wait: str) -> None:
    text = f"""
import trio, fikit.trio
async def main():
    async with await fikit.trio.connect() as session:
        memory = await session.allocate(1 << 20)
        await session.synchronize()
        print(session.identifier, flush=True)
        input()
        memory.fill(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, print, "waits")
            await {wait}
trio.run(main)
"""
    with subprocess.Popen(
        [sys.executable, "-u", "-P", "-c", text],
        env={**os.environ, "FIKIT_SOCKET": str(daemon.socket)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdin
        assert program.stdout
        identifier = program.stdout.readline().strip()
        assert client.ask(p.Pause(target=identifier)) == p.Done()
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "waits\n"
        program.send_signal(signal.SIGINT)
        try:
            _, errors = program.communicate(timeout=20)
        finally:
            program.kill()
    assert "KeyboardInterrupt" in errors
    assert program.returncode in (1, 130, -signal.SIGINT), errors
