"""Who holds a record lock: the kernel names the process, so no pid is ever believed.

Standard library only: the runner of a job imports this.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

FLOCK: Final = "hhqqi4x"
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""


def holder(path: Path) -> int | None:
    """The pid of the process that holds the lock of a file; None when nobody does. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        question = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else int(pid)
