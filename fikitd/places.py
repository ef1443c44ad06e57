"""What the daemon has made in directories that may go while it runs, and makes anew once it can.

A user's runtime directory goes as he logs out, whatever he left running, and is there again, empty, as he
logs in (pam_systemd(8)). His daemon would go on with nobody to reach it.
"""

from __future__ import annotations

import fcntl
import os
import socket
from typing import Final

import structlog
import trio
from fikit.place import UnsafePlaceError, daemon_directory, own_directory

from fikitd.api.listener import Listener, make_socket, remove_socket
from fikitd.configuration import DaemonSection
from fikitd.daemon import Daemon
from fikitd.directories import Directories, runtime_lock, socket_lock
from fikitd.errors import AlreadyRunningError
from fikitd.scarcity import in_thread

LOOK_SECONDS: Final = 5.0
NOT_YET: Final = (OSError, AlreadyRunningError, UnsafePlaceError)


class OwnSocket:
    """The socket that clients connect to, where systemd has made none."""

    def __init__(self, places: Directories, settings: DaemonSection) -> None:
        """Take its place. Raises AlreadyRunningError, OSError. Blocking, as all here."""
        self._path = places.socket
        self._settings = settings
        self._made: os.stat_result | None = None
        self._lock = socket_lock(places)
        self._lock.take()

    def make(self) -> socket.socket:
        """Raises AlreadyRunningError, OSError."""
        listening = make_socket(self._path, self._settings)
        self._made = self._path.stat()
        return listening

    def renew(self) -> socket.socket | None:
        """Another in its place, where there is none any more; None: there is, or none can be made yet."""
        if os.path.lexists(self._path):
            return None
        try:
            if self._path.parent == own_directory():
                daemon_directory()
            self._lock.take()
            return self.make()
        except NOT_YET:
            return None

    def remove(self) -> None:
        """At the daemon's end."""
        if self._made is not None:
            remove_socket(self._path, self._made)


class Runtime:
    """The runtime directory: by what is in there executors are found, and know of each other."""

    def __init__(self, places: Directories) -> None:
        """Take it. Raises AlreadyRunningError, OSError."""
        self._path = places.runtime
        self._lock = runtime_lock(places)
        self._take()

    def _take(self) -> None:
        self._lock.take()
        # As long as it is locked, what is old in there is not removed where that is done below it, as in /tmp
        # (tmpfiles.d(5)): the files that executors share by mapping them are never written to.
        fcntl.flock(os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_SH)

    def renew(self) -> bool:
        """Make it anew where it is gone; whether that was so. None may live that knows the one of before."""
        if self._lock.held:
            return False
        try:
            if self._path.parent == own_directory():
                daemon_directory()
            self._path.mkdir(mode=0o700, exist_ok=True)
            self._take()
        except NOT_YET:
            return False
        return True


async def keep_places(daemon: Daemon, listener: Listener, own: OwnSocket | None, runtime: Runtime) -> None:
    """For ever."""
    log = structlog.get_logger()
    async with trio.open_nursery() as nursery:
        while True:
            await trio.sleep(LOOK_SECONDS)
            living = daemon.supervisor.executors.values()
            if not any(each.description for each in living) and await in_thread(runtime.renew):
                log.warning("runtime_directory_renewed", directory=str(daemon.directories.runtime))
            if own is not None and (listening := await in_thread(own.renew)) is not None:
                log.warning("socket_renewed", socket=str(daemon.directories.socket))
                nursery.start_soon(listener.run, listening)
