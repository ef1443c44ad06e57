"""What an asynchronous launch costs a Python program that uses fikit."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import fikit

EMPTY = """.version 7.0
.target sm_52
.address_size 64
.visible .entry empty(.param .u64 first, .param .u64 second) { ret; }
"""
BATCH = 100


def python_launch_us(socket: Path, seconds: float) -> float:
    """Microseconds for each launch, the median of batches that are drained in between."""
    readings: list[float] = []
    with fikit.connect(name="bench", priority="high", socket=socket) as session:
        kernel = session.load(EMPTY).kernel("empty")
        stream = session.stream(non_blocking=True)
        memory = session.allocate(1 << 20)
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(readings) < 5:
            start = time.perf_counter()
            for _ in range(BATCH):
                kernel.launch(memory, 2, grid=1, block=32, stream=stream)
            readings.append((time.perf_counter() - start) / BATCH * 1e6)
            stream.synchronize()
    return median(readings)
