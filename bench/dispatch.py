"""What the way through fikit adds: the same measurements on libcuda directly and through the daemon.

    python -m bench.dispatch [--json] [--device sim|auto|INDEX] [--sessions 1,2,8] [--without-daemon]

Both sides run in one go on the same device, in turn over several rounds; shown are medians over the rounds,
and of each round's ratio and difference with its range. Five rounds decide whether a goal is reached: the
range of five independent differences holds their true median in 15 of 16 cases. The daemon is the one at
FIKIT_SOCKET, else one of our own.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final, Literal

from fikit import protocol
from fikit.control import Connection

from bench import build, machine
from bench.bare import PER_SESSION, bare_sessions
from bench.daemon import cpu_seconds, daemon, executors, listener
from bench.measured import METRICS, Group, Metric
from bench.python_launch import python_launch_us
from fikitd.device import DeviceSpec

IDLE_SECONDS = 5.0


@dataclass(frozen=True)
class Row:
    """One metric with so many sessions."""

    metric: str
    sessions: int
    unit: str
    direct: float
    through: float
    ratio: float
    ratio_range: tuple[float, float]
    added: float
    added_range: tuple[float, float]


@dataclass(frozen=True)
class Goal:
    """What a metric is to reach with one session: a difference or a ratio at most, or at least, a bound."""

    metric: str
    figure: Literal["added", "ratio"]
    bound: float
    at_least: bool = False

    def verdict(self, row: Row) -> str:
        """``reached`` or ``missed`` when all rounds agree, else ``undecided``."""
        low, high = row.added_range if self.figure == "added" else row.ratio_range
        if self.at_least:
            low, high, bound = -high, -low, -self.bound
        else:
            bound = self.bound
        return "reached" if high <= bound else "missed" if low > bound else "undecided"


GOALS: Final = (
    Goal("launch_stream", "added", 0.1),
    Goal("round_trip_median", "added", 1.6),
    Goal("pinned_to_device", "ratio", 0.98, at_least=True),
    Goal("pinned_to_host", "ratio", 0.98, at_least=True),
    Goal("pageable_to_device", "ratio", 1.0, at_least=True),
    Goal("pageable_to_host", "ratio", 1.0, at_least=True),
    Goal("allocate_and_free", "ratio", 1.0),
)


def open_sessions(socket: Path, count: int, gpu: int, keep: ExitStack) -> list[list[int]]:
    """Sessions of a daemon, as descriptors; their connections stay open as long as ``keep``."""
    handed = []
    for number in range(count):
        connection = keep.enter_context(Connection(socket, client="bench", timeout=60.0))
        level = protocol.PRIORITIES["high"]
        connection.expect(
            protocol.SessionOpened, protocol.OpenSession(name=f"bench-{number}", priority=level, gpu=gpu)
        )
        handed.append(connection.take_descriptors(PER_SESSION))
    return handed


def one_round(
    metric: Metric, first: Group, second: Group, milliseconds: int, size: int
) -> tuple[list[float], list[float]]:
    """The metric on both. Times are taken as first, second, second, first: a drift cancels out."""
    if metric.bytes_moved:
        return first.measure(metric, milliseconds, size), second.measure(metric, milliseconds, size)
    order = (first, second, second, first)
    parts = [side.measure(metric, milliseconds // 2, size) for side in order]
    return (
        [fmean(pair) for pair in zip(parts[0], parts[3], strict=True)],
        [fmean(pair) for pair in zip(parts[1], parts[2], strict=True)],
    )


def compare(
    direct: Group, through: Group, sessions: int, rounds: int, milliseconds: int, size: int
) -> list[Row]:
    """Every metric on both, in turn."""
    rows = []
    for metric in METRICS:
        readings: list[tuple[list[float], list[float]]] = []
        for number in range(rounds):
            if number % 2 == 0:
                plain, hop = one_round(metric, direct, through, milliseconds, size)
            else:
                hop, plain = one_round(metric, through, direct, milliseconds, size)
            readings.append((plain, hop))
        for index, name in enumerate(metric.values):
            pairs = [(plain[index], hop[index]) for plain, hop in readings]
            ratios = [hop / plain for plain, hop in pairs]
            added = [hop - plain for plain, hop in pairs]
            rows.append(
                Row(
                    metric=name,
                    sessions=sessions,
                    unit=metric.unit,
                    direct=median(plain for plain, _ in pairs),
                    through=median(hop for _, hop in pairs),
                    ratio=median(ratios),
                    ratio_range=(min(ratios), max(ratios)),
                    added=median(added),
                    added_range=(min(added), max(added)),
                )
            )
    return rows


def idle_cpu(socket: Path, seconds: float) -> dict[str, float]:
    """Share of one core that the daemon and its executors use while nobody asks for anything."""
    pid = listener(socket)
    groups = {"daemon": [pid], "executors": executors(pid)}
    time.sleep(0.5)
    before = {name: sum(map(cpu_seconds, pids)) for name, pids in groups.items()}
    time.sleep(seconds)
    return {name: (sum(map(cpu_seconds, pids)) - before[name]) / seconds for name, pids in groups.items()}


def measure(options: argparse.Namespace, device: DeviceSpec, program: Path) -> dict[str, object]:
    """All of it, as what ``--json`` prints."""
    library = device.library or "libcuda.so.1"
    environment = {**os.environ, **device.environment}
    rows: list[Row] = []
    extra: dict[str, object] = {}
    with ExitStack() as stack:
        socket = None if options.without_daemon else stack.enter_context(daemon(options.device))
        for count in options.sessions:
            with ExitStack() as keep:
                if socket is None:
                    handed = keep.enter_context(bare_sessions(count, device.ordinal, environment))
                else:
                    handed = open_sessions(socket, count, device.index, keep)
                words = [["through", *map(str, descriptors)] for descriptors in handed]
                through = Group(program, words, descriptors=handed)
                keep.callback(through.close)
                alone = [["direct", library, str(device.ordinal)]] * count
                direct = Group(program, alone, environment=environment)
                keep.callback(direct.close)
                rows += compare(direct, through, count, options.rounds, options.milliseconds, options.bytes)
        if socket is not None:
            extra["python_launch_us"] = python_launch_us(socket, 1.0)
            with ExitStack() as keep:
                descriptors = open_sessions(socket, 1, device.index, keep)  # so that an executor is there
                extra["idle_cores"] = idle_cpu(socket, options.idle_seconds)
                for descriptor in descriptors[0]:
                    os.close(descriptor)
    return {
        **machine.about("dispatch", device),
        "daemon": not options.without_daemon,
        "rounds": options.rounds,
        "bytes": options.bytes,
        "metrics": [asdict(row) for row in rows],
        "goals": [
            {**asdict(goal), "verdict": goal.verdict(row)}
            for goal in GOALS
            for row in rows
            if row.metric == goal.metric and row.sessions == 1 and not device.simulated
        ],
        **extra,
    }


def table(result: dict[str, object]) -> str:
    """The same for people."""
    lines = [
        f"{result['device']}, driver {result['driver'] or 'none'}, commit {result['commit']}",
        f"{'metric':24} {'sessions':>8} {'direct':>10} {'through':>10} {'ratio':>7} {'added':>9}"
        f"{'   lowest to highest':25} unit",
    ]
    rows, goals = result["metrics"], result["goals"]
    assert isinstance(rows, list)
    assert isinstance(goals, list)
    for row in rows:
        numbers = f"{row['direct']:10.3f} {row['through']:10.3f} {row['ratio']:7.3f} {row['added']:9.3f}"
        low, high = row["added_range"]
        lines.append(
            f"{row['metric']:24} {row['sessions']:8} {numbers} {low:11.3f} to {high:<9.3f} {row['unit']}"
        )
    for goal in goals:
        bound = f"{goal['figure']} {'at least' if goal['at_least'] else 'at most'} {goal['bound']}"
        lines.append(f"{goal['metric']:24} {bound:21} {goal['verdict']}")
    lines += [f"{name}: {result[name]}" for name in ("python_launch_us", "idle_cores") if name in result]
    return "\n".join(lines)


def main() -> None:
    """Parse, build, measure, print."""
    parser = argparse.ArgumentParser(description="Dispatch through fikit beside libcuda itself.")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--device", default="auto", help="auto, sim, or the index of a GPU")
    parser.add_argument(
        "--sessions", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2, 8]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--milliseconds", type=int, default=200, help="for each metric, side and round")
    parser.add_argument(
        "--bytes", type=int, default=0, help="of one copy; default: 256 MiB, 16 on the simulated GPU"
    )
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    parser.add_argument(
        "--without-daemon", action="store_true", help="the dispatch core in a process of its own"
    )
    parser.add_argument("--programs", type=Path, help="folder of bench_dispatch; built when not given")
    options = parser.parse_args()
    device = machine.devices(parser, options.device)[0]
    options.bytes = options.bytes or (16 << 20 if "FIKIT_SIM_SCALE" in device.environment else 256 << 20)
    folder = options.programs or build.build(["bench_dispatch"])
    result = measure(options, device, folder / "bench_dispatch")
    print(json.dumps(result, indent=1) if options.json else table(result))


if __name__ == "__main__":
    main()
