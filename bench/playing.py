"""Processes that step when told to (native/sharing.cpp, programs/workloads), and what their steps say.

All of them take times from the same monotonic clock, so a window of time can be looked at on both sides.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from fikitctl.demonstration.replay import percentile

READY_SECONDS: Final = 120.0
STOP_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Steps:
    """When each step began and ended, in host nanoseconds."""

    bounds: list[tuple[int, int]]

    def durations_ms(self, begin_ns: int, end_ns: int, scale: float) -> list[float]:
        """Of the steps within the window, in milliseconds of the device."""
        return [
            (end - begin) / 1e6 / scale for begin, end in self.bounds if begin >= begin_ns and end <= end_ns
        ]

    def per_second(self, begin_ns: int, end_ns: int, scale: float) -> float:
        """Steps per device second within the window; what lies in it of a step counts as that part."""
        begins = [begin for begin, _ in self.bounds]
        if self.bounds:
            begins.append(self.bounds[-1][1])
        played = sum(
            (min(following, end_ns) - max(begin, begin_ns)) / (following - begin)
            for begin, following in pairwise(begins)
            if following > begin_ns and begin < end_ns
        )
        return played / ((end_ns - begin_ns) / 1e9 / scale)


class Process:
    """A process that plays one plan, or several."""

    def __init__(
        self,
        program: Path,
        arguments: Sequence[object],
        *,
        environment: Mapping[str, str],
        descriptors: Sequence[int] = (),
        plays: int = 1,
    ) -> None:
        self._what = " ".join(map(str, arguments))
        self._plays = plays
        self._heard = b""
        self.told = ""
        """What it said of itself when it was ready."""
        self.started_ns = time.monotonic_ns()
        self._process = subprocess.Popen(
            [program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
            pass_fds=descriptors,
        )
        for descriptor in descriptors:
            os.close(descriptor)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def await_ready(self) -> None:
        """Wait until its plans are loaded and have been played a few times."""
        line = self._line(READY_SECONDS)
        word, _, self.told = line.partition(" ")
        if word != "ready":
            raise RuntimeError(f"{self._what} said {line!r}")

    def start(self) -> None:
        """Let it play."""
        self._say("start")

    def stop(self) -> None:
        """Let it end the step that it is at."""
        self._say("stop")

    def steps(self) -> list[Steps]:
        """What each of its plans did between ``start`` and ``stop``."""
        played = []
        for _ in range(self._plays):
            numbers = [int(word) for word in self._line(STOP_SECONDS).split()]
            played.append(Steps(list(zip(numbers[::2], numbers[1::2], strict=True))))
        return played

    def dismiss(self) -> None:
        """Let it end; ``close`` waits for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        """End it."""
        assert self._process.stdout is not None
        self.dismiss()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")

    def _line(self, seconds: float) -> str:
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._heard:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise RuntimeError(f"{self._what} has not answered for {seconds:.0f} s")
            if not (more := self._process.stdout.read(1 << 16)):
                raise RuntimeError(f"{self._what} ended with {self._process.wait()}")
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()


@dataclass(frozen=True)
class Reading:
    """One round of one configuration; None: that side did not play."""

    hp_p50_ms: float | None
    hp_p99_ms: float | None
    lp_steps_per_second: float | None


def play(
    high: Process | None, lows: Sequence[Process], seconds: float, settle_seconds: float, scale: float
) -> Reading:
    """Let them play together and look at that many device seconds of it.

    One process may be both sides: then its first plan is the high one. The low side's rate is the sum.
    """
    playing = list(dict.fromkeys(each for each in (*lows, high) if each is not None))
    for each in playing:
        each.start()
    time.sleep(settle_seconds * scale)
    begin = time.monotonic_ns()
    time.sleep(seconds * scale)
    end = time.monotonic_ns()
    for each in playing:
        each.stop()
    played = {id(each): each.steps() for each in playing}
    p50 = p99 = rate = None
    if high is not None:
        durations = played[id(high)][0].durations_ms(begin, end, scale)
        if not durations:
            raise RuntimeError("the high-priority side ended no step: measure for longer")
        p50, p99 = percentile(durations, 0.5), percentile(durations, 0.99)
    if lows:
        parts = [steps for low in lows for steps in played[id(low)][1 if low is high else 0 :]]
        rate = sum(steps.per_second(begin, end, scale) for steps in parts)
    return Reading(p50, p99, rate)
