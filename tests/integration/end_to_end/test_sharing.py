"""Sharing by priority: who is issued at once, who waits, and what is told of it."""

from __future__ import annotations

import time
from collections.abc import Callable

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import DEADLINE_SECONDS, Daemon
from tests.integration.end_to_end.conftest import PTX

pytestmark = pytest.mark.alone

Connect = Callable[..., fikit.Session]


def flood(session: fikit.Session, kernels: int, nanoseconds: int, grid: int = 132 * 8) -> None:
    spin = session.load(PTX).kernel("spin")
    for _ in range(kernels):
        spin.launch(nanoseconds, grid=grid, block=128)


def usage(daemon: Daemon, name: str) -> p.Usage:
    client = daemon.client()
    sessions: list[p.SessionRecord] = client.ask(p.ListSessions()).sessions
    client.close()
    return next(each.usage for each in sessions if each.name == name)


@pytest.mark.shares_daemon
def test_high_priority_work_passes_a_queue_of_low(daemon: Daemon, connect: Connect) -> None:
    low, high = connect(name="low", priority="low"), connect(name="high", priority="high")
    nothing = high.load(PTX).kernel("nothing")
    flood(low, 400, 500_000)  # 200 ms of device time
    over = low.event()
    over.record()
    for _ in range(20):
        nothing.launch(grid=132, block=128)
        high.synchronize()
    assert not over.query()
    low.synchronize()


@pytest.mark.shares_daemon
def test_a_level_waits_for_the_levels_above(daemon: Daemon, connect: Connect) -> None:
    low, normal = connect(name="low", priority="low"), connect(name="normal", priority="normal")
    first, second = low.load(PTX).kernel("spin"), normal.load(PTX).kernel("spin")
    low_over, normal_over = low.event(), normal.event()
    for _ in range(40):
        first.launch(1_000_000, grid=132, block=128)
    low_over.record()
    for _ in range(40):
        second.launch(1_000_000, grid=132, block=128)
    normal_over.record()
    normal_over.synchronize()
    assert not low_over.query()
    low.synchronize()


@pytest.mark.shares_daemon
def test_a_paused_session_issues_nothing_until_it_is_resumed(daemon: Daemon, connect: Connect) -> None:
    session = connect(name="paused")
    client = daemon.client()
    target = client.ask(p.ListSessions()).sessions[0].session
    kernel = session.load(PTX).kernel("nothing")
    assert client.ask(p.Pause(target=target)) == p.Done()
    assert client.ask(p.Show(target=target)).session.state == "paused"
    kernel.launch(grid=1, block=1)
    over = session.event()
    over.record()
    before = usage(daemon, "paused").launches
    assert not over.query()
    assert client.ask(p.Resume(target=target)) == p.Done()
    over.synchronize()
    session.synchronize()
    assert before == 0


@pytest.mark.shares_daemon
def test_the_priority_of_a_session_can_change_under_load(daemon: Daemon, connect: Connect) -> None:
    session = connect(name="mover", priority="low")
    client = daemon.client()
    target = client.ask(p.ListSessions()).sessions[0].session
    flood(session, 50, 200_000)
    for level in (0, 5, 9, 0, 9):
        assert client.ask(p.SetPriority(target=target, priority=level)) == p.Done()
        flood(session, 10, 100_000)
    session.synchronize()
    assert client.ask(p.Show(target=target)).session.priority == 9


@pytest.mark.shares_daemon
def test_work_is_accounted(daemon: Daemon, connect: Connect) -> None:
    session = connect(name="counted", priority="low")
    began = time.monotonic()
    with session.allocate(8 << 20) as memory:
        memory.copy_from(bytes(8 << 20))
        flood(session, 30, 1_000_000)
        session.synchronize()
        took = time.monotonic() - began
        used = usage(daemon, "counted")
        while used.launches < 30:  # accounts are as old as the last heartbeat
            used = usage(daemon, "counted")
        assert used.bytes_copied >= 8 << 20
        assert used.memory_bytes >= 8 << 20
        assert 25e6 < used.gpu_ns < took * 1e9


def test_a_trace_shows_every_kernel_with_device_times(daemon: Daemon, connect: Connect) -> None:
    session = connect(name="traced", priority="low")
    client = daemon.client()
    assert client.ask(p.StartTrace()) == p.Done()
    began = time.monotonic()
    flood(session, 10, 300_000)
    session.synchronize()
    took = (time.monotonic() - began) / session.device.time_scale
    trace = client.ask(p.ReadTrace())
    kernels = [each for each in trace.operations if each.kind == "launch"]
    assert [each.name for each in kernels] == ["spin"] * 10
    for each in kernels:
        assert each.arrived_ns <= each.issued_ns
        assert each.ended_ns - each.started_ns > 290_000
    starts = [each.started_ns for each in kernels]
    assert starts == sorted(starts)
    # One comes behind the other, however late a busy machine issues it.
    span = kernels[-1].ended_ns - starts[0]
    assert sum(each.ended_ns - each.started_ns for each in kernels) < span + 20_000 < took * 1e9 + 40_000


def test_profiles_are_learnt_and_kept_across_executors(daemon: Daemon, connect: Connect) -> None:
    session = connect(name="learner", isolated=True)
    flood(session, 30, 500_000)
    session.synchronize()
    client = daemon.client()

    def spin_profile() -> list[p.ProfileRecord]:
        found = client.ask(p.ListProfiles()).profiles
        return [each for each in found if each.function == "spin"]

    while not spin_profile():
        pass
    assert 480_000 < spin_profile()[0].median_ns < 700_000


def test_what_an_executor_has_learnt_outlives_it(stopped_daemon: Daemon, connect_to: Connect) -> None:
    """That of an isolated session ends with it, long before profiles are due to be saved."""
    settings = stopped_daemon.config.read_text()
    stopped_daemon.configure(settings=settings.replace("interval_seconds = 0.2", "interval_seconds = 3600.0"))
    client = stopped_daemon.start().client()
    with connect_to(name="learner", isolated=True) as session:
        flood(session, 30, 500_000)
        session.synchronize()
    while list((stopped_daemon.place / "run").glob("x-*.sock")):
        pass
    assert "spin" in {each.function for each in client.ask(p.ListProfiles()).profiles}


@pytest.mark.shares_daemon
def test_executors_of_one_gpu_know_of_each_others_high_priority_work(
    daemon: Daemon, connect: Connect
) -> None:
    low = connect(name="low", priority="low", isolated=True)
    high = connect(name="high", priority="high", isolated=True)
    low_kernel, high_kernel = low.load(PTX).kernel("spin"), high.load(PTX).kernel("spin")
    for _ in range(8):  # until its duration is known: an unknown kernel waits for other reasons
        low_kernel.launch(5_000_000, grid=1, block=32)
        low.synchronize()
    high_kernel.launch(600_000_000, grid=1, block=1)
    over = high.event()
    over.record()
    end = time.monotonic() + DEADLINE_SECONDS
    while usage(daemon, "high").launches == 0:  # the executors are not in step: it has begun there
        assert time.monotonic() < end
    before = usage(daemon, "low").gate_wait_ns
    # More than its share against starvation has earned by then.
    low_kernel.launch(5_000_000, grid=1, block=32)
    low.synchronize()
    assert over.query()
    end = time.monotonic() + DEADLINE_SECONDS
    while usage(daemon, "low").gate_wait_ns - before <= 10_000_000:
        assert time.monotonic() < end  # accounts are as old as the last heartbeat, as `before` was
