"""The loop's time: what passes while nobody could have kept a limit does not count.

A machine is paused (its hypervisor migrates it, its container is frozen), a host swaps, a daemon is stopped:
afterwards every limit would have passed at once, of executors, jobs and users that had as little of that time
as the daemon. So a turn of the loop counts no longer than it was to wait, and a little more. Standard library
only, for runners.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

LATE_SECONDS: Final = 0.5
"""By which a turn of a loop may be late on a busy machine."""
LONGEST_SECONDS: Final = 1.0
"""That a turn waits for a limit: what was waited for counts, also where the machine was paused in it."""


class LoopClock:
    """Seconds of CLOCK_MONOTONIC without those that the loop was held up for."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._held_up = 0.0
        self._looked = monotonic()
        self._waits = 0.0
        """How long the loop was about to wait when it looked."""

    def start_clock(self) -> None:
        """The loop begins."""
        self._looked = self._monotonic()

    def current_time(self) -> float:
        """Which time it is to the loop."""
        now = self._monotonic()
        self._held_up += max(0.0, now - self._looked - self._waits - LATE_SECONDS)
        self._looked, self._waits = now, 0.0
        return now - self._held_up

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """For how long the loop waits if nothing else happens; then it asks again."""
        left = max(0.0, deadline - self.current_time())
        self._waits = left if left == math.inf else min(left, LONGEST_SECONDS)
        return self._waits
