"""The dispatch core, typed. The only module that imports the native one."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from fikit.protocol import GateStatistics, KernelProfile, TraceOperation, Usage

from fikitd import _core
from fikitd.executor.host_memory import host_bytes
from fikitd.executor.set_up import Device
from fikitd.scheduling.settings import SchedulingSection

HOST_SHARE: Final = 2
"""One in so many bytes of the machine's memory may be a user's."""


class Ended(msgspec.Struct, frozen=True):
    """A session that is over."""

    session: str
    error: int
    reason: str
    usage: Usage
    gate: GateStatistics


class SessionState(msgspec.Struct, frozen=True):
    """What the core knows of a session."""

    session: str
    priority: int
    weight: float
    paused: bool
    memory_limit_bytes: int
    host_functions: int
    call_ns: int
    overdue_ns: int
    usage: Usage
    gate: GateStatistics


class Snapshot(msgspec.Struct, frozen=True):
    """Every session, and for how long there was work of them."""

    sessions: list[SessionState]
    busy_ns: int
    keeping: int
    outlived: str


def settings_of(section: SchedulingSection) -> Any:
    """The native core's settings, as far as they are configured. What it has by default is the same."""
    bounds = _core.Bounds()
    bounds.in_flight = int(section.in_flight_us * 1000)
    bounds.partition_block = int(section.partition_block_us * 1000)
    bounds.high_memory = int(section.high_memory_ms * 1_000_000)
    bounds.starvation_share = section.starvation_share
    bounds.delay_share = section.delay_share
    bounds.spared_share = section.spared_share
    bounds.delay_least = int(section.delay_least_us * 1000)
    settings = _core.Settings()
    settings.policy = section.policy
    settings.bounds = bounds
    settings.spin_host_ns = int(section.spin_us * 1000)
    settings.poll_host_ns = int(section.poll_us * 1000)
    settings.staging_bytes = section.staging_bytes
    settings.host_limit_bytes = section.pinned_limit_bytes
    settings.host_tenant_bytes = section.host_memory_limit_bytes or host_bytes() // HOST_SHARE
    return settings


class DispatchCore:
    """The native loop on a device. A method takes as long as a turn of the loop; none waits for the GPU."""

    def __init__(
        self,
        device: Device,
        section: SchedulingSection,
        time_scale: float,
        board: str,
        ledger: str,
        host_ledger: str = "",
        printed: int = -1,
        gpu: int = 0,
    ) -> None:
        settings = settings_of(section)
        settings.driver_path = device.driver_path
        settings.time_scale = time_scale
        settings.board_path = board
        settings.ledger_path = ledger
        settings.host_ledger_path = host_ledger
        settings.printed = printed
        settings.gpu = gpu
        self._device = device  # its streams live as long as the core
        self._core = _core.Core(settings, device.context)
        for lane in device.lanes:
            self._core.add_lane(lane.stream, lane.cuda_priority, lane.multiprocessors)
        self._core.set_monitor(device.monitor)
        self._core.start()

    def stop(self) -> None:
        """End the loop and its workers. Blocking."""
        self._core.stop()

    def attach(
        self,
        session: str,
        level: int,
        weight: float,
        memory_limit: int,
        tenant_limit: int,
        unmodified: bool,
        lifeline: int,
        process: int,
        job: str,
    ) -> tuple[int, int]:
        """Open a session; takes both descriptors. Returns outbox and inbox. RuntimeError says what failed."""
        outbox, inbox = self._core.attach(
            session, level, weight, memory_limit, tenant_limit, unmodified, lifeline, process, job
        )
        return outbox, inbox

    def end(self, session: str, error: int, reason: str) -> bool:
        """End a session; False if there is none such."""
        found: bool = self._core.end(session, error, reason)
        return found

    def change(
        self,
        session: str,
        level: int | None,
        weight: float | None,
        paused: bool | None,
        measured: bool | None,
    ) -> bool:
        """Change what is not None; False if there is no such session."""
        found: bool = self._core.change(session, level, weight, paused, measured)
        return found

    def snapshot(self) -> Snapshot:
        """The sessions now."""
        return msgspec.convert(self._core.snapshot(), Snapshot)

    def memory_left(self, limit_bytes: int, used_bytes: int) -> tuple[int, int]:
        """What of a limit is free on the GPU now, and as much of it as the GPU has. Raises RuntimeError."""
        free, total = self._core.memory_left(limit_bytes, used_bytes)
        return free, total

    def take_profiles(self) -> list[KernelProfile]:
        """Profile entries that changed since they were last taken."""
        return msgspec.convert(self._core.take_profiles(), list[KernelProfile])

    def load_profile(self, profile: KernelProfile) -> None:
        """Take over an entry, unless the kernel has been measured here already."""
        self._core.load_profile(
            profile.module,
            profile.function,
            list(profile.grid),
            list(profile.block),
            profile.shared_bytes,
            profile.samples,
            profile.median_ns,
            profile.p95_ns,
            profile.shortest_ns,
            profile.wrong,
            [(gap.before, gap.samples, gap.median_ns) for gap in profile.gaps],
        )

    def forget_profiles(self) -> None:
        """Forget every entry."""
        self._core.forget_profiles()

    def bound_printed(self) -> None:
        """Of what kernels have printed and nobody takes, keep the latest."""
        self._core.bound_printed()

    def set_trace(self, on: bool) -> int:
        """Start or stop recording; the cursor of what comes next."""
        return self._core.set_trace(on)

    def read_trace(self, cursor: int, limit: int) -> tuple[list[TraceOperation], int, int]:
        """Operations recorded from a cursor on, the next cursor, and how many were overwritten before."""
        operations, following, dropped = self._core.read_trace(cursor, limit)
        return [TraceOperation(*operation) for operation in operations], following, dropped

    @property
    def timer_overhead_ns(self) -> tuple[int, int]:
        """What timing events add to a kernel's duration: on an idle stream, behind other work."""
        idle, behind = self._core.timer_overhead
        return idle, behind

    @property
    def launch_ns(self) -> int:
        """What launching a kernel takes the thread that does."""
        cost: int = self._core.launch_cost
        return cost

    @property
    def notification(self) -> int:
        """A descriptor that is readable when a session has ended or the device has failed."""
        descriptor: int = self._core.notification
        return descriptor

    def take_ended(self) -> list[Ended]:
        """The sessions that ended since this was last asked."""
        return msgspec.convert(self._core.take_ended(), list[Ended])

    @property
    def failure(self) -> tuple[int, str]:
        """The sticky CUresult that ended the context, and its text; (0, "") while it lives."""
        return self._core.failure, self._core.failure_text
