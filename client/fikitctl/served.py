"""Which GPU a command means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fikit.protocol import GpuRecord, Gpus, ListGpus

from fikitctl.failures import CommandError, ExitCode

if TYPE_CHECKING:
    from fikit.control import Connection


def is_meant(device: GpuRecord, gpu: int | str) -> bool:
    """Whether it has that index, or a UUID that begins so."""
    return device.uuid.startswith(gpu) if isinstance(gpu, str) else device.index == gpu


def served(control: Connection, gpu: int | str | None) -> GpuRecord:
    """The first that is meant; None: that the daemon serves. Raises CommandError."""
    every = control.expect(Gpus, ListGpus()).gpus
    for device in every:
        if gpu is None or is_meant(device, gpu):
            return device
    there = ", ".join(str(device.index) for device in every)
    raise CommandError(ExitCode.NOT_FOUND, "not_found", f"no GPU {gpu}", f"the daemon serves {there}")
