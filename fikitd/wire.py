"""A Unix stream socket that carries frames and descriptors, for both sides the daemon speaks to.

Descriptors arrive with the last bytes of one receive (the kernel ends a receive at them), so keeping them in
one queue and letting the frame that mentions them take them from its front pairs them rightly.
Invariant: a descriptor is in the queue, or somebody's, or closed.
"""

from __future__ import annotations

import array
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog
import trio
from fikit.protocol import Decoder, ProtocolError

from fikitd.scarcity import PAUSE_SECONDS, in_thread

MAX_DESCRIPTORS: Final = 16
RECEIVE_BYTES: Final = 64 * 1024
ENDS_WITH_ITS_INPUT: Final = (sys.executable, "-I", "-S", "-c", "import os; os.read(0, 1)")


class PeerClosedError(Exception):
    """The other side has closed the connection, or it broke."""


def close_all(descriptors: Iterable[int]) -> None:
    """Close descriptors that nobody wants."""
    for descriptor in descriptors:
        os.close(descriptor)


class Closer:
    """Closes sockets that anybody may have sent to, and waits for none of them.

    The last close of a descriptor that nobody received may take as long as its maker likes: that of a socket
    that lingers does (close(2)), unless it is closed by the end of a process. So those that hold some are
    left to a process that ends: no more of them are kept here than come until it has.
    """

    def __init__(self) -> None:
        self._left: list[int] = []
        self._turn = trio.Lock()

    async def close(self, stream: trio.socket.SocketType) -> None:
        """Close it."""
        with suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)  # nothing more comes
        ours = socket.socket(fileno=stream.detach())
        if not holds_descriptors(ours):
            ours.close()
            return
        self._left.append(ours.detach())
        async with self._turn:
            while self._left:
                await in_thread(leave_to_process, self._left, abandon_on_cancel=True)


def leave_to_process(descriptors: list[int]) -> None:
    """Have a process close what is in the list by now, which is emptied; return as it has ended. Blocking."""
    leaving = descriptors.copy()
    try:
        process = subprocess.Popen(ENDS_WITH_ITS_INPUT, stdin=subprocess.PIPE, pass_fds=leaving)
    except OSError as error:  # descriptors, processes or memory: there may be some later
        structlog.get_logger().error("descriptors_unclosed", reason=str(error), connections=len(leaving))
        time.sleep(PAUSE_SECONDS)
        return
    del descriptors[: len(leaving)]
    close_all(leaving)
    process.communicate()


def holds_descriptors(shut: socket.socket) -> bool:
    """Whether there are some in what was not received; takes what comes before them."""
    with suppress(OSError):
        while True:
            seen, _, flags, _ = shut.recvmsg(RECEIVE_BYTES, 0, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            if flags & socket.MSG_CTRUNC:
                return True
            if not seen:
                break
            shut.recv(len(seen), socket.MSG_DONTWAIT)
    return False


class Wire:
    """Frames of ``union`` in, bytes and descriptors out. One receiver and one sender at a time."""

    def __init__(self, stream: trio.socket.SocketType, union: Any) -> None:
        self.socket = stream
        self.frames = Decoder(union)
        self._descriptors: deque[int] = deque()

    async def receive(self) -> list[tuple[int, Any]]:
        """The frames that the next bytes complete, perhaps none. Raises PeerClosedError, ProtocolError."""
        await self.receive_bytes()
        return self.frames.frames()

    async def receive_bytes(self) -> None:
        """Leave the next bytes with ``frames``. Raises PeerClosedError, ProtocolError."""
        try:
            data, ancillary, flags, _ = await self.socket.recvmsg(
                RECEIVE_BYTES, socket.CMSG_SPACE(MAX_DESCRIPTORS * 4), socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            raise PeerClosedError(str(error)) from None
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = array.array("i")
                whole.frombytes(content[: len(content) - len(content) % whole.itemsize])
                self._descriptors.extend(whole)
        if flags & socket.MSG_CTRUNC or len(self._descriptors) > MAX_DESCRIPTORS:
            raise ProtocolError(f"more than {MAX_DESCRIPTORS} descriptors")
        if not data:
            raise PeerClosedError("end of stream")
        self.frames.feed(data)

    async def receive_plain(self) -> None:
        """As ``receive_bytes``, from somebody who has no descriptors to hand over.

        Those that he sends all the same (ProtocolError) are not received: whoever closes one last may wait
        for as long as its maker likes.
        """
        try:
            seen, _, flags, _ = await self.socket.recvmsg(RECEIVE_BYTES, 0, socket.MSG_PEEK)
            if flags & socket.MSG_CTRUNC:
                raise ProtocolError("no request carries descriptors")
            data = await self.socket.recv(len(seen)) if seen else seen
        except OSError as error:
            raise PeerClosedError(str(error)) from None
        if not data:
            raise PeerClosedError("end of stream")
        self.frames.feed(data)

    def take_descriptors(self, count: int) -> list[int]:
        """The next ``count`` received descriptors, now the caller's. Raises ProtocolError if too few came."""
        if len(self._descriptors) < count:
            raise ProtocolError(f"{len(self._descriptors)} descriptors came where {count} were due")
        return [self._descriptors.popleft() for _ in range(count)]

    async def send(self, frame: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a whole frame; the descriptors stay the caller's. Raises PeerClosedError."""
        rights = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        )
        try:
            sent = await self.socket.sendmsg([frame], rights)
            while sent < len(frame):
                sent += await self.socket.send(memoryview(frame)[sent:])
        except OSError as error:
            raise PeerClosedError(str(error)) from None

    def close(self) -> None:
        """Close the socket and every descriptor nobody took."""
        close_all(self._descriptors)
        self._descriptors.clear()
        self.socket.close()
