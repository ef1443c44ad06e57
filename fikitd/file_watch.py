"""Waiting for a file to grow or to appear, by inotify: an event, so that nobody looks again and again.

inotify is not in Python's library; three calls of libc are all it takes. A user may have few of its instances
(fs.inotify.max_user_instances): where there is none left, this does look again and again.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

import trio

from fikitd.scarcity import SCARCE

IN_MODIFY: Final = 0x2
IN_MOVED_TO: Final = 0x80
NONE_LEFT: Final = SCARCE | {errno.ENOSPC}
LOOK_SECONDS: Final = 0.1
_libc = ctypes.CDLL(None, use_errno=True)


class FileWatch:
    """Changes of the files in one directory, since the watch was made."""

    def __init__(self, directory: Path) -> None:
        self._descriptor: int | None = None
        """None: there is no instance for us."""
        directory.stat()  # raises OSError where there is none
        descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        watched = descriptor >= 0 and _libc.inotify_add_watch(
            descriptor, os.fsencode(directory), IN_MODIFY | IN_MOVED_TO
        )
        if descriptor >= 0 and watched >= 0:
            self._descriptor = descriptor
            return
        error = ctypes.get_errno()
        if descriptor >= 0:
            os.close(descriptor)
        if error not in NONE_LEFT:
            raise OSError(error, os.strerror(error), str(directory))

    async def changed(self) -> None:
        """Return once something has changed since the last call, or may have."""
        if self._descriptor is None:
            await trio.sleep(LOOK_SECONDS)
            return
        await trio.lowlevel.wait_readable(self._descriptor)
        try:
            os.read(self._descriptor, 65536)
        except BlockingIOError:
            return

    def __enter__(self) -> FileWatch:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
