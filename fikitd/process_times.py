"""When a process began: with its pid its identity, also on disk. Standard library only."""

from __future__ import annotations

from pathlib import Path


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which the process of this pid began; None: there is none. Raises OSError."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # its name may be no text
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(b")")[2].split()[19])
