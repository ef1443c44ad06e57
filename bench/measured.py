"""The measured native processes (bench/native/dispatch.cpp), asked line by line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Metric:
    """What is measured: its name in the program, how it is shown."""

    name: str
    unit: str
    values: tuple[str, ...]
    bytes_moved: bool = False
    rate: bool = False
    """Larger is better."""


METRICS = (
    Metric("launch", "us", ("launch_host",)),
    Metric("stream", "us", ("launch_stream",)),
    Metric("stream_of_10_us", "us", ("stream_of_10_us",)),
    Metric("stream_of_20000_cycles", "us", ("stream_of_20000_cycles",)),
    Metric("round_trip", "us", ("round_trip_median", "round_trip_p99")),
    *(
        Metric(f"{kind}_{way}", "GB/s", (f"{kind}_{way}",), bytes_moved=True, rate=True)
        for kind in ("pinned", "pageable")
        for way in ("to_device", "to_host")
    ),
    Metric("allocate", "us", ("allocate_and_free",)),
    Metric("allocate_large", "us", ("allocate_and_free_large",)),
)


class Group:
    """Processes of one kind that measure the same thing at the same time."""

    def __init__(
        self,
        program: Path,
        arguments: Sequence[Sequence[str]],
        *,
        descriptors: Sequence[Sequence[int]] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        handed = descriptors or [[] for _ in arguments]
        self._processes = [
            subprocess.Popen(
                [str(program), *each],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=inherited,
                env=environment,
            )
            for each, inherited in zip(arguments, handed, strict=True)
        ]
        for inherited in handed:
            for descriptor in inherited:
                os.close(descriptor)
        for process in self._processes:
            self._line(process)

    @staticmethod
    def _line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{process.args!r} ended with {process.wait()}")
        return line

    def measure(self, metric: Metric, milliseconds: int, size: int) -> list[float]:
        """The values of the metric: sums over the processes for rates, else medians."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{metric.name} {milliseconds} {size}\n")
            process.stdin.flush()
        readings = [[float(word) for word in self._line(process).split()] for process in self._processes]
        combine = sum if metric.rate else median
        return [float(combine(values)) for values in zip(*readings, strict=True)]

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            process.communicate()
