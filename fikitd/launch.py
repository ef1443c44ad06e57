"""Starting what outlives the daemon: executors, and the runners of jobs.

Where systemd started the daemon, each becomes a transient unit of its own in fikitd.slice: the end of the
daemon's unit, however it comes, does not reach it, and it does not inherit the daemon's sandbox
(systemd-run(1)). Settings that hold for every executor or job are drop-ins of ``fikitd-executor-.service``
and ``fikitd-job-.service``. Elsewhere each is our child in a session of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio
from fikit.unmodified import without_library

from fikitd.processes import Process, spawn
from fikitd.scarcity import once_there_is_a_thread, once_there_is_room, patiently

SLICE: Final = "fikitd.slice"
SYSTEMD_SECONDS: Final = 30.0
USUAL_CPU_WEIGHT: Final = 100
"""What systemd gives a unit that names none (systemd.resource-control(5))."""
OURS_ALONE: Final = {
    "CONFIGURATION_DIRECTORY",
    "CUDA_VISIBLE_DEVICES",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "MANAGERPID",
    "NOTIFY_SOCKET",
    "RUNTIME_DIRECTORY",
    "STATE_DIRECTORY",
    "SYSTEMD_EXEC_PID",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
}
"""Variables that speak to the daemon process and to none that it starts."""


class EndedAtOnce(OSError):
    """It was started, and has ended before it could be held."""


@dataclass(frozen=True)
class Launch:
    """A program to start."""

    unit: str
    """Its unit's name, without a suffix."""
    command: Sequence[str]
    output: Path
    """Both outputs are appended to this file."""
    environment: Mapping[str, str]
    """Beside the daemon's own."""
    cpu_weight: int = USUAL_CPU_WEIGHT


def manager() -> str | None:
    """The option that names the systemd that started this very process; None when none did."""
    if os.environ.get("SYSTEMD_EXEC_PID") != str(os.getpid()):
        return None
    return "--user" if "MANAGERPID" in os.environ else "--system"


async def launch(what: Launch) -> Process:
    """Start it. Raises OSError; EndedAtOnce when it ran and is over."""
    inherited = without_library({name: value for name, value in os.environ.items() if name not in OURS_ALONE})
    environment = {**inherited, **what.environment}
    if (which := manager()) is None:
        return await spawn(what.command, environment, what.output)
    unit = f"{what.unit}.service"
    await _systemd(
        "systemd-run",
        which,
        f"--unit={unit}",
        f"--slice={SLICE}",
        "--service-type=exec",
        "--collect",
        "--quiet",
        "--working-directory=/",
        f"--property=StandardOutput=append:{what.output}",
        f"--property=StandardError=append:{what.output}",
        f"--property=CPUWeight={what.cpu_weight}",
        *(f"--setenv={name}={value}" for name, value in environment.items()),
        "--",
        *(part.replace("$", "$$") for part in what.command),
    )
    pid = int(await _systemd("systemctl", which, "show", "--property=MainPID", "--value", unit) or 0)
    process = await patiently(lambda: Process.by_pid(pid)) if pid else None
    if process is None:
        raise EndedAtOnce(f"{unit} ended at once")
    if not _belongs(pid, unit):  # the pid is somebody else's by now
        process.close()
        raise EndedAtOnce(f"{unit} ended at once")
    return process


async def set_cpu_weight(unit: str, cpu_weight: int) -> None:
    """Of something launched here; nothing where there are no units. Raises OSError."""
    if (which := manager()) is not None:
        weight = f"CPUWeight={cpu_weight}"
        await _systemd("systemctl", which, "set-property", "--runtime", f"{unit}.service", weight)


async def _systemd(*command: str) -> str:
    with trio.move_on_after(SYSTEMD_SECONDS) as patience:
        run = partial(trio.run_process, command, check=False, capture_stdout=True, capture_stderr=True)
        result = await once_there_is_room(lambda: once_there_is_a_thread(run))
    if patience.cancelled_caught:
        raise OSError(f"{command[0]} did not answer within {SYSTEMD_SECONDS:g} s")
    if result.returncode:
        raise OSError(f"{command[0]}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout.decode().strip()


def _belongs(pid: int, unit: str) -> bool:
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_bytes().splitlines()
    except OSError:
        return False
    return any(group.endswith(os.fsencode(f"/{unit}")) for group in groups)
