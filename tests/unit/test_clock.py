"""What a limit counts: the time in which it could have been kept."""

from __future__ import annotations

import trio

from fikitd.clock import LATE_SECONDS, LONGEST_SECONDS
from fikitd.main import Clock


class Machine:
    """Its time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.clock = Clock(lambda: self.now)

    def passes(self, seconds: float) -> float:
        """Of the machine's time; how much of it counts."""
        before = self.clock.current_time()
        self.now += seconds
        return self.clock.current_time() - before


def test_a_turn_that_is_hardly_late_counts_whole() -> None:
    machine = Machine()
    assert machine.passes(0.25) == 0.25
    machine.now += 7
    machine.clock.start_clock()
    assert machine.passes(0.25) == 0.25


def test_a_turn_that_was_held_up_counts_little() -> None:
    assert Machine().passes(3600) == LATE_SECONDS


def test_a_wait_counts_as_long_as_it_was_to_be() -> None:
    machine = Machine()
    deadline = machine.clock.current_time() + 0.75
    assert machine.clock.deadline_to_sleep_time(deadline) == 0.75
    machine.now += 0.5
    assert machine.clock.deadline_to_sleep_time(deadline) == 0.25  # something else had happened
    machine.now += 3600
    assert machine.clock.current_time() == deadline + LATE_SECONDS
    assert machine.clock.deadline_to_sleep_time(deadline) == 0


def test_of_a_long_wait_little_counts_if_the_machine_was_paused_in_it() -> None:
    machine = Machine()
    deadline = machine.clock.current_time() + 60
    assert machine.clock.deadline_to_sleep_time(deadline) == LONGEST_SECONDS
    machine.now += 3600
    assert machine.clock.current_time() == deadline - 60 + LONGEST_SECONDS + LATE_SECONDS


def test_without_a_limit_a_wait_may_be_of_any_length() -> None:
    machine = Machine()
    assert machine.clock.deadline_to_sleep_time(float("inf")) == float("inf")
    assert machine.clock.current_time() == 1000


def test_a_loop_that_was_held_up_keeps_its_limits() -> None:
    machine = Machine()

    async def held_up() -> bool:
        with trio.move_on_after(60) as limit:
            machine.now += 3600
            await trio.lowlevel.checkpoint()
            machine.now += 0.4
            await trio.lowlevel.checkpoint()
        return limit.cancelled_caught

    assert not trio.run(held_up, clock=machine.clock)
