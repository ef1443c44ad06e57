"""Real PyTorch programs, natively and under fikitd, alone and beside one another, in one run on one device.

    python -m bench.workloads [--json] [--device sim|auto|INDEX] [--solo all|none|NAME,...]
                              [--pairs none|HP:LP,...] [--lows 1,2,4] [--policies strict,...]
                              [--start-ups NAME] [--rounds N] [--seconds S] [--within S] [--output FILE]

The programs are unmodified (programs/workloads); under fikitd `fikitctl run` starts them. Each is started
once, stays warm and sleeps, and steps when it is its turn. Every round measures everything, every other round
backwards; shown are medians over the rounds of the ratios to what the same workload had natively and alone in
the same round. What fails is left out and named.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from fikit.errors import FikitError

from bench import build, machine
from bench.configurations import settings_of
from bench.daemon import daemon
from bench.mps import Mps, MpsUnavailableError
from bench.report import summary, workloads_table
from bench.sharing import DEFAULT
from bench.workload_processes import MODELS, Place
from bench.workload_rounds import paired, solo, start_ups
from fikitd.device import DeviceSpec
from fikitd.scheduling.settings import SchedulingSection

NAMES: Final = (
    *("resnet50_inf", "bert_inf", "llama1b_decode"),
    *("resnet50_train", "gpt2_train", "bert_train"),
)
HOST_ONLY: Final = "libfikit_host_only.so"
MOST_START_UPS: Final = 2


def run(options: argparse.Namespace, device: DeviceSpec, library: Path) -> dict[str, Any]:
    """Everything, as what ``--json`` prints; what there is so far goes to ``--output`` after each part."""
    deadline = time.monotonic() + options.within
    result: dict[str, Any] = {
        **machine.about("workloads", device),
        "rounds": options.rounds,
        "policies": options.policies,
        "skipped": {},
        "start_ups": None,
        "solo": [],
        "pairs": [],
    }
    skipped: dict[str, str] = result["skipped"]

    def attempt(what: str, part: Callable[[], None]) -> None:
        begin = time.monotonic()
        try:
            part()
        except (FikitError, RuntimeError, OSError, subprocess.SubprocessError) as error:
            skipped[what] = f"{type(error).__name__}: {error}"
        print(
            f"{what}: {time.monotonic() - begin:.1f} s {skipped.get(what, '')}", file=sys.stderr, flush=True
        )
        if options.output:
            options.output.write_text(json.dumps(result, indent=1) + "\n")

    with ExitStack() as keep:
        folder = Path(keep.enter_context(tempfile.TemporaryDirectory(prefix="fikit-workloads-")))
        place = Place(device, options.models, library)
        if device.simulated:
            skipped["time-sliced, mps"] = "every process has a simulated GPU of its own"
        elif options.pairs:
            try:
                place.mps = Mps(folder)
                keep.callback(place.mps.close)
            except MpsUnavailableError as error:
                skipped["mps"] = str(error)
        for policy in options.policies:
            place.sockets[policy] = keep.enter_context(daemon(options.device, settings_of(policy)))
        if options.start_ups != "none":
            count = min(options.rounds, MOST_START_UPS)
            attempt(
                "start-ups",
                lambda: result.update(
                    start_ups=start_ups(place, options.start_ups, options.policies[0], count)
                ),
            )
        # What a part measures in a round, which is how the time is shared out.
        shares = [2 * len(options.solo)] + [_measurements(place, options)] * len(options.pairs)

        def within(number: int) -> float:
            left: float = deadline - time.monotonic()
            return left * shares[number] / sum(shares[number:])

        if options.solo:
            attempt("solo", lambda: result["solo"].extend(solo(place, options, within(0), skipped)))
        for number, (high, low) in enumerate(options.pairs, 1):

            def pair(high: str = high, low: str = low, number: int = number) -> None:
                measured = paired(place, high, low, options, within(number), skipped)
                result["pairs"].extend(measured)
                print(*map(summary, measured), sep="\n", file=sys.stderr, flush=True)

            attempt(f"{high}:{low}", pair)
    return result


def _measurements(place: Place, options: argparse.Namespace) -> int:
    """Of a pair in a round: alone twice, control and natively shared; by policy, alone twice and shared."""
    shared = 0 if place.device.simulated else 1 if place.mps is None else 3
    return 3 + shared + len(place.sockets) * (2 + len(options.lows))


def main() -> None:
    """Parse, build, measure, print."""
    parser = argparse.ArgumentParser(description="Real programs, natively and under fikitd.")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--device", default="auto", help="auto, sim, or the index of a GPU")
    parser.add_argument("--solo", default="all", help="workloads to measure alone: all, none, or NAME,...")
    parser.add_argument("--pairs", default=",".join(DEFAULT), help="none, or HP:LP,...")
    parser.add_argument(
        "--lows", default="1,2,4", help="numbers of low-priority processes beside the high one"
    )
    parser.add_argument(
        "--policies",
        default=SchedulingSection().policy,
        help="of fikitd, parted by commas; NAME@SHARE: with this delay_share",
    )
    parser.add_argument("--start-ups", default="resnet50_inf", help="workload whose start is timed, or none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each measurement, if time allows")
    parser.add_argument(
        "--within", type=float, default=520.0, help="seconds for it all: shorter and fewer rounds"
    )
    parser.add_argument("--output", type=Path, help="JSON file, written anew after each part")
    parser.add_argument("--models", type=Path, default=MODELS, help="a program that defines other WORKLOADS")
    parser.add_argument("--programs", type=Path, help=f"folder of {HOST_ONLY}; built when not given")
    options = parser.parse_args()
    options.models = options.models.resolve()
    options.policies = options.policies.split(",")
    options.lows = [int(word) for word in options.lows.split(",")]
    if min(options.rounds, *options.lows) < 1:
        parser.error("--rounds and --lows are 1 at least")
    options.solo = {"all": list(NAMES), "none": []}.get(options.solo, options.solo.split(","))
    words = [] if options.pairs == "none" else options.pairs.split(",")
    options.pairs = [(high, low) for high, _, low in (word.partition(":") for word in words)]
    device = machine.devices(parser, options.device)[0]
    folder = options.programs or build.build(["fikit_host_only"])
    result = run(options, device, folder / HOST_ONLY)
    print(json.dumps(result, indent=1) if options.json else workloads_table(result))


if __name__ == "__main__":
    main()
