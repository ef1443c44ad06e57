"""Runs the native replay (bench/native/replay_main.cpp) and makes ratios of what it says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from math import fsum, prod
from pathlib import Path
from typing import Any, Final

from fikitctl.demonstration.workloads import Operation, Workload

from bench.real import Interference, Interfering
from fikitd.executor.set_up import partition_sizes
from fikitd.scheduling.settings import SchedulingSection

POLICIES: Final = ("fikit", "fifo", "streams", "strict", "exclusive")
_MULTIPROCESSORS: Final = 132
DEFAULTS: Final = SchedulingSection()
PARTITIONS: Final = {
    policy: tuple(partition_sizes(_MULTIPROCESSORS, shares))
    for policy, shares in {"fikit": DEFAULTS.partitions, "strict": [0.73]}.items()
}
"""What there is when nothing is said: the default's; strict is at its best with that. Others have none."""
REFERENCE_SECONDS: Final = 2.0
REFERENCE_ITERATIONS: Final = 40
"""How long the runs last that a policy's is compared to, at most: they repeat. As long as so many iterations
of the longest workload, where that is more."""
_UNITS: Final = {"gpu_memset": "on_device", "to_device": "to_device", "to_host": "to_host"}
_LONGEST_SECONDS: Final = 1e5


class ReplayError(Exception):
    """The replay cannot be run as asked."""


@dataclass(frozen=True)
class Varied:
    """A program whose iterations differ, in turn; kernels of one name and shape are the same in all."""

    name: str
    iterations: tuple[Workload, ...]
    graphs: bool = False
    """Each iteration is one graph, and one launch."""

    @property
    def iter_ms(self) -> float:
        """What one round of all its iterations takes."""
        return sum(each.iter_ms for each in self.iterations)


@dataclass(frozen=True)
class Rule:
    """What a fixed rule does with low-priority kernels that pass no gate; 0: nothing."""

    in_flight_us: float = 0.0
    long_block_us: float = 20.0
    confine_long: int = 0
    confine: int = 0


@dataclass(frozen=True)
class Setup:
    """How to run it."""

    policy: str = "fikit"
    seconds: float = 10.0
    warmup: float = 1.0
    seed: int = 1
    rule: Rule = field(default_factory=Rule)
    partitions: tuple[int, ...] | None = None
    delay_share: float = DEFAULTS.delay_share
    delay_least_us: float = DEFAULTS.delay_least_us
    pace: float = 1.0
    """The low side's blocks last so many times as long as recorded."""
    spared_us: float = 0.0
    """What a launch would take the high side's program natively (see native/scheduling/fikit.hpp)."""
    told_every: int = 1
    """Of the high side's waits the policy is told of one in so many; 0: of none."""
    polled: bool = False
    """The high side waits by looking at memory that its last kernel writes: it issues no mark for that, and
    tells of its first wait alone."""

    def sizes(self) -> tuple[int, ...]:
        """The partitions there are."""
        return PARTITIONS.get(self.policy, ()) if self.partitions is None else self.partitions

    def check(self) -> None:
        """Raise ReplayError for what cannot be."""
        sizes = [*self.sizes(), *filter(None, (self.rule.confine, self.rule.confine_long))]
        if not all(0 < size < _MULTIPROCESSORS for size in sizes):
            raise ReplayError(f"a partition has 1 to {_MULTIPROCESSORS - 1} SMs")
        if len(self.sizes()) > 6 or list(self.sizes()) != sorted(set(self.sizes()), reverse=True):
            raise ReplayError("name up to 6 partitions, the largest first")
        if not 1e-9 <= self.seconds <= _LONGEST_SECONDS or not 0 <= self.warmup <= _LONGEST_SECONDS:
            raise ReplayError("--seconds is from 1e-9 to 100000, --warmup from 0")
        for option, value, most in (
            ("--in-flight-us", self.rule.in_flight_us, _LONGEST_SECONDS * 1e6),
            ("--long-block-us", self.rule.long_block_us, _LONGEST_SECONDS * 1e6),
            ("--delay-least-us", self.delay_least_us, _LONGEST_SECONDS * 1e6),
            ("--delay-share", self.delay_share, 1e3),
            ("--seed", self.seed, 2**64 - 1),
            ("--told-every", self.told_every, 2**64 - 1),
        ):
            if not 0 <= value <= most:
                raise ReplayError(f"{option} is from 0 to {int(most)}, not {value}")
        gateless = self.policy in ("fifo", "streams")
        if gateless and self.partitions is not None:
            raise ReplayError(
                f"policy {self.policy} has no gate: --confine and --confine-long name its sizes"
            )
        if not gateless and (self.rule.confine or self.rule.confine_long):
            raise ReplayError(f"policy {self.policy} has a gate: --partitions names its sizes")


def percentile(values: Sequence[float], share: float) -> float:
    """The value at that share of the sorted values."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class Replayer:
    """Workloads, and runs of them."""

    def __init__(self, workloads: Iterable[Workload | Varied]) -> None:
        workloads = list(workloads)
        self._names = {workload.name: f"w{number}" for number, workload in enumerate(workloads)}
        self._longest = max(workload.iter_ms for workload in workloads) / 1e3
        self._programs = "".join(_program(self._names[each.name], each) for each in workloads)
        self._program = program()
        self._references: dict[object, list[dict[str, Any]]] = {}

    def run(self, runs: Sequence[tuple[Sequence[str], Sequence[str], Setup]]) -> list[dict[str, Any]]:
        """The raw results of runs: high side, low side, how."""
        lines = []
        for high, low, setup in runs:
            setup.check()
            rule = setup.rule
            words = [
                self._side(high), self._side(low), setup.policy, setup.seconds, setup.warmup, setup.seed,
                round(rule.in_flight_us * 1e3), round(rule.long_block_us * 1e3),
                rule.confine_long, rule.confine, setup.delay_share, round(setup.delay_least_us * 1e3),
                ",".join(map(str, setup.sizes())) or "-", setup.pace,
                round(setup.spared_us * 1e3), setup.told_every,
                int(setup.polled),
            ]  # fmt: skip
            lines.append("run " + " ".join(map(str, words)) + "\n")
        done = subprocess.run(
            [self._program],
            input=self._programs + "".join(lines),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ReplayError(done.stderr.strip() or f"the replay ended with {done.returncode}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def _side(self, names: Sequence[str]) -> str:
        return ",".join(self._names[name] for name in names) or "-"

    def compare(self, high: Sequence[str], low: Sequence[str], setup: Setup) -> dict[str, Any]:
        """What the policy does to both sides."""
        enough = max(REFERENCE_SECONDS, REFERENCE_ITERATIONS * self._longest)
        reference = replace(
            setup, policy="streams", seconds=min(setup.seconds, enough), warmup=min(setup.warmup, 0.2),
            rule=Rule(), partitions=None,
        )  # fmt: skip
        key = (tuple(high), tuple(low), reference)
        runs: list[tuple[Sequence[str], Sequence[str], Setup]] = [(high, low, setup)]
        if key not in self._references:
            runs += [(*sides, reference) for sides in ((high, ()), ((), low), (high, low))]
        own, *references = self.run(runs)
        if references:
            self._references[key] = references
        both = (own, *self._references[key])
        return {
            "policy": setup.policy,
            "hp": list(high),
            "lp": list(low),
            **ratios(*both),
            "seconds": setup.seconds,
        }


def ratios(
    both: dict[str, Any], high: dict[str, Any], low: dict[str, Any], bound: dict[str, Any]
) -> dict[str, Any]:
    """A run's figures, against those of each side alone and those under stream priorities."""

    def steps(run: dict[str, Any]) -> list[list[float]]:
        """Of each high-priority workload, each step's length by what that kind of step takes alone."""
        found = []
        for tenant, own in zip(run["high"], high["high"], strict=True):
            usual: dict[int, list[float]] = {}
            for kind, length in zip(own["kinds"], own["iterations_ns"], strict=True):
                usual.setdefault(kind, []).append(length)
            mean = {kind: fsum(all_of) / len(all_of) for kind, all_of in usual.items()}
            lengths = zip(tenant["kinds"], tenant["iterations_ns"], strict=True)
            found.append([length / mean[kind] for kind, length in lengths if kind in mean])
            if not found[-1]:
                raise ReplayError(
                    "no iteration of a high-priority workload ended in time: use more --seconds"
                )
        return found

    with_low, alone = steps(both), steps(high)

    def ratio(share: float) -> float:
        pairs = zip(with_low, alone, strict=True)
        return max(percentile(mine, share) / percentile(own, share) for mine, own in pairs)

    def work(run: dict[str, Any]) -> float:
        return sum(float(tenant["work"]) for tenant in run["low"])

    if not work(low):
        raise ReplayError("no low-priority workload has done anything in time: use more --seconds")
    decisions: dict[str, Any] = {
        kind: int(sum(tenant[kind] for tenant in both["low"])) for kind in ("whole", "confined", "waited")
    }
    refused = [tenant["refused"] for tenant in both["low"]]
    decisions["refused"] = {why: sum(counts[why] for counts in refused) for why in refused[0]}
    suffered = both["high"]
    return {
        "hp_p50_ratio": round(ratio(0.5), 4),
        "hp_p99_ratio": round(ratio(0.99), 4),
        "lp_ratio": round(work(both) / work(low), 4),
        # Beside what never leaves the GPU there may be nothing to get: that is all of it.
        "lp_of_bound": round(work(both) / work(bound), 4) if work(bound) else 1.0,
        "fill_share": round(both["filled_ns"] / both["idle_ns"], 4) if both["idle_ns"] else 0.0,
        "decisions": decisions,
        "delays": {
            "steps": int(sum(tenant["steps"] for tenant in suffered)),
            "count": int(sum(tenant["delays"] for tenant in suffered)),
            "sum_us": round(sum(float(tenant["delay_ns"]) for tenant in suffered) / 1e3, 1),
            "worst_us": round(max(tenant["worst_delay_ns"] for tenant in suffered) / 1e3, 1),
            "over_bound": int(sum(tenant["over_bound"] for tenant in suffered)),
        },
        "prediction_hit_rate": round(
            sum(tenant["met"] for tenant in suffered)
            / max(1, sum(tenant["predicted"] for tenant in suffered)),
            4,
        ),
    }


def program() -> Path:
    """The native replay, as it was installed with fikitd. Raises ReplayError."""
    package = find_spec("fikitd")
    for folder in package.submodule_search_locations or () if package else ():
        found = Path(folder, "scheduling", "lib", "replay")
        if found.is_file():
            return found
    raise ReplayError("the native replay is not installed: pip install . in the checkout")


def _program(name: str, workload: Workload | Varied) -> str:
    iterations = workload.iterations if isinstance(workload, Varied) else (workload,)
    keys: dict[object, int] = {}
    streams: dict[int, int] = {}
    parts = (f" {len(each.operations)} {round(each.pause_us * 1e3)}" for each in iterations)
    lines = [f"program {name}{''.join(parts)}\n"]
    graphs = isinstance(workload, Varied) and workload.graphs
    ends = {id(each.operations[-1]) for each in iterations} if graphs else set()
    for each in (operation for iteration in iterations for operation in iteration.operations):
        key = keys.setdefault((each.name, each.grid, each.block, each.shared_bytes), len(keys) + 1)
        stream = 0 if graphs else streams.setdefault(each.stream, len(streams))
        lasts = max(1, round(each.dur_us * 1e3))  # what counts for nothing could not be compared
        lines.append(f"{_unit(each)} {key} {stream} {round(each.at_us * 1e3)} {lasts} ")
        lines.append(f"{prod(each.grid)} {prod(each.block)} {each.regs} {each.shared_bytes} 0 ")
        does = each.interference if isinstance(each, Interfering) else Interference()
        lines.append(f"{does.pressure} {does.sensitivity} {does.crowding} {does.confined} ")
        lines.append(f"{int(graphs and id(each) not in ends)}\n")
    return "".join(lines)


def _unit(operation: Operation) -> str:
    if operation.kind == "kernel":
        return "kernel"
    return _UNITS.get(operation.copy or operation.kind, "on_device")
