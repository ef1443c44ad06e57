"""Where the daemon listens."""

from __future__ import annotations

import os
from pathlib import Path


def default_socket() -> Path:
    """``$FIKIT_SOCKET``, else the system's daemon where there is one, else the user's own."""
    if named := os.environ.get("FIKIT_SOCKET"):
        return Path(named)
    system = Path("/run/fikitd.sock")
    if os.getuid() == 0 or system.exists():
        return system
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "fikitd.sock"
    return Path(f"/tmp/fikitd-{os.getuid()}/fikitd.sock")  # noqa: S108 - the daemon makes it with mode 0700
