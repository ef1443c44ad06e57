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
from dataclasses import dataclass
from typing import Final

import trio

from fikitd.scarcity import in_thread

SO_PEERGROUPS: Final = 59
SO_PEERPIDFD: Final = 77
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
    """Ask the kernel."""
    pid, uid, gid = peer_credentials(connection)
    groups = await peer_groups(connection, uid, gid)
    administrators = await in_thread(group_number, administrator_group)
    return Peer(
        uid=uid,
        gid=gid,
        pid=pid,
        groups=groups,
        tenant=await tenant_name(uid),
        administrator=uid in (0, os.geteuid()) or administrators in {gid, *groups},
    )


async def peer_groups(connection: trio.socket.SocketType, uid: int, gid: int) -> tuple[int, ...]:
    """The supplementary groups of the peer's process; the user's own where those are too many to read."""
    try:
        packed = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, OPTION_BYTES)
    except OSError:
        name = await tenant_name(uid)
        return tuple(await in_thread(os.getgrouplist, name, gid))
    return struct.unpack(f"{len(packed) // 4}I", packed)


async def tenant_name(uid: int) -> str:
    """The user's name, or the uid where it has none."""
    return await in_thread(user_name, uid)


def user_name(uid: int) -> str:
    """Blocking: asks the name service."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_number(name: str) -> int | None:
    """Blocking: the gid of a group; None where there is none of that name."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
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
