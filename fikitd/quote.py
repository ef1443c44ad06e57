"""What a log said last, for a message that names the log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LAST_BYTES: Final = 1500
LAST_LINES: Final = 8


def quoted(log: Path) -> str:
    """The last lines of a file behind a line break, to be put after a message; empty when it says nothing.

    Blocking; never fails.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LAST_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()[-LAST_LINES:]
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in lines)
