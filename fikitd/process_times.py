"""When a process began: with its pid its identity, also on disk; how long it has waited for a processor.

Standard library only.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which the process of this pid began; None: there is none. Raises OSError."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # its name may be no text
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(b")")[2].split()[19])


def processor_waits(pid: int) -> dict[str, int]:
    """So many nanoseconds each of its threads has waited for a processor; those that the kernel tells of."""
    waits = {}
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError, IndexError):
            waits[thread.name] = int((thread / "schedstat").read_text().split()[1])
    return waits
