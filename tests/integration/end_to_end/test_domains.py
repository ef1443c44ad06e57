"""Trust domains on one GPU: an executor each, the same memory and the same multiprocessors."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import DEADLINE_SECONDS, Daemon
from tests.integration.end_to_end.conftest import CHOICE, PTX, SETTINGS, listener

pytestmark = pytest.mark.alone

Connect = Callable[..., fikit.Session]
PIECE = 64 << 20
NOBODY = 65534


@pytest.fixture
def domains(connect: Connect) -> tuple[fikit.Session, fikit.Session]:
    return connect(name="one", isolated=True), connect(name="other", isolated=True)


def test_they_share_its_memory(domains: tuple[fikit.Session, fikit.Session]) -> None:
    one, other = domains
    before = other.memory_information()
    with one.allocate(16 * PIECE):
        assert other.memory_information().free <= before.free - 16 * PIECE
    end = time.monotonic() + DEADLINE_SECONDS  # what was freed stays mapped for a while
    while other.memory_information().free < before.free - PIECE:  # a real driver keeps a little for itself
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_memory_is_full_for_all(domains: tuple[fikit.Session, fikit.Session]) -> None:
    one, other = domains
    free = one.memory_information().free
    with one.allocate(free // 2 // PIECE * PIECE), pytest.raises(fikit.OutOfMemoryError):
        other.allocate(free // 2 // PIECE * PIECE + 4 * PIECE)


def test_a_job_s_memory_limit_is_that_of_all_its_processes(
    daemon: Daemon, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = daemon.client()
    asked = p.Submit(
        command=["/bin/sleep", "1000"], environment={}, directory="/", memory_limit_bytes=8 * PIECE
    )
    job = client.ask(asked).job.job
    while client.ask(p.Show(target=job)).job.state == "queued":
        pass
    monkeypatch.setenv("FIKIT_JOB", job)
    one, other = connect(name="one"), connect(name="other")
    monkeypatch.delenv("FIKIT_JOB")
    stranger = connect(name="stranger")
    with one.allocate(6 * PIECE):
        left = other.memory_information()
        assert (left.free, left.total) == (2 * PIECE, 8 * PIECE)
        with pytest.raises(fikit.OutOfMemoryError):
            other.allocate(3 * PIECE)
        with other.allocate(2 * PIECE), pytest.raises(fikit.OutOfMemoryError):
            one.allocate(PIECE)
        with stranger.allocate(8 * PIECE):
            pass
    with other.allocate(8 * PIECE):
        assert one.memory_information().free == 0
    one.close()
    client.ask(p.Kill(target=job, signal=signal.SIGKILL))


def together(one: fikit.Session, other: fikit.Session) -> float:
    """What small kernels of both take, of what those of one take alone: 1 if side by side, 2 in turn."""
    kernels = [(session, session.load(PTX).kernel("work")) for session in (one, other)]

    def seconds(*sharing: tuple[fikit.Session, fikit.Kernel]) -> float:
        started = time.monotonic()
        for _, kernel in sharing:
            for _ in range(20):
                kernel.launch(200_000, grid=1, block=1)
        for session, _ in sharing:
            session.synchronize()
        return time.monotonic() - started

    for each in kernels:
        seconds(each)  # known from here on
    both, alone = zip(*((seconds(*kernels), min(map(seconds, kernels))) for _ in range(5)), strict=True)
    return min(both) / min(alone)  # what else runs on the machine only adds


def test_they_take_turns(domains: tuple[fikit.Session, fikit.Session]) -> None:
    assert together(*domains) > 1.6


@pytest.mark.gpu
@pytest.mark.skipif(
    CHOICE == "sim" or os.geteuid() != 0 or not shutil.which("nvidia-cuda-mps-control"),
    reason="needs a real GPU, MPS, and two users",
)
def test_under_mps_domains_run_side_by_side(stopped_daemon: Daemon, connect_to: Connect) -> None:
    stopped_daemon.configure(settings=SETTINGS.replace("[executor]", '[executor]\nmps = "auto"'))
    stopped_daemon.start()
    one = connect_to()
    os.seteuid(NOBODY)
    try:
        other = connect_to()
    finally:
        os.seteuid(0)
    assert together(one, other) < 1.5


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


@pytest.mark.skipif(CHOICE != "sim" or os.geteuid() != 0, reason="a real GPU reaches what it reaches")
def test_a_gpu_whose_kernels_reach_all_memory_is_not_given_to_an_executor_of_root(
    stopped_daemon: Daemon,
) -> None:
    stopped_daemon.configure()
    client = stopped_daemon.start(FIKIT_SIM_PAGEABLE="1").client()
    refused = client.ask(p.OpenSession(name="any"))
    assert refused.code == "unavailable"
    assert "uvm_disable_hmm=1" in refused.message
