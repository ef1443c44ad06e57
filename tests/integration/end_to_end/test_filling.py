"""Filling idle time: what is told of it, and tenants that would spoil it."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import Daemon, daemons
from tests.integration.end_to_end.conftest import CHOICE, PTX, SETTINGS, Served

pytestmark = pytest.mark.alone

Connect = Callable[..., fikit.Session]
SCALE = 4.0 if CHOICE == "sim" else 1.0
WHOLE = 132 * 16
"""Blocks of 128 threads that fill every multiprocessor of an H200."""

FILLING = 'policy = "fikit"'


class Filling(Served):
    """A daemon whose executors fill idle time."""

    def configure(self, extra: str = "", settings: str = SETTINGS) -> None:
        super().configure(extra, settings.replace("[scheduling]", f"[scheduling]\n{FILLING}"))


stopped_daemon, lasting_daemon = daemons(Filling)


def explain(daemon: Daemon, session: fikit.Session) -> p.Explained:
    client = daemon.client()
    reply = client.ask(p.Explain(session=session.identifier))
    client.close()
    assert isinstance(reply, p.Explained), reply
    return reply


class Service:
    """A high-priority program: two kernels, a pause of the host, another kernel; waited for, step by step."""

    def __init__(self, session: fikit.Session) -> None:
        self._session = session
        self._spin = session.load(PTX).kernel("spin")

    def step(self) -> float:
        """How long it took, in device seconds."""
        started = time.monotonic()
        for _ in range(2):
            self._spin.launch(200_000, grid=132, block=128)
        time.sleep(0.001 * SCALE)
        self._spin.launch(200_000, grid=132, block=128)
        self._session.synchronize()
        return (time.monotonic() - started) / SCALE

    def steps(self, count: int) -> list[float]:
        times = []
        for _ in range(count):
            times.append(self.step())
            time.sleep(0.001 * SCALE)
        return times


@contextmanager
def beside(play: Callable[[], object]) -> Iterator[None]:
    """Something goes on, again and again, in a thread."""
    over = threading.Event()

    def again() -> None:
        while not over.is_set():
            play()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def batch(session: fikit.Session, nanoseconds: int, grid: int, kernels: int = 20) -> Callable[[], None]:
    spin = session.load(PTX).kernel("spin")

    def play() -> None:
        for _ in range(kernels):
            spin.launch(nanoseconds, grid=grid, block=128)
        session.synchronize()

    return play


@pytest.mark.shares_daemon
def test_idle_time_is_filled_and_told(daemon: Daemon, connect: Connect) -> None:
    began = time.monotonic()
    high, low = connect(name="service", priority="high"), connect(name="batch", priority="low")
    service, play = Service(high), batch(low, 100_000, WHOLE)
    play()  # known from here on
    service.steps(10)
    with beside(play):
        service.steps(40)
    told = explain(daemon, high)
    gate, (other,) = told.gated.gate, told.beside
    assert told.policy == "fikit"
    assert gate.steps >= 40
    assert gate.step_ns > 1_000_000
    assert gate.bound_ns >= 10_000
    assert gate.predicted >= gate.met > 0
    used = other.gate.filled_ns + other.gate.confined_ns
    assert other.gate.filled + other.gate.confined > 0
    # What was used lay in the idle time, but for what began before it or reached beyond it.
    assert 0 < used < 2 * gate.idle_ns
    assert gate.idle_ns < (time.monotonic() - began) / SCALE * 1e9
    assert other.session.session == low.identifier
    assert other.gate.measured > 0
    assert explain(daemon, low).gated.gate.filled >= other.gate.filled
    low.close()
    gone = explain(daemon, high)
    assert not gone.beside
    # Whoever had it is over; beside kernels of the service's own it had more than that.
    assert 0 < gone.gated.gate.idle_filled_ns + gone.gated.gate.idle_confined_ns <= gone.gated.gate.idle_ns


@pytest.mark.shares_daemon
def test_a_pause_behind_an_answer_is_none_of_the_step(daemon: Daemon, connect: Connect) -> None:
    """Who waits for a copy has a mark already: the executor hears of the wait with the next launch."""
    high = connect(name="service", priority="high")
    spin = high.load(PTX).kernel("spin")
    with high.allocate(64) as memory:
        for _ in range(8):
            spin.launch(200_000, grid=132, block=128)
            memory.read()
            time.sleep(0.1 * SCALE)
    gate = explain(daemon, high).gated.gate
    assert gate.steps >= 6
    assert gate.step_ns < 25_000_000


def test_a_kernel_that_nobody_knows_does_not_hold_up_high_work(daemon: Daemon, connect: Connect) -> None:
    high, low = connect(name="service", priority="high"), connect(name="strange", priority="low")
    service = Service(high)
    spin = low.load(PTX).kernel("spin")
    service.steps(5)
    spin.launch(400_000_000, grid=WHOLE, block=128)  # 400 ms of every SM, if it had them
    times = service.steps(15)
    assert sorted(times)[len(times) // 2] < 0.1
    low.synchronize()
    gate = explain(daemon, low).gated.gate
    assert gate.confined + gate.refused.get("unknown", 0) > 0


@pytest.mark.shares_daemon
def test_a_flood_leaves_high_work_its_time(daemon: Daemon, connect: Connect) -> None:
    high = connect(name="service", priority="high")
    service = Service(high)
    floods = [batch(connect(name="flood", priority="low"), 50_000, WHOLE, 200) for _ in range(2)]
    for flood in floods:
        flood()
    service.steps(5)
    with beside(floods[0]), beside(floods[1]):
        times = service.steps(20)
    # 200 kernels of 50 us wait in each ring: 20 ms, if a step had to wait for those.
    assert sorted(times)[len(times) // 2] < 0.015


@pytest.mark.shares_daemon
def test_who_delayed_a_session_is_told_when_he_is_gone_and_another_has_come(
    daemon: Daemon, connect: Connect
) -> None:
    high, liar = connect(name="service", priority="high"), connect(name="liar", priority="low")
    service, spin = Service(high), liar.load(PTX).kernel("spin")
    service.steps(20)

    def lie() -> None:
        for number in range(40):
            spin.launch(20_000_000 if number == 39 else 20_000, grid=WHOLE, block=128)
        liar.synchronize()

    with beside(lie):
        while not explain(daemon, high).gated.gate.delays:
            service.steps(5)
    cause = liar.identifier
    caused = explain(daemon, liar).gated.gate
    assert caused.delays == 0
    assert caused.caused_delays > 0

    def delayed_by() -> str | None:
        return explain(daemon, high).gated.gate.delayed_by

    assert delayed_by() == cause
    liar.close()
    while explain(daemon, high).beside:
        pass
    assert delayed_by() == cause
    other = connect(name="innocent", priority="low")
    batch(other, 20_000, 132)()
    assert [each.session.session for each in explain(daemon, high).beside] == [other.identifier]
    assert delayed_by() == cause


def test_durations_that_change_all_the_time_are_counted_as_wrong(daemon: Daemon, connect: Connect) -> None:
    low = connect(name="poison", priority="low", isolated=True)
    spin = low.load(PTX).kernel("spin")
    chance = random.Random(1)  # in turn they may be so that only the long ones are measured
    for _ in range(60):
        spin.launch(chance.choice((30_000, 3_000_000)), grid=132, block=128)
    low.synchronize()
    client = daemon.client()

    def wrong() -> int:
        found = client.ask(p.ListProfiles()).profiles
        return sum(each.wrong for each in found if each.function == "spin")

    while not wrong():  # collected from time to time
        pass


@pytest.mark.parametrize("long", [20_000, 400_000])
def test_a_measured_job_has_every_launch_measured(daemon: Daemon, long: int) -> None:
    """Though they take times that the key does not tell apart, as they may on a busy machine, too."""
    program = f"""
import fikit
with fikit.connect(name="measured") as session:
    spin = session.load({PTX!r}).kernel("spin")
    for turn in range(150):
        spin.launch({long} if turn % 2 else 20_000, grid=7, block=96)
        session.synchronize()
"""
    fikitctl = "from fikitctl.main import main; main()"
    command = [sys.executable, "-P", "-c", fikitctl, "--socket", str(daemon.socket), "profile"]
    arguments = ["measure", "--", sys.executable, "-P", "-c", program]
    client = daemon.client()
    assert client.ask(p.StartTrace()) == p.Done()
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 kernels measured, 150 launches" in done.stderr
    (profile,) = [each for each in client.ask(p.ListProfiles()).profiles if each.grid == (7, 1, 1)]
    spins = [each for each in client.ask(p.ReadTrace()).operations if each.name == "spin"]
    measured = [each.ended_ns - each.started_ns for each in spins]
    assert profile.samples == len(measured) == 150
    assert profile.block_ns == profile.p95_ns >= profile.median_ns > 10_000
    assert {profile.p95_ns, profile.median_ns} <= set(measured)
    assert 10_000 < min(measured) <= profile.shortest_ns <= max(measured)
    (gap,) = profile.gaps
    assert gap.before == profile.key
    assert gap.median_ns > 20_000
