"""Where and on what a result was measured."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from bench.build import ROOT
from fikitd.configuration import DeviceSection
from fikitd.device import DeviceSpec, choose
from fikitd.errors import DeviceUnavailableError


def devices(parser: argparse.ArgumentParser, choice: str) -> list[DeviceSpec]:
    """The GPUs that ``--device`` names; a wrong one is told as other wrong options are."""
    try:
        return choose(choice, DeviceSection())
    except DeviceUnavailableError as error:
        parser.error(str(error))


@cache  # what runs was built before: a commit that comes meanwhile is not measured
def commit() -> str:
    """The commit measured; ends in ``+`` where the tree has changes. Empty outside of git."""
    shown = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return shown.stdout.strip()


def machine() -> dict[str, str | int]:
    """Processor, cores, memory and kernel."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": model,
        "cores": os.cpu_count() or 0,
        "memory_gib": round(pages / 2**30),
        "kernel": platform.release().partition("-")[0],
    }


def about(benchmark: str, device: DeviceSpec) -> dict[str, Any]:
    """What each result of a benchmark on a device begins with."""
    return {
        "benchmark": benchmark,
        "commit": commit(),
        "machine": machine(),
        "device": device.name,
        "driver": driver_version(),
    }


def driver_version() -> str:
    """The kernel driver's version, where there is one."""
    path = Path("/sys/module/nvidia/version")
    return path.read_text().strip() if path.exists() else ""
