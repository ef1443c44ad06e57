"""The replay's own results: does it agree with what was measured, and what do the policies reach?

    python -m bench.replay_results table             measured and replayed, for the fixed rules
    python -m bench.replay_results pairs [--tenants 4] [--highs 2]
                                         [--of recorded|quick|requests|answers|services|graphs|
                                          concurrent|drawn|sizes|made|real|varied]
                                         [--policies P,P] [--seconds S] [--seeds N] [--json FILE]
    python -m bench.replay_results all               both, as bench/results has them

``pairs``: all of the recorded inference and training workloads, or those of bench/made.py, bench/drawn.py,
bench/real.py or bench/varied.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from fikitctl.demonstration.workloads import Workload, load_workload, load_workloads, workload_names

from bench import machine
from bench.build import ROOT
from bench.drawn import drawn
from bench.made import made
from bench.real import real
from bench.replayed import POLICIES, Replayer, Rule, Setup, Varied, percentile
from bench.varied import HIGH, LOW, answers, concurrent, graphs, quick, requests, services, sizes, varied

MEASURED_PAIRS: Final = (
    ("resnet50_inf", "gpt2_train"),
    ("bert_inf", "resnet50_train"),
    ("llama1b_decode", "bert_train"),
)


class Measured(NamedTuple):
    """One row measured on an H200: by pair the high side's p99, the low side's throughput."""

    name: str
    setup: Setup
    values: tuple[tuple[float, float], ...]


def _fixed(rule: Rule | None = None, policy: str = "streams") -> Setup:
    return Setup(policy=policy, seconds=3.0, warmup=0.06, rule=rule or Rule())


MEASURED: Final = (
    Measured("equal stream priority", _fixed(policy="fifo"), ((4.68, 0.99), (1.11, 0.99), (1.00, 1.00))),
    Measured("stream priorities only", _fixed(), ((2.20, 0.95), (1.08, 0.96), (1.00, 1.00))),
    Measured(
        "at most 100 us in flight", _fixed(Rule(in_flight_us=100)), ((2.53, 0.93), (1.08, 0.93), (1.00, 1.00))
    ),
    Measured("all on 120 SMs", _fixed(Rule(confine=120)), ((1.14, 0.87), (1.00, 0.82), (1.00, 1.00))),
    Measured("all on 96 SMs", _fixed(Rule(confine=96)), ((1.00, 0.76), (1.00, 0.74), (1.00, 0.99))),
    Measured(
        "blocks over 20 us on 120 SMs",
        _fixed(Rule(confine_long=120)),
        ((1.17, 0.89), (1.00, 0.86), (1.00, 1.00)),
    ),
    Measured(
        "blocks over 20 us on 96 SMs",
        _fixed(Rule(confine_long=96)),
        ((1.00, 0.81), (1.00, 0.81), (1.00, 0.99)),
    ),
)
PACES: Final = (0.98, 0.99, 1.0, 1.01, 1.02)
"""How fast the low side's blocks run. How its period lines up with the high side's decides which of its
steps meet the longest kernels, so a p99 of one run is known no better than these tell; a clock is."""


TOLERATED: Final = 0.05


class Cell(NamedTuple):
    """One figure: as measured, and the range of the replays."""

    row: str
    pair: str
    what: str
    measured: float
    least: float
    most: float

    @property
    def off(self) -> float:
        """By how much the measured figure lies outside of the range."""
        return max(0.0, self.least - self.measured, self.measured - self.most)


def cells(seconds: float = 3.0) -> list[Cell]:
    """Every figure measured, with its replays."""
    found = []
    for number, pair in enumerate(MEASURED_PAIRS):
        workloads = [load_workload(name) for name in pair]
        replayer = Replayer(workloads)
        period = workloads[0].iter_ms * 1e6  # kept by what was measured; the replay pauses instead
        high, low = [pair[0]], [pair[1]]
        runs: list[tuple[list[str], list[str], Setup]] = [(high, [], _fixed()), *(
            ([], low, replace(_fixed(), pace=pace)) for pace in PACES
        )]  # fmt: skip
        runs += [
            (high, low, replace(row.setup, pace=pace, seconds=seconds)) for row in MEASURED for pace in PACES
        ]
        alone, *rest = replayer.run(runs)
        base = max(period, percentile(alone["high"][0]["iterations_ns"], 0.99))
        low_alone = [run["low"][0]["work"] for run in rest[: len(PACES)]]
        for at, row in enumerate(MEASURED):
            mine = rest[len(PACES) * (at + 1) : len(PACES) * (at + 2)]
            slow = [percentile(run["high"][0]["iterations_ns"], 0.99) for run in mine]
            tails = [max(period, each) / base for each in slow]
            works = [run["low"][0]["work"] / own for run, own in zip(mine, low_alone, strict=True)]
            name = " : ".join(pair)
            found.append(Cell(row.name, name, "p99", row.values[number][0], min(tails), max(tails)))
            found.append(Cell(row.name, name, "low", row.values[number][1], min(works), max(works)))
    return found


def table(every: list[Cell]) -> str:
    """Measured beside replayed."""
    lines = []
    for cell in sorted(every, key=lambda cell: [row.name for row in MEASURED].index(cell.row)):
        replayed = f"{cell.least:.3f} to {cell.most:.3f}"
        note = "" if cell.off <= TOLERATED else "   OFF"
        names = f"{cell.row:24} {cell.pair:30} {cell.what:4}"
        lines.append(f"{names} measured {cell.measured:.2f}  replayed {replayed}{note}")
    lines.append(f"{len(every)} figures, the worst is off by {max(cell.off for cell in every):.3f}")
    return "\n".join(lines)


def recorded() -> tuple[list[Workload], list[Workload]]:
    """The high ones and the low ones."""
    return [load_workload(name) for name in HIGH], [load_workload(name) for name in LOW]


def more() -> tuple[list[Workload], list[Workload]]:
    """Inference and training of other kinds, and an LLM that is in both (traces/h200_more.json.gz)."""
    path = ROOT / "bench" / "traces" / "h200_more.json.gz"
    both, low = ["llama8b_decode"], ["science"]
    names = workload_names(path)
    low += [name for name in names if name.endswith("_train")]
    high = [name for name in names if name not in (*low, *both)]
    return load_workloads([*high, *both], path), load_workloads([*low, *both], path)


Kinds = Callable[[], tuple[Sequence[Workload | Varied], Sequence[Workload]]]
WORKLOADS: Final[dict[str, Kinds]] = {
    "recorded": recorded,
    "quick": quick,
    "requests": requests,
    "answers": answers,
    "graphs": graphs,
    "sizes": sizes,
    "made": made,
    "real": real,
    "varied": varied,
    "concurrent": concurrent,
    "drawn": drawn,
    "services": services,
    "more": more,
}


def pairs(
    policies: Sequence[str], tenants: int, of: str, seeds: int, setup: Setup, highs: int = 1
) -> list[dict[str, Any]]:
    """Every pair under every policy, with every seed from 1: ``highs`` high ones, ``tenants`` low ones."""
    high, low = WORKLOADS[of]()
    results = []
    for above, below, seed in product(combinations(high, highs), low, range(1, seeds + 1)):
        replayer = Replayer([*above, below])
        for policy in policies:
            how = replace(setup, policy=policy, seed=seed)
            result = replayer.compare([each.name for each in above], [below.name] * tenants, how)
            results.append({**result, "seed": seed})
            _show(results[-1])
    return results


def _show(result: dict[str, Any]) -> None:
    names = f"{', '.join(result['hp'])} : {result['lp'][0]} x{len(result['lp'])}"
    figures = "  ".join(
        f"{key} {result[key]:.3f}"
        for key in ("hp_p50_ratio", "hp_p99_ratio", "lp_ratio", "lp_of_bound", "fill_share")
    )
    print(f"{names:40} {result['policy']:10} {figures}", file=sys.stderr, flush=True)


def summary(results: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By policy: mean and worst of the two figures that matter."""
    found = {}
    for policy in dict.fromkeys(result["policy"] for result in results):
        mine = [result for result in results if result["policy"] == policy]
        tails, bounds = ([result[key] for result in mine] for key in ("hp_p99_ratio", "lp_of_bound"))
        found[policy] = {
            "hp_p99_mean": round(fmean(tails), 4),
            "hp_p99_worst": max(tails),
            "lp_of_bound_mean": round(fmean(bounds), 4),
            "lp_of_bound_worst": min(bounds),
        }
    return found


def write(results: list[dict[str, Any]], path: Path) -> None:
    """Into a file, with what they amount to; a line for each."""
    head = json.dumps({"commit": machine.commit(), "summary": summary(results)}, indent=1)
    lines = ",\n".join(map(json.dumps, results))
    path.write_text(f'{head[:-2]},\n "pairs": [\n{lines}\n]}}\n')


@dataclass(frozen=True)
class Part:
    """A file of results, ``replay-modelNAME.json``."""

    name: str
    what: str
    of: str
    policies: tuple[str, ...] = POLICIES
    tenants: int = 1
    highs: int = 1
    setup: Setup = field(default_factory=Setup)


PARTS: Final = (
    Part("", "nine recorded pairs", "recorded"),
    Part("-four-tenants", "the same, four low tenants", "recorded", ("fikit", "strict"), tenants=4),
    Part("-two-high", "recorded, two high ones together", "recorded", ("fikit", "streams"), highs=2),
    Part("-three-high", "recorded, three high ones together", "recorded", ("fikit", "streams"), highs=3),
    Part("-quick", "recorded pairs with quicker hosts", "quick"),
    Part(
        "-quick-spared",
        "the same, spared 2.4 us by each launch",
        "quick",
        ("fikit",),
        setup=Setup(spared_us=2.4),
    ),
    Part("-requests", "recorded pairs, asked now and then", "requests"),
    Part(
        "-answers",
        "short answers, asked when nothing tells of it (bench/varied.py)",
        "answers",
        ("fikit", "streams", "strict"),
        setup=Setup(warmup=2.0),
    ),
    Part(
        "-untold",
        "nine recorded pairs, of whose waits nobody tells",
        "recorded",
        ("fikit",),
        setup=Setup(told_every=0),
    ),
    Part(
        "-quick-untold",
        "those with quicker hosts, of whose waits nobody tells",
        "quick",
        ("fikit",),
        setup=Setup(told_every=0),
    ),
    Part("-services", "services in C++ (bench/varied.py)", "services", setup=Setup(warmup=4.0)),
    Part(
        "-services-polled",
        "the same, which look at memory",
        "services",
        ("fikit",),
        setup=Setup(warmup=4.0, polled=True),
    ),
    Part("-graphs", "recorded pairs, each answer one graph", "graphs", ("fikit", "streams", "strict")),
    Part(
        "-concurrent",
        "inference on several streams, with quick hosts (bench/varied.py)",
        "concurrent",
        ("fikit", "streams", "strict"),
    ),
    Part("-drawn", "programs drawn at random (bench/drawn.py)", "drawn", ("fikit", "streams", "strict")),
    Part("-more", "24 services and 16 trainings recorded later", "more", ("fikit",)),
    Part("-made", "made-up pairs (bench/made.py)", "made"),
    Part("-varied", "programs that do not repeat (bench/varied.py)", "varied"),
    Part("-real", "real kernels (bench/real.py)", "real"),
    Part("-sizes", "recorded pairs on half to four times the data", "sizes", ("fikit", "streams")),
    Part("-sizes-4", "the same, a bound of 4 %", "sizes", ("fikit",), setup=Setup(delay_share=0.04)),
    Part("-sizes-8", "the same, a bound of 8 %", "sizes", ("fikit",), setup=Setup(delay_share=0.08)),
    Part(
        "-bound-4",
        "nine recorded pairs, a bound of 4 %",
        "recorded",
        ("fikit",),
        setup=Setup(delay_share=0.04),
    ),
    Part(
        "-bound-8",
        "nine recorded pairs, a bound of 8 %",
        "recorded",
        ("fikit",),
        setup=Setup(delay_share=0.08),
    ),
)


def write_all(folder: Path, seconds: float, seeds: int) -> None:
    """What bench/results holds of the replay."""
    (folder / "replay-model-measured.txt").write_text(table(cells()) + "\n")
    lines = [
        f"`python -m bench.replay_results all --seeds {seeds} --seconds {seconds:g}` at {machine.commit()}.",
        "",
        "| pairs, policy | high p99 of alone, mean / worst | low throughput of the bound, mean / worst |",
        "|---|---|---|",
    ]
    for part in PARTS:
        setup = replace(part.setup, seconds=seconds)
        results = pairs(part.policies, part.tenants, part.of, seeds, setup, part.highs)
        write(results, folder / f"replay-model{part.name}.json")
        for policy, row in summary(results).items():
            tail = f"{row['hp_p99_mean']:.3f} / {row['hp_p99_worst']:.3f}"
            bound = f"{row['lp_of_bound_mean']:.3f} / {row['lp_of_bound_worst']:.3f}"
            lines.append(f"| {part.what}, {policy} | {tail} | {bound} |")
    (folder / "replay-model.md").write_text("\n".join(lines) + "\n")


def main() -> int:
    """Print, or write. 1: the table has a figure that is off."""
    parser = argparse.ArgumentParser(prog="bench.replay_results", description="Results of the replay.")
    parser.add_argument("what", choices=("table", "pairs", "all"))
    parser.add_argument("--tenants", type=int, default=1, help="how many times the low side runs")
    parser.add_argument("--highs", type=int, choices=(1, 2, 3), default=1, help="high ones at a time")
    parser.add_argument("--of", choices=WORKLOADS, default="recorded", help="which workloads")
    parser.add_argument("--policies", type=lambda text: text.split(","), default=list(POLICIES))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, default=1, help="replay with so many seeds")
    parser.add_argument("--json", type=Path, help="file for all results")
    options = parser.parse_args()
    if options.what == "all":
        write_all(ROOT / "bench" / "results", options.seconds, options.seeds)
        return 0
    if options.what == "table":
        every = cells()
        print(table(every))
        return int(any(cell.off > TOLERATED for cell in every))
    setup = Setup(seconds=options.seconds)
    results = pairs(options.policies, options.tenants, options.of, options.seeds, setup, options.highs)
    print(json.dumps(summary(results), indent=1))
    if options.json:
        write(results, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
