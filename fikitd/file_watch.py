"""Waiting for a file to grow or to appear, by inotify: an event, so that nobody looks again and again.

inotify is not in Python's library; three calls of libc are all it takes.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

import trio

IN_MODIFY: Final = 0x2
IN_MOVED_TO: Final = 0x80
_libc = ctypes.CDLL(None, use_errno=True)


class FileWatch:
    """Changes of the files in one directory, since the watch was made."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        if _libc.inotify_add_watch(self._descriptor, os.fsencode(directory), IN_MODIFY | IN_MOVED_TO) < 0:
            error = ctypes.get_errno()
            os.close(self._descriptor)
            raise OSError(error, f"inotify_add_watch {directory}")

    async def changed(self) -> None:
        """Return once something has changed since the last call."""
        await trio.lowlevel.wait_readable(self._descriptor)
        try:
            os.read(self._descriptor, 65536)
        except BlockingIOError:
            return

    def __enter__(self) -> FileWatch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
