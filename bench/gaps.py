"""What stands between two driver calls of a stream of launches, in nanoseconds, on any machine.

    python bench/gaps.py [--json] [--microseconds 2.5] [--kibibytes 64]

The driver is the null driver, made to take so long for each launch and to change so much of the caches. On a
machine with fewer than four free cores the upper percentiles show its scheduler.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also when run as a file

from bench import build, machine

COLUMNS: Final = ("median", "p90", "mean_of_lower_99_5", "launches_per_gap_above_1_us", "each_launch")


def gaps(program: Path, microseconds: float, kibibytes: int) -> dict[str, dict[str, float]]:
    """By side (``direct``, ``through``) the columns above."""
    command = [str(program), str(microseconds), str(kibibytes)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    sides = [line.split() for line in lines]
    return {side: dict(zip(COLUMNS, map(float, values), strict=True)) for side, *values in sides}


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description="Nanoseconds between two driver calls.")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--microseconds", type=float, default=2.5, help="the driver takes for a launch")
    parser.add_argument("--kibibytes", type=int, default=64, help="of cache that it changes meanwhile")
    parser.add_argument("--programs", type=Path, help="folder of bench_gaps; built when not given")
    options = parser.parse_args()
    folder = options.programs or build.build(["bench_gaps"])
    sides = gaps(folder / "bench_gaps", options.microseconds, options.kibibytes)
    if options.json:
        about = {"benchmark": "gaps", "commit": machine.commit(), "machine": machine.machine()}
        driver = {"driver_us": options.microseconds, "driver_kib": options.kibibytes}
        print(json.dumps({**about, **driver, "nanoseconds": sides}, indent=1))
        return
    for side, values in sides.items():
        print(f"{side:8}", "  ".join(f"{name} {value:g}" for name, value in values.items()))


if __name__ == "__main__":
    main()
