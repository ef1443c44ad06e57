"""The sockets that clients connect to, made here or handed over by systemd; how many one user may hold."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog
import trio
from fikit.protocol import Failure, encode

from fikitd.api.connection import Connection
from fikitd.api.user import User
from fikitd.configuration import DaemonSection
from fikitd.daemon import Daemon
from fikitd.errors import AlreadyRunningError
from fikitd.scarcity import PAUSE_SECONDS, SCARCE
from fikitd.tenants.peer import group_number, identify, peer_credentials

FIRST_PASSED_DESCRIPTOR: Final = 3
BACKLOG: Final = 512
MOST_ACCEPTED: Final = 8
"""In one turn of the loop: who is connected is served meanwhile."""


def passed_sockets() -> list[socket.socket]:
    """The listening sockets that systemd hands over (sd_listen_fds(3)); none without socket activation."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = int(os.environ.get("LISTEN_FDS", "0"))
    passed = []
    for descriptor in range(FIRST_PASSED_DESCRIPTOR, FIRST_PASSED_DESCRIPTOR + count):
        os.set_inheritable(descriptor, False)
        passed.append(socket.socket(fileno=descriptor))
    return passed


def place_of(passed: list[socket.socket]) -> Path | None:
    """Where those are that systemd made, wherever its unit has them: the first that is in the file system."""
    names = [each.getsockname() for each in passed]
    return next((Path(name) for name in names if name and isinstance(name, str)), None)


def make_socket(path: Path, settings: DaemonSection) -> socket.socket:
    """Listen at the path, with the permissions configured. Blocking. Raises OSError, AlreadyRunningError.

    The caller holds the lock of the place, so a socket that is there is an earlier daemon's leaving, or
    systemd listens on it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(OSError):
        probe.connect(str(path))
        raise AlreadyRunningError(f"somebody listens on the socket {path}: is fikitd.socket active?")
    if path.exists() and not path.is_socket():
        raise FileExistsError(errno.EEXIST, "this is no socket, and stays", str(path))
    path.unlink(missing_ok=True)
    group = group_number(settings.socket_group) if os.geteuid() == 0 else None
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))  # nobody else's to connect to by our umask
    path.chmod(0o600)
    if os.geteuid() == 0:
        if group is not None:
            os.chown(path, 0, group)
        path.chmod(int(settings.socket_mode, 8))
    listening.listen(BACKLOG)
    return listening


def remove_socket(path: Path, made: os.stat_result) -> None:
    """Remove what ``make_socket`` made, unless somebody else's is there by now. Blocking.

    Where one is, clients take a daemon to be, and look for no other.
    """
    with suppress(OSError):
        if os.path.samestat(path.stat(), made):
            path.unlink()


class Listener:
    """Accepts connections, of any number of sockets, and serves each; a connection that fails ends alone."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._users: dict[int, User] = {}
        self._log = structlog.get_logger()

    async def run(self, listening: socket.socket) -> None:
        """Accept for ever."""
        listening.setblocking(False)
        source = trio.socket.from_stdlib_socket(listening)
        async with trio.open_nursery() as connections:
            while True:
                try:
                    stream, _ = await source.accept()
                    connections.start_soon(self._serve, stream)
                    for more in waiting(listening):
                        connections.start_soon(self._serve, trio.socket.from_stdlib_socket(more))
                except OSError as error:
                    if error.errno not in SCARCE:
                        continue  # the peer left before we came
                    self._log.error("accept_failed", reason=str(error))
                    await trio.sleep(PAUSE_SECONDS)

    async def _serve(self, stream: trio.socket.SocketType) -> None:
        settings = self._daemon.configuration.daemon
        try:
            pid, uid, _ = peer_credentials(stream)
        except OSError:
            stream.close()
            return
        if pid == os.getpid():  # the watchdog's is ours: no user's connections may keep it out
            await self._converse(stream, User())
            return
        user = self._users.setdefault(uid, User())
        if user.connections >= settings.max_connections_per_user:
            limit = settings.max_connections_per_user
            message = f"user {uid} has {limit} connections, the most one may have"
            self._daemon.connection_refused(uid, message)
            await refuse(stream, user, message)
            return
        user.connections += 1
        try:
            await self._converse(stream, user)
        finally:
            user.connections -= 1

    async def _converse(self, stream: trio.socket.SocketType, user: User) -> None:
        try:
            async with user.arriving:
                peer = await identify(stream, self._daemon.configuration.daemon.administrator_group)
        except OSError:
            await user.closer.close(stream)
            return
        try:
            await Connection(stream, self._daemon, peer, user).serve()
        except Exception:
            self._log.exception("connection_failed", uid=peer.uid)


def waiting(listening: socket.socket) -> Iterator[socket.socket]:
    """Those who wait to be accepted, up to as many as may: one in a turn of the loop would be too few beside
    somebody who connects without pause, and others could not even connect. Raises OSError.
    """
    for _ in range(MOST_ACCEPTED - 1):
        try:
            yield listening.accept()[0]
        except BlockingIOError:
            return


async def refuse(stream: trio.socket.SocketType, user: User, message: str) -> None:
    """Say why and hang up, without waiting for the peer."""
    with suppress(OSError):
        os.write(stream.fileno(), encode(0, Failure(code="quota", message=message, hint="close some")))
    await user.closer.close(stream)
