"""The policies' own code against recorded workloads, in virtual time.

    python -m bench.replay TRACES.json.gz --hp NAME[,NAME] --lp NAME[,NAME] [--policy P] [--seconds S]

High- and low-priority workloads of a trace file (the format of ``fikitctl demo``'s) run on a model of one
H200, each in a closed loop with the host gaps that were recorded: every operation launched at its time or
as soon as it can be, then all of it waited for. ``fikit``, ``strict`` and ``exclusive`` (one low-priority
operation at a time, none beside high-priority work) pass a model of the dispatch core around the very
policy and profile, which starts knowing nothing; ``streams`` (stream priorities) and ``fifo`` (equal ones)
launch for themselves, without a gate. The first ``--warmup`` seconds are not counted.

Reported, each side against itself without the other: the high side's step time (the worst of its
workloads), the low side's throughput (of operations at hand when the time begins or ends, the part within it
counts), and the latter also against policy ``streams`` (1 where that leaves it nothing). The two runs alone
and ``streams`` last 2 seconds, or 40 iterations of the longest workload, at most: they repeat. The
same input gives the same output.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

from fikitctl.demonstration.workloads import WorkloadError, load_workloads, workload_names
from fikitctl.plain import one_line

from bench.replayed import POLICIES, Replayer, ReplayError, Rule, Setup


def _names(text: str) -> list[str]:
    try:
        return [name for row in csv.reader([text], strict=True) for name in row if name]
    except csv.Error as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in _names(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no list of numbers of SMs") from None


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(prog="bench.replay", description=str(__doc__).partition("\n")[0])
    options.add_argument("traces", nargs="?", type=Path, help="trace file (default: ours)")
    options.add_argument(
        "--hp", type=_names, help="high-priority workloads, parted by commas; in quotes what has some"
    )
    options.add_argument("--lp", type=_names, help="low-priority ones; a name may stand there several times")
    options.add_argument("--policy", choices=POLICIES, default=Setup.policy)
    options.add_argument(
        "--seconds", type=float, default=Setup.seconds, help="simulated time that is counted"
    )
    options.add_argument("--warmup", type=float, default=Setup.warmup, help="simulated time before that")
    options.add_argument(
        "--seed", type=int, default=Setup.seed, help="of the small variations of launches and blocks"
    )
    options.add_argument(
        "--told-every",
        type=int,
        default=Setup.told_every,
        metavar="N",
        help="of the high side's waits the policy is told of one in N; 0: of none, as of who looks at memory",
    )
    options.add_argument(
        "--polled", action="store_true", help="the high side waits by looking at memory, after its first wait"
    )
    options.add_argument("--json", action="store_true", help="one line of JSON")
    options.add_argument("--list", action="store_true", help="the workloads of the file")
    gate = options.add_argument_group("what the operator sets")
    gate.add_argument("--in-flight-us", type=float, default=0.0, help="gated work in flight; 0: the default")
    gate.add_argument("--partitions", type=_sizes, help="SMs of the partitions, the largest first")
    gate.add_argument(
        "--delay-share", type=float, default=Setup.delay_share, help="of a step: the delay it may be caused"
    )
    gate.add_argument(
        "--delay-least-us", type=float, default=Setup.delay_least_us, help="but at least this much"
    )
    fixed = options.add_argument_group("fixed rules, with the policies fifo and streams")
    fixed.add_argument("--confine", type=int, default=0, metavar="SMS", help="all low-priority kernels")
    fixed.add_argument("--confine-long", type=int, default=0, metavar="SMS", help="those with long blocks")
    fixed.add_argument("--long-block-us", type=float, default=Rule.long_block_us, help="what a long block is")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Replay, and print. 2: the input is wrong."""
    options = parser().parse_args(arguments)
    try:
        if options.list:
            print("\n".join(map(one_line, workload_names(options.traces))))
            return 0
        if not options.hp or not options.lp:
            raise ReplayError("--hp and --lp name the workloads; --list shows those of the file")
        names = dict.fromkeys([*options.hp, *options.lp])
        replayer = Replayer(load_workloads(names, options.traces))
        rule = Rule(options.in_flight_us, options.long_block_us, options.confine_long, options.confine)
        setup = Setup(
            policy=options.policy,
            seconds=options.seconds,
            warmup=options.warmup,
            seed=options.seed,
            rule=rule,
            partitions=options.partitions,
            delay_share=options.delay_share,
            delay_least_us=options.delay_least_us,
            told_every=options.told_every,
            polled=options.polled,
        )
        result = replayer.compare(options.hp, options.lp, setup)
    except (WorkloadError, ReplayError) as error:
        hint = f" ({error.hint})" if isinstance(error, WorkloadError) and error.hint else ""
        print(f"bench.replay: {one_line(f'{error}{hint}')}", file=sys.stderr)
        return 2
    print(json.dumps(result) if options.json else _table(result))
    return 0


def _table(result: dict[str, Any]) -> str:
    lines = []
    for name, value in result.items():
        shown = f"{value:.3f}" if isinstance(value, float) else json.dumps(value)
        lines.append(f"{name:14} {shown}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
