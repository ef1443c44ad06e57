"""The replay keeps its schedule, with a clock that moves only when somebody looks at it or sleeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fikitctl.demonstration.replay import HostClock, Prepared, Replay, percentile


class Host:
    """A host on which looking at the clock takes 1 us and sleeping ends 20 us late."""

    def __init__(self) -> None:
        self.now = 0
        self.slept: list[float] = []
        self.enqueued: list[tuple[str, int]] = []
        self.late_ns = 20_000

    def clock(self) -> HostClock:
        return HostClock(self._look, self._sleep)

    def _look(self) -> int:
        self.now += 1_000
        return self.now

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += round(seconds * 1e9) + self.late_ns

    def enqueues(self, name: str, takes_us: int = 0) -> Callable[[], None]:
        def enqueue() -> None:
            self.enqueued.append((name, self.now))
            self.now += takes_us * 1000

        return enqueue

    def replay(self, *operations: tuple[float, str, int], pause_us: float = 0, time_scale: float) -> Replay:
        prepared = [Prepared(at, self.enqueues(name, takes)) for at, name, takes in operations]
        return Replay(prepared, pause_us, self.enqueues("synchronize", 100), time_scale, self.clock())


def test_operations_are_enqueued_at_their_times() -> None:
    host = Host()
    host.replay((0, "a", 0), (30, "b", 0), (500, "c", 0), time_scale=1.0).step()
    times = dict(host.enqueued)
    assert list(times) == ["a", "b", "c", "synchronize"]
    assert 28_000 <= times["b"] - times["a"] <= 33_000
    assert 498_000 <= times["c"] - times["a"] <= 503_000
    assert len(host.slept) == 1


def test_being_late_once_does_not_shift_what_follows() -> None:
    host = Host()
    host.replay((0, "a", 80), (30, "b", 0), (100, "c", 0), time_scale=1.0).step()
    times = dict(host.enqueued)
    assert times["b"] - times["a"] < 85_000
    assert 98_000 <= times["c"] - times["a"] <= 103_000


@pytest.mark.parametrize("time_scale", [1.0, 8.0])
def test_being_forgotten_by_the_machine_is_no_part_of_a_step(time_scale: float) -> None:
    host = Host()
    host.late_ns = 50_000_000
    step_ms = host.replay((0, "a", 0), (200, "b", 0), (210, "c", 0), time_scale=time_scale).step()
    times = dict(host.enqueued)
    assert times["b"] - times["a"] > host.late_ns
    assert times["c"] - times["b"] >= 9_000
    assert step_ms == pytest.approx(0.21 + 0.1 / time_scale, rel=0.05)


def test_nothing_is_polled_where_device_time_is_slow() -> None:
    host = Host()
    step_ms = host.replay((0, "a", 0), (30, "b", 0), time_scale=8.0).step()
    times = dict(host.enqueued)
    assert host.slept == [pytest.approx(240e-6, abs=3e-6)]
    assert 240_000 <= times["b"] - times["a"] <= 265_000
    assert step_ms == pytest.approx((240 + 20 + 100) / 8 / 1e3, rel=0.05)


def test_iterations_follow_each_other_after_a_pause_until_the_time_is_up() -> None:
    host = Host()
    replay = host.replay((0, "a", 0), pause_us=200, time_scale=1.0)
    steps_ms, seconds = replay.run(0.001, lambda: False)
    assert steps_ms == [pytest.approx(0.1, abs=0.01)] * 4
    assert seconds == pytest.approx(4 * 0.3e-3, rel=0.05)


def test_a_run_ends_when_told_to() -> None:
    host = Host()
    steps_ms, _ = host.replay((0, "a", 0), time_scale=1.0).run(10, lambda: len(host.enqueued) >= 6)
    assert len(steps_ms) == 3


def test_percentiles() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 0.5) == pytest.approx(50.5)
    assert percentile(values, 0.99) == pytest.approx(99.01)
    assert percentile(values, 1.0) == 100
    assert percentile([3.0], 0.99) == 3
