"""Who is at the other end of a connection: what the kernel says (SO_PEERCRED), never what a message says.

Groups are those of the peer's process (SO_PEERGROUPS), so no name service is asked and ``newgrp`` is obeyed.
The pidfd is the kernel's own of the peer (SO_PEERPIDFD) where it has that, so a reused pid cannot fool us.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import trio

from fikitd.scarcity import in_thread, patiently

SO_PEERGROUPS: Final = 59
SO_PEERPIDFD: Final = 77
Entry = TypeVar("Entry")
OPTION_BYTES: Final = 1024  # the most that Python's getsockopt reads


@dataclass(frozen=True)
class Peer:
    """A connected process."""

    uid: int
    gid: int
    pid: int
    groups: tuple[int, ...]
    tenant: str
    """The user's name, or the uid where it has none."""
    administrator: bool

    def sees(self, uid: int | None) -> bool:
        """Whether what belongs to ``uid`` (None: to nobody) is the peer's to see and control."""
        return self.administrator or uid is None or uid == self.uid


def peer_credentials(connection: trio.socket.SocketType) -> tuple[int, int, int]:
    """Its pid, uid and gid. Raises OSError."""
    pid, uid, gid = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid, gid


async def identify(connection: trio.socket.SocketType, administrator_group: str) -> Peer:
    """Ask the kernel. Raises OSError where a tenant cannot be named, whose limits would be unknown, or
    his group be looked for; who may see why, may come in.
    """
    pid, uid, gid = peer_credentials(connection)
    groups = await peer_groups(connection, uid, gid)
    administrator = uid in (0, os.geteuid())
    if not administrator:
        administrator = await in_thread(group_number, administrator_group) in {gid, *groups}
    try:
        tenant = await in_thread(user_name, uid)
    except OSError:
        if not administrator:
            raise
        tenant = str(uid)
    return Peer(uid=uid, gid=gid, pid=pid, groups=groups, tenant=tenant, administrator=administrator)


async def peer_groups(connection: trio.socket.SocketType, uid: int, gid: int) -> tuple[int, ...]:
    """The supplementary groups of the peer's process; the user's own where those are too many to read."""
    try:
        packed = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, OPTION_BYTES)
    except OSError:
        name = await in_thread(user_name, uid)
        return tuple(await in_thread(os.getgrouplist, name, gid))
    return struct.unpack(f"{len(packed) // 4}I", packed)


async def tenant_name(uid: int) -> str:
    """The user's name, or the uid where it has none; once that can be told."""
    return await patiently(lambda: user_name(uid))


def user_name(uid: int) -> str:
    """Blocking: asks the name service. Raises OSError."""
    entry = known(lambda: pwd.getpwuid(uid))
    return str(uid) if entry is None else entry.pw_name


def group_number(name: str) -> int | None:
    """Blocking: the gid of a group; None where there is none of that name. Raises OSError."""
    entry = known(lambda: grp.getgrnam(name))
    return None if entry is None else entry.gr_gid


def known(ask: Callable[[], Entry]) -> Entry | None:
    """What the name service knows, which is nothing when it cannot open a file. Raises OSError then."""
    for _ in range(2):  # what kept it from opening one may be over by the time that we try
        try:
            return ask()
        except KeyError:
            os.close(os.open("/", os.O_PATH))
    return None


def peer_pidfd(connection: trio.socket.SocketType, peer: Peer) -> int:
    """A pidfd of the peer, the caller's to close. Raises OSError when it has ended."""
    try:
        descriptor = struct.unpack("i", connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4))[0]
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:  # the peer has ended: its pid may be somebody else's by now
            raise
        return os.pidfd_open(peer.pid)
    os.set_inheritable(descriptor, False)
    return int(descriptor)
