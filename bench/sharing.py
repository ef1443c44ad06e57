"""Two tenants of one GPU, every way of sharing it, in one run on one device.

    python -m bench.sharing [--json] [--device sim|auto|INDEX] [--pairs all|recorded|real|HP:LP,...]
                            [--policies fikit,strict] [--rounds N] [--seconds S]
    python -m bench.sharing --plot results.json out.svg

The high-priority side (HP) and the low-priority side (LP) are processes that play recorded workloads as timed
kernels, or real kernels (plans.py). Every round measures every configuration; shown are medians over the
rounds of the ratios to what the same side had alone in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Final

from fikit import protocol
from fikit.control import Connection
from fikit.errors import MissingExtraError
from fikitctl.demonstration.shapes import Machine
from fikitctl.demonstration.workloads import workload_names
from msgspec import to_builtins

from bench import build, machine, plans
from bench.bare import PER_SESSION
from bench.daemon import daemon
from bench.mps import Mps, MpsUnavailableError
from bench.playing import Process, Reading, play
from fikitd.configuration import DeviceSection
from fikitd.device import DeviceSpec, choose

DEFAULT: Final = ("resnet50_inf:gpt2_train", "bert_inf:resnet50_train", "llama1b_decode:bert_train")
REAL: Final = ("gemm_service:gemm_chain", "gemm_service:memory_chain", "gemm_service:long_blocks")
BOUND: Final = "streams"
LEARN_SHARE: Final = 0.25
"""Of a measurement's time: for fikitd to measure the kernels of a side, which it then keeps."""
SETTLE_SHARE: Final = 0.05
"""Likewise: played before anything is looked at."""
_COMPUTE_CAPABILITY: Final = (75, 76)


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
    rounds: list[Reading]


@dataclass
class Bench:
    """What all pairs share."""

    program: Path
    device: DeviceSpec
    folder: Path
    options: argparse.Namespace
    plans: dict[str, Path] = field(default_factory=dict)
    sockets: dict[str, Path] = field(default_factory=dict)
    """Of the daemons, by policy."""
    gated: dict[str, str] = field(default_factory=dict)
    """The high side's session in each of them."""
    mps: Mps | None = None
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """Host seconds per device second."""
        return self.device.time_scale

    @property
    def environment(self) -> dict[str, str]:
        """Of processes that use the driver themselves."""
        return {**os.environ, **self.device.environment}

    def attributes(self, numbers: Iterable[int]) -> dict[int, int]:
        """CUdevice_attributes."""
        wanted = list(numbers)
        command = [str(self.program), "attributes", self.library, str(self.device.ordinal), *map(str, wanted)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True)
        return dict(zip(wanted, map(int, done.stdout.split()), strict=True))

    @property
    def library(self) -> str:
        """The driver's."""
        return self.device.library or "libcuda.so.1"

    def plan(self, workload: str) -> Path:
        """The plan of a workload."""
        if workload not in self.plans:
            major, minor = self.attributes(_COMPUTE_CAPABILITY).values()
            shape = Machine.of(self.attributes(Machine.ATTRIBUTES))
            self.plans[workload] = plans.write(
                workload, shape, f"compute_{major}{minor}", self.options.traces, self.folder
            )
        return self.plans[workload]

    def on_driver(self, *workloads: str, environment: Mapping[str, str] | None = None) -> Process:
        """A process with a context of its own; two workloads are threads of it."""
        return Process(
            self.program,
            ["driver", self.scale, self.library, self.device.ordinal, *map(self.plan, workloads)],
            environment=environment or self.environment,
            plays=len(workloads),
        )

    def nowhere(self, workload: str) -> Process:
        """A process that does the host's work alone."""
        return Process(
            self.program, ["nowhere", self.scale, self.plan(workload)], environment=self.environment
        )

    def in_session(self, policy: str, workload: str, priority: str, keep: ExitStack) -> Process:
        """A process with a session of the daemon that has the policy."""
        connection = keep.enter_context(Connection(self.sockets[policy], client="bench", timeout=60.0))
        level = protocol.PRIORITIES[priority]
        opened = protocol.OpenSession(name=workload, priority=level, gpu=self.device.index)
        session = connection.expect(protocol.SessionOpened, opened)
        descriptors = connection.take_descriptors(PER_SESSION)
        if priority == "high":
            self.gated[policy] = session.session
        return Process(
            self.program,
            ["session", self.scale, *descriptors, self.plan(workload)],
            environment=self.environment,
            descriptors=descriptors,
        )

    def explained(self) -> dict[str, Any]:
        """How each daemon's gate treated the pair, over all rounds."""
        told = {}
        for policy, session in self.gated.items():
            with Connection(self.sockets[policy], client="bench", timeout=60.0) as connection:
                told[policy] = to_builtins(
                    connection.expect(protocol.Explained, protocol.Explain(session=session))
                )
        return told


Plays = list[tuple[Process | None, Process | None]]
"""Which processes play together as high and low side; what several plays read is put together."""


@contextmanager
def prepared(bench: Bench, high: str, low: str) -> Iterator[dict[str, Plays]]:
    """Every configuration of a pair, its processes ready."""
    with ExitStack() as keep:

        def kept(process: Process) -> Process:
            keep.callback(process.close)
            return process

        alone_high, alone_low = kept(bench.on_driver(high)), kept(bench.on_driver(low))
        both = kept(bench.on_driver(high, low))
        host_only = kept(bench.nowhere(low))
        waited = [alone_high, alone_low, both, host_only]
        plays: dict[str, Plays] = {
            "alone": [(alone_high, None), (None, alone_low)],
            "control": [(alone_high, host_only)],
            BOUND: [(both, both)],
        }
        if not bench.device.simulated:
            plays["time-sliced"] = [(alone_high, alone_low)]
        clients = []
        if bench.mps is not None:
            base = bench.mps.environment
            clients = [
                kept(bench.on_driver(high, environment=base)),
                kept(bench.on_driver(low, environment=base)),
                kept(bench.on_driver(low, environment={**base, "CUDA_MPS_CLIENT_PRIORITY": "1"})),
            ]
            plays["mps"] = [(clients[0], clients[1])]
            plays["mps-priority"] = [(clients[0], clients[2])]
        sessions = []
        for policy in bench.sockets:
            sides = [
                kept(bench.in_session(policy, high, "high", keep)),
                kept(bench.in_session(policy, low, "low", keep)),
            ]
            plays[f"fikitd-{policy}-alone"] = [(sides[0], None), (None, sides[1])]
            plays[f"fikitd-{policy}"] = [(sides[0], sides[1])]
            sessions += sides
        for process in [*waited, *sessions]:
            process.await_ready()
        if bench.mps is not None:
            await_clients(bench.mps, clients)
        for session in sessions:
            play(None, session, bench.options.seconds * LEARN_SHARE, 0.0, bench.scale)
        yield plays


def await_clients(mps: Mps, clients: Sequence[Process]) -> None:
    """Wait until these processes are ready. Raises MpsUnavailableError where they are not clients then."""
    try:
        for client in clients:
            client.await_ready()
    except RuntimeError as error:
        raise MpsUnavailableError(f"a client did not start: {error}") from None
    mps.expect_clients(client.pid for client in clients)


def read(plays: Plays, bench: Bench) -> Reading:
    """One round of a configuration."""
    seconds, scale = bench.options.seconds, bench.scale
    readings = [play(high, low, seconds, seconds * SETTLE_SHARE, scale) for high, low in plays]
    return Reading(
        *(
            next((value for each in readings if (value := getattr(each, name)) is not None), None)
            for name in Reading.__dataclass_fields__
        )
    )


def measure(bench: Bench, high: str, low: str) -> dict[str, Any]:
    """A pair, in every configuration."""
    with prepared(bench, high, low) as plays:
        readings: dict[str, list[Reading]] = {name: [] for name in plays}
        for number in range(bench.options.rounds):
            for name in list(plays)[:: -1 if number % 2 else 1]:
                readings[name].append(read(plays[name], bench))
        if host_only := readings.get("control"):
            readings["control"] = [Reading(each.hp_p50_ms, each.hp_p99_ms, None) for each in host_only]
        explained = bench.explained()
    rows = [row(name, each, readings["alone"], readings[BOUND]) for name, each in readings.items()]
    return {
        "high": high,
        "low": low,
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
        pairs = zip(readings, bases, strict=True)
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


def settings_of(policy: str) -> str:
    """The configuration of a daemon with a policy; ``+mps``: its executors are clients of MPS."""
    name, _, mps = policy.partition("+")
    partitions = "partitions = [0.91, 0.79, 0.67, 0.49, 0.25]\n" if name == "fikit" else ""
    scheduling = f'[scheduling]\npolicy = "{name}"\n{partitions}'
    return f'{scheduling}[executor]\nmps = "{"auto" if mps else "off"}"\n'


def run(options: argparse.Namespace, device: DeviceSpec, program: Path) -> dict[str, Any]:
    """Everything, as what ``--json`` prints."""
    measured = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fikit-sharing-")))
        bench = Bench(program, device, folder, options)
        if device.simulated:
            bench.skipped["time-sliced, mps"] = "every process has a simulated GPU of its own"
        else:
            try:
                bench.mps = Mps(folder)
                stack.callback(bench.mps.close)
            except MpsUnavailableError as error:
                bench.skipped["mps"] = str(error)
        for policy in options.policies:
            bench.sockets[policy] = stack.enter_context(daemon(options.device, settings_of(policy)))
        for high, low in options.pairs:
            print(f"{high} : {low}", file=sys.stderr, flush=True)
            try:
                measured.append(measure(bench, high, low))
            except MissingExtraError as error:
                bench.skipped[f"{high}:{low}"] = str(error)
            except MpsUnavailableError as error:
                bench.skipped["mps"] = str(error)
                bench.mps = None
                measured.append(measure(bench, high, low))
    return {
        "benchmark": "sharing",
        "commit": machine.commit(),
        "machine": machine.machine(),
        "device": device.name,
        "driver": machine.driver_version(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "skipped": bench.skipped,
        "pairs": measured,
    }


def table(result: dict[str, Any]) -> str:
    """The same for people."""
    head = (
        f"{'':24} {'HP p50 ms':>10} {'p99 ms':>8} {'LP/s':>8} {'p50':>7} {'p99':>7} {'LP':>7} {'of bound':>9}"
    )
    lines = [f"{result['device']}, driver {result['driver'] or 'none'}, commit {result['commit']}"]
    lines += [f"left out: {name}: {reason}" for name, reason in result["skipped"].items()]

    def shown(value: float | None, width: int, places: int = 3) -> str:
        return f"{'-' if value is None else f'{value:.{places}f}':>{width}}"

    for pair in result["pairs"]:
        lines += ["", f"{pair['high']} : {pair['low']}", head]
        for each in pair["configurations"]:
            figures = [
                shown(each["hp_p50_ms"], 10),
                shown(each["hp_p99_ms"], 8),
                shown(each["lp_steps_per_second"], 8, 1),
                *(shown(each[name], 7) for name in ("hp_p50_ratio", "hp_p99_ratio", "lp_ratio")),
                shown(each["lp_of_bound"], 9),
            ]
            lines.append(" ".join([f"{each['configuration']:24}", *figures]))
    return "\n".join(lines)


def pairs(text: str, traces: Path | None) -> list[tuple[str, str]]:
    """The pairs that ``--pairs`` names."""
    names = workload_names(traces)
    trained = [name for name in names if name.endswith("_train")]
    inferring = [name for name in names if name not in trained]
    every = [f"{high}:{low}" for high, low in product(inferring, trained)]
    words = {"all": [*every, *REAL], "recorded": every, "real": REAL}.get(text, text.split(","))
    return [(high, low) for high, _, low in (word.partition(":") for word in words)]


def main() -> None:
    """Parse, build, measure, print."""
    parser = argparse.ArgumentParser(description="Every way of sharing one GPU between two tenants.")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--device", default="auto", help="auto, sim, or the index of a GPU")
    parser.add_argument("--pairs", default=",".join(DEFAULT), help="all, recorded, real, or HP:LP,...")
    parser.add_argument(
        "--policies", default="fikit,strict", help="of fikitd, +mps: under MPS; empty: no fikitd"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of the device, for each measurement")
    parser.add_argument("--traces", type=Path, help="a trace file in place of the one that comes along")
    parser.add_argument("--programs", type=Path, help="folder of bench_sharing; built when not given")
    parser.add_argument("--plot", nargs=2, type=Path, metavar=("RESULTS", "IMAGE"), help="draw a result")
    options = parser.parse_args()
    if options.plot:
        from bench.plot import draw  # needs matplotlib

        draw(json.loads(options.plot[0].read_text()), options.plot[1])
        return
    options.pairs = pairs(options.pairs, options.traces)
    options.policies = [word for word in options.policies.split(",") if word]
    device = choose(options.device, DeviceSection())[0]
    folder = options.programs or build.build(["bench_sharing"])
    result = run(options, device, folder / "bench_sharing")
    print(json.dumps(result, indent=1) if options.json else table(result))


if __name__ == "__main__":
    main()
