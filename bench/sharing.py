"""Two tenants of one GPU, every way of sharing it, in one run on one device.

    python -m bench.sharing [--json] [--device sim|auto|INDEX] [--pairs all|recorded|real|HP:LP,...]
                            [--policies fikit,strict] [--lows N] [--rounds N] [--baseline-rounds N]
                            [--seconds S] [--within S] [--output FILE]
    python -m bench.sharing --plot results.json out.svg

The high-priority side (HP) and the low-priority side (LP) are processes that play recorded workloads as timed
kernels, or real kernels (plans.py), in every configuration (configurations.py). Every round measures all of
them, but baselines may have fewer rounds; shown are medians over the rounds of the ratios to what the same
side had alone in the same round. A pair that fails is left out and named.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Final

from fikit.errors import FikitError, MissingExtraError
from fikitctl.demonstration.workloads import WorkloadError, workload_names

from bench import build, machine
from bench.configurations import ALONE, BOUND, Bench, Plays, prepared
from bench.mps import Mps, MpsUnavailableError
from bench.playing import Reading, play
from bench.report import summary, table
from fikitd.device import DeviceSpec

DEFAULT: Final = ("resnet50_inf:gpt2_train", "bert_inf:resnet50_train", "llama1b_decode:bert_train")
REAL: Final = ("gemm_service:gemm_chain", "gemm_service:memory_chain", "gemm_service:long_blocks")
SETTLE_SHARE: Final = 0.05
"""Of a measurement's time: played before anything is looked at."""
BETWEEN_SECONDS: Final = 0.1
"""What a measurement takes besides, at most: until its processes have stopped and told."""
LEAST_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Row:
    """One configuration of a pair: medians over the rounds; ratios are to alone in the same round."""

    configuration: str
    hp_p50_ms: float | None
    hp_p99_ms: float | None
    lp_steps_per_second: float | None
    hp_p50_ratio: float | None
    hp_p99_ratio: float | None
    lp_ratio: float | None
    lp_of_bound: float | None
    """Of the low side's rate in the work-conserving bound, where that was measured."""
    rounds: list[Reading]


def read(plays: Plays, seconds: float, scale: float) -> Reading:
    """One round of a configuration."""
    readings = [play(high, lows, seconds, seconds * SETTLE_SHARE, scale) for high, lows in plays]
    return Reading(
        *(
            next((value for each in readings if (value := getattr(each, name)) is not None), None)
            for name in Reading.__dataclass_fields__
        )
    )


def schedule(plays: Iterable[str], options: argparse.Namespace) -> list[list[str]]:
    """By round, what is measured in it; every other round backwards.

    Baselines, which are all but the policies and what their ratios are to, in the first rounds only.
    """
    judged = {ALONE, BOUND, *(f"fikitd-{policy}" for policy in options.policies)}
    return [
        [name for name in plays if name in judged or number < options.baseline_rounds][
            :: -1 if number % 2 else 1
        ]
        for number in range(options.rounds)
    ]


def affordable(most: float, count: int, left: float, scale: float) -> float:
    """Device seconds for each of a count of measurements; ``left``: host seconds for all of them."""
    each = (left / count - BETWEEN_SECONDS) / scale / (1 + SETTLE_SHARE)
    return min(most, max(LEAST_SECONDS, each))


def in_turn(
    plays: Mapping[str, Plays],
    rounds: Sequence[Sequence[str]],
    most: float,
    left: float,
    scale: float,
    tell: Callable[[str, Reading], None] = lambda name, reading: None,
) -> tuple[dict[str, list[Reading]], float]:
    """What each configuration reads in the rounds that name it, and the device seconds that each took.

    ``most`` device seconds each, less where so many host seconds are left for all of it; ``tell`` hears of
    each.
    """
    seconds = affordable(most, sum(len(plays[name]) for names in rounds for name in names), left, scale)
    readings: dict[str, list[Reading]] = {name: [] for name in plays}
    for names in rounds:
        for name in names:
            readings[name].append(read(plays[name], seconds, scale))
            tell(name, readings[name][-1])
    return readings, seconds


def measure(bench: Bench, high: str, low: str, within: float) -> dict[str, Any]:
    """A pair, in every configuration, within so many seconds."""
    begin = time.monotonic()
    bench.gated.clear()
    with prepared(bench, high, low) as plays:
        set_up = time.monotonic() - begin
        rounds = schedule(plays, bench.options)
        readings, seconds = in_turn(plays, rounds, bench.options.seconds, within - set_up, bench.scale)
        if host_only := readings.get("control"):
            readings["control"] = [Reading(each.hp_p50_ms, each.hp_p99_ms, None) for each in host_only]
        explained = bench.explained()
    rows = [row(name, each, readings[ALONE], readings[BOUND]) for name, each in readings.items()]
    return {
        "high": high,
        "low": low,
        "seconds": round(seconds, 3),
        "set_up_seconds": round(set_up, 2),
        "all_seconds": round(time.monotonic() - begin, 2),
        "configurations": [asdict(each) for each in rows],
        "explained": explained,
    }


def middle(values: Iterable[float | None]) -> float | None:
    """The median of those that are there."""
    present = [value for value in values if value is not None]
    return median(present) if present else None


def over(value: float | None, base: float | None) -> float | None:
    """A ratio, where both are there."""
    return value / base if value is not None and base else None


def row(name: str, readings: list[Reading], alone: list[Reading], bound: list[Reading]) -> Row:
    """What the rounds of a configuration say."""

    def ratio(attribute: str, bases: list[Reading]) -> float | None:
        pairs = zip(readings, bases, strict=False)  # a baseline's are of the first rounds
        return middle(over(getattr(one, attribute), getattr(base, attribute)) for one, base in pairs)

    def typical(attribute: str) -> float | None:
        return middle(getattr(each, attribute) for each in readings)

    return Row(
        configuration=name,
        hp_p50_ms=typical("hp_p50_ms"),
        hp_p99_ms=typical("hp_p99_ms"),
        lp_steps_per_second=typical("lp_steps_per_second"),
        hp_p50_ratio=ratio("hp_p50_ms", alone),
        hp_p99_ratio=ratio("hp_p99_ms", alone),
        lp_ratio=ratio("lp_steps_per_second", alone),
        lp_of_bound=ratio("lp_steps_per_second", bound),
        rounds=readings,
    )


def run(options: argparse.Namespace, device: DeviceSpec, program: Path) -> dict[str, Any]:
    """Everything, as what ``--json`` prints; what there is so far goes to ``--output`` after each pair."""
    deadline = time.monotonic() + options.within
    result: dict[str, Any] = {
        **machine.about("sharing", device),
        "rounds": options.rounds,
        "baseline_rounds": options.baseline_rounds,
        "lows": options.lows,
        "skipped": {},
        "pairs": [],
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fikit-sharing-")))
        daemons = stack.enter_context(ExitStack())
        bench = Bench(program, device, folder, options, daemons, skipped=result["skipped"])
        if device.simulated:
            bench.skipped["time-sliced, mps"] = "every process has a simulated GPU of its own"
        else:
            try:
                bench.mps = Mps(folder)
                stack.callback(bench.mps.close)
            except MpsUnavailableError as error:
                bench.skipped["mps"] = str(error)
        bench.start_daemons()
        for number, (high, low) in enumerate(options.pairs):
            within = (deadline - time.monotonic()) / (len(options.pairs) - number)
            measured = attempt(bench, high, low, within)
            if measured is not None:
                result["pairs"].append(measured)
                print(summary(measured), file=sys.stderr, flush=True)
            if options.output:
                options.output.write_text(json.dumps(result, indent=1) + "\n")
    return result


def attempt(bench: Bench, high: str, low: str, within: float) -> dict[str, Any] | None:
    """A pair; without MPS where that fails. None where all of it does; ``skipped`` has the reason."""
    try:
        return measure(bench, high, low, within)
    except MissingExtraError as error:
        bench.skipped[f"{high}:{low}"] = str(error)
        return None
    except MpsUnavailableError as error:
        bench.skipped["mps"] = str(error)
        bench.mps = None
        return attempt(bench, high, low, within)
    except (FikitError, WorkloadError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        bench.skipped[f"{high}:{low}"] = f"{type(error).__name__}: {error}"
        print(f"{high} : {low} failed: {error}", file=sys.stderr, flush=True)
        bench.start_daemons()  # whatever it left behind
        return None


def pairs(text: str, traces: Path | None) -> list[tuple[str, str]]:
    """The pairs that ``--pairs`` names."""
    names = workload_names(traces)
    trained = [name for name in names if name.endswith("_train")]
    inferring = [name for name in names if name not in trained]
    every = [f"{high}:{low}" for high, low in product(inferring, trained)]
    words = {"all": [*every, *REAL], "recorded": every, "real": REAL}.get(text, text.split(","))
    return [(high, low) for high, _, low in (word.partition(":") for word in words)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, build, measure, print."""
    parser = argparse.ArgumentParser(description="Every way of sharing one GPU between two tenants.")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--device", default="auto", help="auto, sim, or the index of a GPU")
    parser.add_argument("--pairs", default=",".join(DEFAULT), help="all, recorded, real, or HP:LP,...")
    parser.add_argument(
        "--policies", default="fikit,strict", help="of fikitd, +mps: under MPS; empty: no fikitd"
    )
    parser.add_argument("--lows", type=int, default=1, help="how many times the low side runs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--baseline-rounds", type=int, help="of what is only compared with; all, if not given"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of the device, for each measurement")
    parser.add_argument(
        "--within", type=float, default=math.inf, help="host seconds for all of it: less for each"
    )
    parser.add_argument("--output", type=Path, help="JSON file, written anew after each pair")
    parser.add_argument("--traces", type=Path, help="a trace file in place of the one that comes along")
    parser.add_argument("--programs", type=Path, help="folder of bench_sharing; built when not given")
    parser.add_argument("--plot", nargs=2, type=Path, metavar=("RESULTS", "IMAGE"), help="draw a result")
    options = parser.parse_args(arguments)
    if options.plot:
        from bench.plot import draw  # needs matplotlib

        draw(json.loads(options.plot[0].read_text()), options.plot[1])
        return
    options.baseline_rounds = options.baseline_rounds or options.rounds
    if min(options.lows, options.rounds, options.baseline_rounds) < 1:
        parser.error("--lows, --rounds and --baseline-rounds are 1 at least")
    if not (0 < options.seconds < math.inf and options.within > 0):
        parser.error("--seconds and --within are above 0")
    options.policies = [word for word in options.policies.split(",") if word]
    device = machine.devices(parser, options.device)[0]
    try:
        options.pairs = pairs(options.pairs, options.traces)
    except WorkloadError as error:
        parser.error(str(error))
    folder = options.programs or build.build(["bench_sharing"])
    result = run(options, device, folder / "bench_sharing")
    print(json.dumps(result, indent=1) if options.json else table(result))


if __name__ == "__main__":
    main()
