"""How much of the host's memory there is for us: the machine's, or less, as in a container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

GROUPS: Final = Path("/sys/fs/cgroup")
OURS: Final = Path("/proc/self/cgroup")


def host_bytes(groups: Path = GROUPS, ours: Path = OURS) -> int:
    """The least of what the machine has and what the control groups that we are in may have. Blocking."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_limits(groups, ours)])


def _limits(groups: Path, ours: Path) -> Iterator[int]:
    """Of our group and of all that it is in, as far as they are shown here (cgroups(7)): both versions."""
    with suppress(OSError):
        for line in ours.read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if not controllers:
                top, file = groups, "memory.max"
            elif "memory" in controllers.split(","):
                top, file = groups / "memory", "memory.limit_in_bytes"
            else:
                continue
            ours_and_above = Path(name.lstrip("/"))
            for group in (ours_and_above, *ours_and_above.parents):
                with suppress(OSError, ValueError):  # it is not shown here; "max"
                    yield int((top / group / file).read_text())
