"""How well the simulated GPU's model fits an H200: each figure measured through the driver interface.

    python -m bench.simfit [--json] [--device sim|real|PATH] [--program FILE] [PART...]

On the simulated GPU it runs under the virtual clock, so the result is the same on any machine. On a real GPU
it takes under a minute and gives the values for the H200's column. Exit code 1: a figure that the model
claims lies more than 15 % off.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench import build
from fikitd.simcuda import library_path

TOLERANCE: Final = 0.15
AGAIN: Final = Path(__file__).with_name("results") / "simfit-h200.json"
"""What this program itself measured on an H200; `h200` is what the model claims, of measurements before."""
SIMULATED_MEMORY: Final = 16 << 30
PARTS: Final = ("calls", "graphs", "priorities", "partitions", "copies", "memory", "contexts")
MPS_PARTS: Final = ("mps",)
"""Under MPS. On a real GPU its control daemon must run, so they are measured there only when named."""
SECONDS_OF_A_PART: Final = 170.0


@dataclass(frozen=True)
class Figure:
    """One figure: what it is, and what an H200 was measured to do (driver 580, CUDA 13.0)."""

    name: str
    text: str
    unit: str
    h200: float | None
    """What the model claims; None: it claims nothing."""


@dataclass(frozen=True)
class Row:
    """A figure and what was measured now."""

    name: str
    text: str
    unit: str
    h200: float | None
    measured: float
    deviation: float | None
    """Of `measured` from `h200`, as a share."""

    @property
    def fits(self) -> bool:
        """Whether it is close enough; what was never measured always is."""
        return self.deviation is None or abs(self.deviation) <= TOLERANCE


def _sized(call: str, text: str, microseconds: Sequence[float]) -> list[Figure]:
    sizes = (("2m", "2 MiB"), ("64m", "64 MiB"), ("1024m", "1 GiB"), ("8192m", "8 GiB"))
    return [
        Figure(f"vmm_{call}_{key}", f"{text}, {size}", "us", value)
        for (key, size), value in zip(sizes, microseconds, strict=True)
    ]


def _flood(block_us: int, microseconds: float) -> list[Figure]:
    beside = f"urgent launch + synchronise beside full waves of {block_us} us blocks"
    return [
        Figure(f"urgent_in_flood_{block_us}", f"{beside}, each 1066 us after the last", "us", microseconds),
        Figure(f"urgent_in_flood_{block_us}_random", f"{beside}, at random times", "us", None),
    ]


FIGURES: Final = (
    Figure("launch", "cuLaunchKernel, host time", "us", 2.5),
    Figure("launch_synchronise", "launch + cuStreamSynchronize", "us", 7.18),
    Figure("launch_write_poll", "launch + cuStreamWriteValue32 + polling it", "us", 6.97),
    Figure("launch_16_streams", "launches over 16 streams in turn, each", "us", 2.73),
    Figure("launch_green", "launch on a green context's stream", "us", 2.97),
    Figure("queue_depth", "launches until cuLaunchKernel blocks", "", 1021),
    Figure("event_record", "cuEventRecord without timing", "us", 0.10),
    Figure("event_record_timed", "cuEventRecord with timing", "us", 1.24),
    Figure("event_query", "cuEventQuery", "us", 1.2),
    Figure("stream_query", "cuStreamQuery", "us", 1.2),
    Figure("stream_write", "cuStreamWriteValue32", "us", 1.7),
    Figure("host_function", "cuLaunchHostFunc", "us", 1.7),
    Figure("events_around_kernel", "two timing events around an empty kernel read", "us", 5.7),
    Figure("kernel_with_events", "a timing event before and after each kernel, per kernel", "us", 4.75),
    Figure("graph_launch", "cuGraphLaunch of 100 empty kernels, host time", "us", 1.05),
    Figure("graph_kernel", "a kernel in a graph of 100", "us", 0.72),
    Figure("kernel_hopping", "a kernel in a chain that hops between green contexts", "us", 3.0),
    *_flood(10, 15.3),
    *_flood(50, 53.4),
    *_flood(200, 136),
    *_flood(1000, 936),
    Figure("urgent_beside_green", "urgent launch + synchronise beside a flood on 16 SMs", "us", 8.5),
    Figure("urgent_beside_copies", "urgent launch + synchronise beside copies to the host", "us", 9.1),
    Figure("contexts_in_turn", "launch + synchronise in two contexts in turn, a pair", "us", 286),
    Figure("beside_busy_context", "launch + synchronise beside a busy context", "us", 1846),
    Figure("urgent_beside_mps_10", "under MPS, beside waves of 10 us blocks", "us", 15.1),
    Figure("urgent_beside_mps_200", "under MPS, beside waves of 200 us blocks", "us", 45.5),
    Figure("contexts_in_turn_mps", "under MPS, two contexts in turn, a pair", "us", 15.6),
    Figure("context", "cuCtxCreate", "ms", 106),
    Figure("green_context", "cuGreenCtxCreate", "ms", 1.7),
    Figure("to_device", "pinned copies to the device", "GB/s", 55.6),
    Figure("to_host", "pinned copies to the host", "GB/s", 55.4),
    Figure("both_ways", "both at once, the sum", "GB/s", 101.7),
    Figure("to_host_4k", "copies to the host, pieces of 4 KiB", "GB/s", 2.2),
    Figure("to_host_64k", "copies to the host, pieces of 64 KiB", "GB/s", 22.3),
    Figure("to_host_1024k", "copies to the host, pieces of 1 MiB", "GB/s", 50.6),
    Figure("to_host_2048k", "copies to the host, pieces of 2 MiB", "GB/s", 53.0),
    Figure("to_host_16384k", "copies to the host, pieces of 16 MiB", "GB/s", 55.1),
    Figure("on_device", "copies inside the device, read + write", "GB/s", 4196),
    Figure("pageable_to_device", "pageable copies to the device", "GB/s", 10.3),
    Figure("pageable_to_host", "pageable copies to the host", "GB/s", 19.1),
    Figure("host_allocate", "cuMemHostAlloc, per GiB", "ms", 324),
    Figure("host_register", "cuMemHostRegister, per GiB", "ms", 32),
    Figure("host_unregister", "cuMemHostUnregister, per GiB", "ms", 13),
    Figure("allocate_2m", "cuMemAlloc of 2 MiB", "us", 31),
    Figure("free_2m", "cuMemFree of 2 MiB", "us", 27),
    Figure("free_behind_kernel", "cuMemFree behind a kernel of 100 ms", "ms", 104),
    *_sized("create", "cuMemCreate", (5.9, 6.1, 27, 117)),
    *_sized("map", "cuMemMap", (0.5, 0.4, 0.5, 0.6)),
    *_sized("set_access", "cuMemSetAccess", (16.3, 28.8, 51.6, 210)),
    *_sized("unmap", "cuMemUnmap", (11.3, 18.6, 26.4, 83)),
    *_sized("release", "cuMemRelease", (7.1, 22.7, 195, 1722)),
    Figure("vmm_create_host_256m", "cuMemCreate in host memory, 256 MiB", "ms", 40),
)


def measure(program: Path, library: str, parts: Sequence[str], *, simulated: bool) -> dict[str, float]:
    """The figures by name; each part in a process of its own. A part that fails ends the program."""
    environment = dict(os.environ)
    if simulated:
        environment |= {"FIKIT_SIM_CLOCK": "virtual", "FIKIT_SIM_MEMORY": str(SIMULATED_MEMORY)}
        for name in ("FIKIT_SIM_FAULT", "FIKIT_SIM_INTERFERENCE", "FIKIT_SIM_MPS"):
            environment.pop(name, None)
    found: dict[str, float] = {}
    for part in parts:
        command = [str(program), library, part]
        if simulated:
            environment["FIKIT_SIM_MPS"] = "1" if part in MPS_PARTS else "0"
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS_OF_A_PART
        )
        if done.returncode != 0:
            sys.exit(f"simfit, part {part}: {done.stderr.strip() or done.returncode}")
        found |= json.loads(done.stdout)
    return found


def compare(measured: dict[str, float]) -> list[Row]:
    """A row for each figure that was measured."""
    rows = []
    for figure in FIGURES:
        value = measured.get(figure.name)
        if value is None:
            continue
        deviation = None if figure.h200 is None else value / figure.h200 - 1
        rows.append(Row(figure.name, figure.text, figure.unit, figure.h200, value, deviation))
    return rows


def table(rows: Sequence[Row], column: str) -> str:
    """The rows as Markdown."""
    again = {figure["name"]: figure["measured"] for figure in json.loads(AGAIN.read_text())["figures"]}
    lines = [
        f"| figure | unit | H200 | {column} | deviation | H200, this program |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        h200 = "not measured" if row.h200 is None else f"{row.h200:g}"
        deviation = "" if row.deviation is None else f"{row.deviation:+.1%}{'' if row.fits else ' (!)'}"
        recorded = f"{again[row.name]:.4g}" if row.name in again else ""
        lines.append(f"| {row.text} | {row.unit} | {h200} | {row.measured:.4g} | {deviation} | {recorded} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and fail where a claim does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.simfit", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS + MPS_PARTS)}")
    parser.add_argument("--json", action="store_true", help="one line of JSON in place of the table")
    wanted = os.environ.get("FIKIT_TEST_DEVICE", "sim")
    parser.add_argument("--device", default=wanted, help="sim, real, or a simulated libcuda.so.1")
    parser.add_argument("--program", type=Path, help="bench_simfit, already built")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS + MPS_PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    simulated = options.device != "real"
    library = "libcuda.so.1"
    if simulated:
        library = str(library_path()) if options.device == "sim" else options.device
    program = options.program or build.build(["bench_simfit"]) / "bench_simfit"
    parts = options.parts or [*PARTS, *(MPS_PARTS if simulated else ())]
    rows = compare(measure(program, library, parts, simulated=simulated))
    fits = all(row.fits for row in rows)
    if options.json:
        figures = [asdict(row) for row in rows]
        print(json.dumps({"device": options.device, "fits": fits, "figures": figures}))
    else:
        print(table(rows, "simulated" if simulated else "measured now"))
    sys.exit(0 if fits else 1)


if __name__ == "__main__":
    main()
