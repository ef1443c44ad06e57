"""Trust domains on one GPU: an executor each, the same memory and the same multiprocessors."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import Daemon
from tests.integration.end_to_end.conftest import PTX, listener

Connect = Callable[..., fikit.Session]
PIECE = 64 << 20


@pytest.fixture
def domains(connect: Connect) -> tuple[fikit.Session, fikit.Session]:
    return connect(name="one", isolated=True), connect(name="other", isolated=True)


def test_they_share_its_memory(domains: tuple[fikit.Session, fikit.Session]) -> None:
    one, other = domains
    before = other.memory_information()
    with one.allocate(16 * PIECE):
        assert other.memory_information().free <= before.free - 16 * PIECE
    while other.memory_information().free < before.free:  # what was freed stays mapped for a while
        time.sleep(0.01)


def test_the_memory_is_full_for_all(domains: tuple[fikit.Session, fikit.Session]) -> None:
    one, other = domains
    free = one.memory_information().free
    with one.allocate(free // 2 // PIECE * PIECE), pytest.raises(fikit.OutOfMemoryError):
        other.allocate(free // 2 // PIECE * PIECE + 4 * PIECE)


def test_they_take_turns(domains: tuple[fikit.Session, fikit.Session]) -> None:
    kernels = [session.load(PTX).kernel("work") for session in domains]

    def seconds(*sharing: int) -> float:
        started = time.monotonic()
        for number in sharing:
            for _ in range(20):
                kernels[number].launch(200_000, grid=1, block=1)
        for number in sharing:
            domains[number].synchronize()
        return time.monotonic() - started

    seconds(0), seconds(1)  # known from here on
    alone = min(seconds(0), seconds(1))
    assert seconds(0, 1) > 1.6 * alone


def test_a_killed_executor_leaves_the_gpu_to_the_other(
    daemon: Daemon, domains: tuple[fikit.Session, fikit.Session]
) -> None:
    one, other = domains
    one.load(PTX).kernel("spin").launch(600_000_000_000, grid=1, block=1)
    one.stream().synchronize()  # it is issued
    client = daemon.client()
    executors = {each.session: each.executor for each in client.ask(p.ListSessions()).sessions}
    victim = daemon.place / "run" / f"{executors[one.identifier]}.sock"
    os.kill(listener(victim), signal.SIGKILL)
    with other.allocate(64) as memory:
        memory.fill(3)
        assert memory.read() == bytes([3] * 64)
