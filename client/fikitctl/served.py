"""Which GPU a command means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fikit.protocol import GpuRecord, Gpus, ListGpus

from fikitctl.failures import CommandError, ExitCode

if TYPE_CHECKING:
    from fikit.control import Connection


def served(control: Connection, gpu: int | None) -> GpuRecord:
    """The one with that index; None: the first that the daemon serves. Raises CommandError."""
    every = control.expect(Gpus, ListGpus()).gpus
    for device in every:
        if gpu in (None, device.index):
            return device
    there = ", ".join(str(device.index) for device in every)
    raise CommandError(ExitCode.NOT_FOUND, "not_found", f"no GPU {gpu}", f"the daemon serves {there}")
