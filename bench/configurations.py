"""Every way of sharing a GPU between two tenants: the processes of each, ready to play."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fikit import protocol
from fikit.control import Connection
from fikitctl.demonstration.shapes import Machine

from bench import plans
from bench.bare import PER_SESSION
from bench.daemon import daemon, explained
from bench.mps import Mps, MpsUnavailableError
from bench.playing import Process, play
from fikitd.device import DeviceSpec

BOUND: Final = "streams"
ALONE: Final = "alone"
LEARN_SHARE: Final = 0.25
"""Of a measurement's time: for fikitd to measure the kernels of a side, which it then keeps."""
_COMPUTE_CAPABILITY: Final = (75, 76)


@dataclass
class Bench:
    """What all pairs share."""

    program: Path
    device: DeviceSpec
    folder: Path
    options: argparse.Namespace
    daemons: ExitStack
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

    def start_daemons(self) -> None:
        """One for each policy, in place of those there are."""
        self.daemons.close()
        self.sockets.clear()
        for policy in self.options.policies:
            started = daemon(self.options.device, settings_of(policy))
            self.sockets[policy] = self.daemons.enter_context(started)

    def on_driver(
        self, *lows: str, high: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Process:
        """A process with a context of its own; the workloads are threads of it, the high one's urgent."""
        plans = [*([f"+{self.plan(high)}"] if high else []), *map(self.plan, lows)]
        return Process(
            self.program,
            ["driver", self.scale, self.library, self.device.ordinal, *plans],
            environment=environment or self.environment,
            plays=len(plans),
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
        return {policy: explained(self.sockets[policy], session) for policy, session in self.gated.items()}


Plays = list[tuple[Process | None, list[Process]]]
"""Which processes play together as high and low side; what several plays read is put together."""


@contextmanager
def prepared(bench: Bench, high: str, low: str) -> Iterator[dict[str, Plays]]:
    """Every configuration of a pair, its processes ready."""
    with ExitStack() as keep:

        def kept(process: Process) -> Process:
            keep.callback(process.close)
            return process

        def beside(environment: Mapping[str, str] | None = None) -> list[Process]:
            return [kept(bench.on_driver(low, environment=environment)) for _ in range(lows)]

        lows = bench.options.lows
        alone_high, alone_low = kept(bench.on_driver(high)), kept(bench.on_driver(*[low] * lows))
        both = kept(bench.on_driver(*[low] * lows, high=high))
        host_only = [kept(bench.nowhere(low)) for _ in range(lows)]
        waited = [alone_high, alone_low, both, *host_only]
        plays: dict[str, Plays] = {
            ALONE: [(alone_high, []), (None, [alone_low])],
            "control": [(alone_high, host_only)],
            BOUND: [(both, [both])],
        }
        if not bench.device.simulated:
            apart = beside() if lows > 1 else [alone_low]
            waited += apart if lows > 1 else []
            plays["time-sliced"] = [(alone_high, apart)]
        clients = []
        if bench.mps is not None:
            base = bench.mps.environment
            first = kept(bench.on_driver(high, environment=base))
            equal, lesser = beside(base), beside({**base, "CUDA_MPS_CLIENT_PRIORITY": "1"})
            clients = [first, *equal, *lesser]
            plays["mps"] = [(first, equal)]
            plays["mps-priority"] = [(first, lesser)]
        sessions = []
        for policy in bench.sockets:
            mine = kept(bench.in_session(policy, high, "high", keep))
            others = [kept(bench.in_session(policy, low, "low", keep)) for _ in range(lows)]
            plays[f"fikitd-{policy}-alone"] = [(mine, []), (None, others)]
            plays[f"fikitd-{policy}"] = [(mine, others)]
            sessions += [mine, *others]
        for process in [*waited, *sessions]:
            process.await_ready()
        if bench.mps is not None:
            await_clients(bench.mps, clients)
        for session in sessions:
            play(None, [session], bench.options.seconds * LEARN_SHARE, 0.0, bench.scale)
        yield plays


def await_clients(mps: Mps, clients: Sequence[Process]) -> None:
    """Wait until these processes are ready. Raises MpsUnavailableError where they are not clients then."""
    try:
        for client in clients:
            client.await_ready()
    except RuntimeError as error:
        raise MpsUnavailableError(f"a client did not start: {error}") from None
    mps.expect_clients(client.pid for client in clients)


def settings_of(policy: str) -> str:
    """The configuration of a daemon with a policy.

    ``@0.2`` behind its name: with this ``delay_share``; ``+mps`` last: its executors are clients of MPS.
    """
    name, _, mps = policy.partition("+")
    name, _, share = name.partition("@")
    partitions = "partitions = [0.73]\n" if name == "strict" else ""
    delay = f"delay_share = {float(share)}\n" if share else ""
    scheduling = f'[scheduling]\npolicy = "{name}"\n{partitions}{delay}'
    return f'{scheduling}[executor]\nmps = "{"auto" if mps else "off"}"\n'
