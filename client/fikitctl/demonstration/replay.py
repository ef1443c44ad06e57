"""Replaying an iteration: each operation enqueued at its time, then everything waited for.

Times are absolute from the iteration's start, so that being late once does not shift what follows. The host
sleeps for what it can and polls the clock for the rest. The longer a device second takes the host, the less
a late wake-up matters on the device: where that is longer than a second, nothing is polled, which also
leaves the processor to whoever models the device's time.

The recorded program computed where the replay waits. So when a busy machine lets the replay wait for much
longer than asked, that is no part of the iteration: its clock stands still meanwhile. Time spent in
enqueueing and synchronising always counts.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

Enqueue = Callable[[], object]

POLLED_NS: Final = 60_000
"""Longer than a wake-up from sleep is usually late."""
_SHORTEST_SLEEP_NS: Final = 10_000
FORGOTTEN_NS: Final = 1_000_000
"""Waiting this much too long is the machine's doing."""
_PR_SET_TIMERSLACK: Final = 29


class Prepared(NamedTuple):
    """An operation ready to be enqueued, and when, from the iteration's start."""

    at_us: float
    enqueue: Enqueue


class HostClock(NamedTuple):
    """What the loop needs of time; a test passes another one."""

    now_ns: Callable[[], int]
    sleep_seconds: Callable[[float], object]


HOST: Final = HostClock(time.monotonic_ns, time.sleep)


class Replay:
    """One iteration, again and again."""

    def __init__(
        self,
        operations: Iterable[Prepared],
        pause_us: float,
        synchronize: Callable[[], object],
        time_scale: float,
        clock: HostClock = HOST,
    ) -> None:
        self._operations = [(round(each.at_us * 1e3 * time_scale), each.enqueue) for each in operations]
        self._pause_ns = round(pause_us * 1e3 * time_scale)
        self._synchronize = synchronize
        self._scale = time_scale
        self._polled_ns = POLLED_NS if time_scale <= 1.0 else 0
        self._clock = clock

    def step(self) -> float:
        """Enqueue everything in its time and wait for it; how long that took, in milliseconds."""
        now_ns, start = self._clock.now_ns, self._clock.now_ns()
        for due_ns, enqueue in self._operations:
            if (missing := start + due_ns - now_ns()) > 0:
                start += self._wait(start + due_ns, missing)
            enqueue()
        self._synchronize()
        return (now_ns() - start) / 1e6 / self._scale

    def pause(self) -> None:
        """What the host does between two iterations."""
        now = self._clock.now_ns()
        self._wait(now + self._pause_ns, self._pause_ns)

    def run(self, seconds: float, stopped: Callable[[], bool]) -> tuple[list[float], float]:
        """Iterations for that long: how long each took in milliseconds, and all of them in seconds."""
        start = self._clock.now_ns()
        enough = start + seconds * 1e9 * self._scale
        steps_ms = []
        while True:
            steps_ms.append(self.step())
            self.pause()
            if (now := self._clock.now_ns()) >= enough or stopped():
                return steps_ms, (now - start) / 1e9 / self._scale

    def _wait(self, until_ns: int, missing_ns: int) -> int:
        """Wait; how long the machine forgot us, in nanoseconds."""
        now_ns = self._clock.now_ns
        if (sleep_ns := missing_ns - self._polled_ns) > _SHORTEST_SLEEP_NS:
            self._clock.sleep_seconds(sleep_ns / 1e9)
        while (late_ns := now_ns() - until_ns) < 0 and self._polled_ns:
            pass
        return late_ns if late_ns > FORGOTTEN_NS else 0


def wake_on_time() -> None:
    """Have this process's sleeps end when they should, rather than up to 50 us later."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of the values do not exceed, interpolated between the nearest two."""
    ranked = sorted(values)
    below, fraction = divmod(share * (len(ranked) - 1), 1)
    place = int(below)
    above = ranked[min(place + 1, len(ranked) - 1)]
    return ranked[place] + fraction * (above - ranked[place])
