"""When a process began: with its pid its identity, also on disk; how long it has waited for a processor.

Standard library only.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

TICK_BITS: Final = 40
"""Some hundred years; what is above them, which fits into 63 together, tells the boot."""


def start_time(pid: int) -> int | None:
    """When the process of this pid began: clock ticks after boot, and which boot; None: there is none.

    Raises OSError.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # its name may be no text
    except (FileNotFoundError, ProcessLookupError):
        return None
    return boot() << TICK_BITS | int(stat.rpartition(b")")[2].split()[19])


def boot() -> int:
    """Differs from one boot of the machine to the next, as pids and ticks alone do not."""
    with suppress(OSError, ValueError):
        return int(Path("/proc/sys/kernel/random/boot_id").read_text()[:6], 16) >> 1
    return 0


def began_then(pid: int, moment: int | None) -> bool:
    """Whether the process of this pid is there, and is the one that began then. Raises OSError."""
    began = start_time(pid)
    ticks = None if began is None else began & (1 << TICK_BITS) - 1
    return began is not None and moment in (began, ticks)  # the latter is how an older release wrote it


def processor_waits(pid: int) -> dict[str, int]:
    """So many nanoseconds each of its threads has waited for a processor; those that the kernel tells of.

    Raises OSError, not because it has ended.
    """
    waits = {}
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError, ProcessLookupError, IndexError):
                waits[thread] = int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1])
    return waits
