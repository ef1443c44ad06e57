"""The machine and its daemon: GPUs, tenants, health, metrics, drain."""

from __future__ import annotations

from msgspec import Struct

from fikit.protocol.usage import Usage
from fikit.protocol.words import Bytes, Count, Identifier, Level, Reply, Request


class GpuRecord(Struct, frozen=True, kw_only=True):
    """One GPU of the machine."""

    index: int
    name: str
    uuid: str
    memory_bytes: Bytes
    memory_reserved_bytes: Bytes
    time_scale: float
    """Host seconds per device second; 1.0 on a real GPU."""
    sessions: Count
    executors: Count
    memory_used_bytes: Bytes = 0
    """What sessions hold of it, whether reserved for them or not."""
    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    failing: bool = False
    """Its latest executor has failed, and none has started since."""


class ListGpus(Request, tag="list_gpus", frozen=True):
    """Every GPU the daemon serves."""


class Gpus(Reply, tag="gpus", frozen=True):
    """Answer to ``ListGpus``."""

    gpus: list[GpuRecord]


class VisibleProcess(Struct, frozen=True, kw_only=True):
    """A process with a session, and the device memory it holds."""

    pid: int
    memory_bytes: Bytes


class VisibleGpu(Struct, frozen=True, kw_only=True):
    """A GPU as the peer's program is to see it: memory is what its tenant or job may have and uses."""

    index: int
    name: str
    uuid: str
    pci: str
    """Where it is on the bus: domain, bus and device, in hexadecimal, and the function."""
    compute_capability: Count
    """Ten times the major number, and the minor one."""
    driver_version: str
    memory_bytes: Bytes
    memory_used_bytes: Bytes
    """What is not free, as cuMemGetInfo says: without a quota, what contexts and others take too."""
    nvidia_driver: bool
    """The NVIDIA driver of the peer's own process knows it too."""
    processes: list[VisibleProcess]
    """Those of the peer's user."""


class ListVisibleGpus(Request, tag="list_visible_gpus", frozen=True):
    """The GPUs as a program may see them, by the numbers that it may use; with ``job`` those of the job."""

    job: Identifier | None = None


class VisibleGpus(Reply, tag="visible_gpus", frozen=True):
    """Answer to ``ListVisibleGpus``."""

    gpus: list[VisibleGpu]


class TenantRecord(Struct, frozen=True, kw_only=True):
    """Whom work is accounted to, with what the configuration allows."""

    tenant: str
    uid: int
    priority_ceiling: Level
    weight: float
    memory_limit_bytes: Bytes
    max_sessions: Count
    sessions: Count
    jobs: Count
    usage: Usage


class ListTenants(Request, tag="list_tenants", frozen=True):
    """The tenants the peer may see."""


class Tenants(Reply, tag="tenants", frozen=True):
    """Answer to ``ListTenants``."""

    tenants: list[TenantRecord]


class Check(Struct, frozen=True, kw_only=True):
    """One finding of ``doctor``."""

    name: str
    ok: bool
    detail: str


class Doctor(Request, tag="doctor", frozen=True):
    """Check the daemon's own surroundings."""


class Diagnosis(Reply, tag="diagnosis", frozen=True):
    """Answer to ``Doctor``."""

    checks: list[Check]


class Drain(Request, tag="drain", frozen=True):
    """Refuse new sessions and jobs until ``Undrain`` (administrator)."""

    reason: str = ""


class Undrain(Request, tag="undrain", frozen=True):
    """Accept work again (administrator)."""


class GetStatus(Request, tag="get_status", frozen=True):
    """The daemon at a glance."""


class Status(Reply, tag="status", frozen=True):
    """Answer to ``GetStatus``."""

    daemon: str
    pid: int
    uptime_seconds: float
    draining: str | None
    """The reason, while it drains."""
    sessions: Count
    jobs_running: Count
    jobs_queued: Count
    gpus: list[GpuRecord]


class ReadMetrics(Request, tag="read_metrics", frozen=True):
    """The Prometheus text (administrator: all tenants; others: their own)."""


class Metrics(Reply, tag="metrics", frozen=True):
    """Answer to ``ReadMetrics``."""

    text: str
