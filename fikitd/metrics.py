"""What Prometheus is told: every metric declared once, with its help; values are computed when asked for.

Labels are tenant and gpu, never a pid, a session or an executor, so that the number of series stays small.
Times are device time. The names follow prometheus.io/docs/practices/naming.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from fikit.protocol import GateStatistics, Usage
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from fikitd.jobs.model import OVER, TRANSITIONS
from fikitd.tenants.accounts import total, total_gate

if TYPE_CHECKING:
    from fikitd.daemon import Daemon

NANOSECONDS: Final = 1e9
USAGE_COUNTERS: Final = {
    "fikit_gpu_seconds": ("gpu_ns", NANOSECONDS, "Device time that operations took."),
    "fikit_launches": ("launches", 1, "Kernels launched."),
    "fikit_operations": ("operations", 1, "Operations issued."),
    "fikit_copied_bytes": ("bytes_copied", 1, "Bytes copied."),
    "fikit_gate_waits": ("gate_waits", 1, "Operations that waited at the gate."),
    "fikit_gate_wait_seconds": ("gate_wait_ns", NANOSECONDS, "Time that operations waited at the gate."),
}
USAGE_GAUGES: Final = {
    "fikit_memory_bytes": ("memory_bytes", 1, "Device memory in use."),
    "fikit_queued_operations": ("queued", 1, "Operations that wait to be issued."),
}
GATE_COUNTERS: Final = {
    "fikit_filled_operations": ("filled", 1, "Operations issued beside high-priority work, unconfined."),
    "fikit_filled_seconds": (
        "filled_ns",
        NANOSECONDS,
        "Device time of operations issued beside high-priority work, unconfined.",
    ),
    "fikit_confined_operations": (
        "confined",
        1,
        "Operations confined to some multiprocessors beside high-priority work.",
    ),
    "fikit_confined_seconds": (
        "confined_ns",
        NANOSECONDS,
        "Device time of operations confined to some multiprocessors beside high-priority work.",
    ),
    "fikit_idle_seconds": ("idle_ns", NANOSECONDS, "Time that high-priority sessions left the GPU idle."),
    "fikit_idle_filled_seconds": (
        "idle_filled_ns",
        NANOSECONDS,
        "Time that high-priority sessions left the GPU idle and others had it, unconfined.",
    ),
    "fikit_idle_confined_seconds": (
        "idle_confined_ns",
        NANOSECONDS,
        "Time that high-priority sessions left the GPU idle and others had some multiprocessors.",
    ),
    "fikit_beside_seconds": (
        "beside_ns",
        NANOSECONDS,
        "What high-priority kernels that ran beside gated work take without it.",
    ),
    "fikit_slowed_seconds": (
        "slowed_ns",
        NANOSECONDS,
        "What high-priority kernels that ran beside gated work took longer for it.",
    ),
    "fikit_caused_beside_seconds": (
        "caused_beside_ns",
        NANOSECONDS,
        "What high-priority kernels that ran beside this tenant's gated work take without it.",
    ),
    "fikit_caused_slowed_seconds": (
        "caused_slowed_ns",
        NANOSECONDS,
        "What high-priority kernels that ran beside this tenant's gated work took longer for it.",
    ),
    "fikit_steps": ("steps", 1, "Steps of high-priority sessions."),
    "fikit_steps_over_bound": ("over_bound", 1, "Steps that were delayed by more than the bound."),
    "fikit_predicted_launches": ("predicted", 1, "Launches whose time was predicted."),
    "fikit_met_predictions": ("met", 1, "Launches that came as predicted."),
    "fikit_delays": ("delays", 1, "Delays of high-priority work."),
    "fikit_delay_seconds": ("delay_ns", NANOSECONDS, "Sum of the delays of high-priority work."),
    "fikit_caused_delays": ("caused_delays", 1, "Delays of high-priority work by this tenant's gated work."),
    "fikit_caused_delay_seconds": (
        "caused_delay_ns",
        NANOSECONDS,
        "Sum of the delays of high-priority work by this tenant's gated work.",
    ),
    "fikit_measured_launches": (
        "measured",
        1,
        "Operations measured by timing events: some launches, and all that a trace records.",
    ),
    "fikit_measuring_seconds": ("measuring_ns", NANOSECONDS, "Device time that measuring added."),
}
GATE_GAUGES: Final = {
    "fikit_worst_delay_seconds": ("worst_delay_ns", NANOSECONDS, "The longest delay of high-priority work."),
    "fikit_caused_worst_delay_seconds": (
        "caused_worst_delay_ns",
        NANOSECONDS,
        "The longest delay of high-priority work by this tenant's gated work.",
    ),
}
REFUSALS: Final = ("fikit_refused_operations", "Operations that had to wait at the gate, by why.")
SESSIONS: Final = ("fikit_sessions", "Sessions.")
JOBS: Final = ("fikit_jobs", "Jobs that are remembered, by state.")
JOBS_ENDED: Final = ("fikit_jobs_ended", "Jobs that have ended under this daemon, by how.")
BUILD: Final = ("fikit_build", "The daemon's release.")
EXECUTORS: Final = ("fikit_executors", "Executors.")
FAILING: Final = (
    "fikit_gpu_failing",
    "Whether the GPU's latest executor has failed and none has started since.",
)
EXECUTOR_BUSY: Final = ("fikit_executor_busy_seconds", "How long executors had work in flight, added up.")

Key = tuple[int, int]
Family = CounterMetricFamily | GaugeMetricFamily
Declared = Mapping[str, tuple[str, float, str]]
"""By a metric's name: whose field it is of, in how many of that one's unit, and its help."""


class State(Collector):
    """The daemon's state as metric families, as far as ``sees`` allows."""

    def __init__(self, daemon: Daemon, sees: Callable[[int | None], bool], names: dict[int, str]) -> None:
        self._daemon = daemon
        self._sees = sees
        self._names = names

    def collect(self) -> Iterable[Metric]:
        """All families."""
        usage, counts = self._usage()
        names = {uid: self._names.get(uid, str(uid)) for uid, _ in usage}
        yield from _families(CounterMetricFamily, USAGE_COUNTERS, names, usage)
        yield from _families(GaugeMetricFamily, USAGE_GAUGES, names, usage)
        yield from self._gates(names)
        yield _filled(GaugeMetricFamily(*SESSIONS, labels=["tenant", "gpu"]), names, counts)
        yield from self._jobs()
        yield from self._executors()
        yield InfoMetricFamily(*BUILD, value={"version": self._daemon.version})

    def _usage(self) -> tuple[dict[Key, Usage], dict[Key, float]]:
        parts: dict[Key, list[Usage]] = defaultdict(list)
        counts: dict[Key, float] = {}
        for key, usage in self._daemon.accounts.sums().items():
            parts[key].append(usage)
            counts[key] = 0
        for session in self._daemon.sessions.living.values():
            key = session.uid, session.executor.device.index
            parts[key].append(session.usage)
            counts[key] = counts.get(key, 0) + 1
        visible = {key: total(each) for key, each in parts.items() if self._sees(key[0])}
        return visible, {key: count for key, count in counts.items() if key in visible}

    def _gates(self, names: dict[int, str]) -> Iterator[Metric]:
        parts: dict[Key, list[GateStatistics]] = defaultdict(list)
        for key, gate in self._daemon.accounts.gates.items():
            parts[key].append(gate)
        for session in self._daemon.sessions.living.values():
            parts[session.uid, session.executor.device.index].append(session.gate_counted)
        gates = {key: total_gate(each) for key, each in parts.items() if self._sees(key[0])}
        yield from _families(CounterMetricFamily, GATE_COUNTERS, names, gates)
        yield from _families(GaugeMetricFamily, GATE_GAUGES, names, gates)
        refused = CounterMetricFamily(*REFUSALS, labels=["tenant", "gpu", "reason"])
        for (uid, gpu), each in sorted(gates.items()):
            for reason, count in sorted(each.refused.items()):
                refused.add_metric([names[uid], str(gpu), reason], count)
        yield refused

    def _jobs(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(*JOBS, labels=["tenant", "state"])
        counts: dict[tuple[str, str], int] = {}
        for job in self._daemon.jobs.known.values():
            if self._sees(job.uid):
                for state in TRANSITIONS:
                    counts.setdefault((job.tenant, state), 0)
                counts[job.tenant, job.state] += 1
        for labels, count in sorted(counts.items()):
            family.add_metric(labels, count)
        yield family
        ended = CounterMetricFamily(*JOBS_ENDED, labels=["tenant", "state"])
        counted = {(tenant, state): 0 for tenant, _ in counts for state in OVER}
        for (uid, tenant, how), count in self._daemon.jobs.ended.items():
            if self._sees(uid):
                counted[tenant, how] = counted.get((tenant, how), 0) + count
        for labels, count in sorted(counted.items()):
            ended.add_metric(labels, count)
        yield ended

    def _executors(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(*EXECUTORS, labels=["gpu"])
        failing = GaugeMetricFamily(*FAILING, labels=["gpu"])
        busy = CounterMetricFamily(*EXECUTOR_BUSY, labels=["gpu"])
        nanoseconds = self._daemon.accounts.busy_ns.copy()
        for each in self._daemon.supervisor.executors.values():
            nanoseconds[each.uid, each.device.index] += each.busy_ns
        for index in self._daemon.devices:
            serving = [each for each in self._daemon.supervisor.on(index) if self._sees(each.uid)]
            family.add_metric([str(index)], len(serving))
            failing.add_metric([str(index)], index in self._daemon.supervisor.failing)
            seen = [ns for (uid, gpu), ns in nanoseconds.items() if gpu == index and self._sees(uid)]
            busy.add_metric([str(index)], sum(seen) / NANOSECONDS)
        yield family
        yield failing
        yield busy


def _families(
    kind: type[Family],
    declared: Declared,
    names: dict[int, str],
    counted: Mapping[Key, Usage | GateStatistics],
) -> Iterator[Metric]:
    for name, (attribute, unit, text) in declared.items():
        values = {key: getattr(each, attribute) / unit for key, each in counted.items()}
        yield _filled(kind(name, text, labels=["tenant", "gpu"]), names, values)


def _filled(family: Family, names: dict[int, str], values: dict[Key, float]) -> Metric:
    for (uid, gpu), value in sorted(values.items()):
        family.add_metric([names[uid], str(gpu)], value)
    return family


def text_of(daemon: Daemon, sees: Callable[[int | None], bool], names: dict[int, str]) -> str:
    """The Prometheus text; ``names``: of tenants."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(State(daemon, sees, names))
    return generate_latest(registry).decode()
