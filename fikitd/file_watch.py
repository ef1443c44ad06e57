"""Waiting for a file to grow or to appear, by inotify: an event, so that nobody looks again and again.

inotify is not in Python's library; a few calls of libc are all it takes. A user may have few of its instances
(fs.inotify.max_user_instances), and root's are those of all services: so a daemon has one, whoever waits.
Where there is none left, this does look again and again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import trio
import trio.lowlevel

from fikitd.scarcity import SCARCE

IN_MODIFY: Final = 0x2
IN_MOVED_TO: Final = 0x80
EVENT: Final = struct.Struct("iIII")
"""struct inotify_event: watch, mask, cookie, bytes of the name behind it."""
NONE_LEFT: Final = SCARCE | {errno.ENOSPC}
LOOK_SECONDS: Final = 0.1
_libc = ctypes.CDLL(None, use_errno=True)
_instance: trio.lowlevel.RunVar[Inotify] = trio.lowlevel.RunVar("inotify")


def failed(what: object) -> OSError:
    """Why the last call of libc was refused."""
    error = ctypes.get_errno()
    return OSError(error, os.strerror(error), str(what))


def watches_in(events: bytes) -> Iterator[int]:
    """Whose changes they are."""
    at = 0
    while at < len(events):
        number, _, _, size = EVENT.unpack_from(events, at)
        yield number
        at += EVENT.size + size


class Inotify:
    """The instance of this run of trio."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise failed("inotify")
        self._watches: defaultdict[int, list[FileWatch]] = defaultdict(list)

    @classmethod
    def shared(cls) -> Inotify:
        """It, made when it is first wanted. Raises OSError."""
        try:
            return _instance.get()
        except LookupError:
            made = cls()
        _instance.set(made)
        trio.lowlevel.spawn_system_task(made._run)
        return made

    def add(self, watch: FileWatch, directory: Path) -> int:
        """Tell the watch of changes there from now on; the number to remove it by. Raises OSError."""
        number = _libc.inotify_add_watch(self._descriptor, os.fsencode(directory), IN_MODIFY | IN_MOVED_TO)
        if number < 0:
            raise failed(directory)
        self._watches[number].append(watch)
        return int(number)

    def remove(self, watch: FileWatch, number: int) -> None:
        """Tell it no more."""
        self._watches[number].remove(watch)
        if not self._watches[number]:
            del self._watches[number]
            _libc.inotify_rm_watch(self._descriptor, number)

    async def _run(self) -> None:
        try:
            while True:
                await trio.lowlevel.wait_readable(self._descriptor)
                try:
                    data = os.read(self._descriptor, 65536)
                except BlockingIOError:
                    continue
                except OSError:  # what has changed is not told just now
                    data = b""
                    await trio.sleep(LOOK_SECONDS)
                changed = set(watches_in(data))  # each once: thousands of changes may have come at a time
                if not data or any(number < 0 for number in changed):  # more than the kernel keeps
                    changed = set(self._watches)
                for number in changed & self._watches.keys():
                    for watch in self._watches[number]:
                        watch.tell()
        finally:
            os.close(self._descriptor)


class FileWatch:
    """Changes of the files in one directory, since the watch was made."""

    def __init__(self, directory: Path) -> None:
        directory.stat()  # raises OSError where there is none
        self._changed = trio.Event()
        self._place: tuple[Inotify, int] | None = None
        """None: there is no instance for us."""
        try:
            instance = Inotify.shared()
            self._place = instance, instance.add(self, directory)
        except OSError as error:
            if error.errno not in NONE_LEFT:
                raise

    def tell(self) -> None:
        """Something has changed."""
        self._changed.set()

    async def changed(self) -> None:
        """Return once something has changed since the last call, or may have."""
        if self._place is None:
            await trio.sleep(LOOK_SECONDS)
            return
        await self._changed.wait()
        self._changed = trio.Event()

    def __enter__(self) -> FileWatch:
        return self

    def __exit__(self, *_: object) -> None:
        if self._place is not None:
            instance, number = self._place
            instance.remove(self, number)
