"""Processes that step real workloads (programs/workloads), in every way of sharing a GPU."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.found import PROGRAMS
from bench.mps import Mps
from bench.playing import Process
from bench.unmodified import FIKITCTL, SIMULATED
from fikitd.device import DeviceSpec, driver

PLAYER: Final = PROGRAMS / "workloads" / "player.py"
MODELS: Final = PROGRAMS / "workloads" / "models.py"
STAGES: Final = ("started", "imported", "built", "stepped")


class Stepper(Process):
    """A process that steps one workload; it says when it got how far (player.py)."""

    @property
    def reached(self) -> dict[str, Any]:
        """Its process id, and the times of its stages in nanoseconds of the monotonic clock."""
        found: dict[str, Any] = json.loads(self.told)
        return found

    def stages_seconds(self) -> dict[str, float]:
        """How long after it was started it had reached each stage."""
        reached = self.reached
        return {stage: (reached[stage] - self.started_ns) / 1e9 for stage in STAGES}


@dataclass
class Place:
    """Where workloads run."""

    device: DeviceSpec
    models: Path
    host_only_library: Path
    sockets: dict[str, Path] = field(default_factory=dict)
    """Of the daemons, by policy."""
    mps: Mps | None = None

    def natively(self, workload: str, more: Mapping[str, str] | None = None) -> Stepper:
        """On the driver itself."""
        device = self.device
        chosen = device.environment if device.simulated else {"CUDA_VISIBLE_DEVICES": device.uuid}
        before = SIMULATED if device.simulated else []
        return self._stepper(before, workload, {**os.environ, **chosen, **(more or {})})

    def as_client(self, workload: str, **more: str) -> Stepper:
        """Natively, as a client of MPS."""
        assert self.mps is not None
        return self.natively(workload, {**self.mps.environment, **more})

    def host_only(self, workload: str) -> Stepper:
        """Natively, but the GPU gets nothing to do (native/host_only.cpp)."""
        return self.natively(workload, {"LD_PRELOAD": str(self.host_only_library)})

    def under(self, policy: str, workload: str, priority: str) -> Stepper:
        """In a job of the daemon that has the policy."""
        run = ["run", "--priority", priority, "--gpu", str(self.device.index), "--"]
        return self._stepper([*FIKITCTL, "-H", str(self.sockets[policy]), *run], workload, os.environ)

    def _stepper(self, before: Sequence[str], workload: str, environment: Mapping[str, str]) -> Stepper:
        command = [*before, sys.executable, "-P", str(PLAYER), str(self.models), workload]
        return Stepper(Path(command[0]), command[1:], environment=environment)

    def memory_mib(self, processes: Sequence[Stepper]) -> list[float | None]:
        """What the driver says that each of them holds of the GPU; None where it knows none of them."""
        if self.device.simulated or (nvml := driver()) is None:
            return [None for _ in processes]
        handle = nvml.nvmlDeviceGetHandleByUUID(self.device.uuid)
        held = {
            each.pid: each.usedGpuMemory or 0 for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        }
        pids = [each.reached["pid"] for each in processes]
        known = any(pid in held for pid in pids)  # else its process ids are not ours
        return [held.get(pid, 0) / 2**20 if known else None for pid in pids]
