"""One client connection: frames in, each request served in a task of its own, replies out in one queue.

Everything is bounded: requests outstanding, replies waiting, the time a peer may take to say Hello or to
read, and over all connections of a user what user.py counts. Who breaks a bound or the protocol is told why,
where that is still possible, and disconnected; nobody else notices. Requests of one connection may overtake
each other; a client that minds waits for the reply.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import structlog
import trio
from fikit.protocol import (
    PROTOCOL_VERSION,
    AnyRequest,
    Event,
    Failure,
    Hello,
    InvalidBody,
    ProtocolError,
    Reply,
    Request,
    Welcome,
    encode,
)

from fikitd.api.registry import HANDLERS, Caller, Handed
from fikitd.api.user import MOST_HELD_BYTES, MOST_OUTSTANDING, Turn, User
from fikitd.daemon import Daemon
from fikitd.errors import RequestError, Unavailable
from fikitd.scarcity import SCARCE, THREADS
from fikitd.tenants.peer import Peer, peer_pidfd
from fikitd.traces import Tracer
from fikitd.wire import PeerClosedError, Wire, close_all

MAX_OUTSTANDING: Final = 64
MAX_QUEUED_FRAMES: Final = 256
MAX_QUEUED_BYTES: Final = 32 << 20
HELLO_SECONDS: Final = 10.0
SEND_SECONDS: Final = 10.0


@dataclass
class Outgoing:
    """A frame that waits to be sent, with its descriptors."""

    frame: bytes
    descriptors: list[int] = field(default_factory=list)
    patience: float = SEND_SECONDS
    """So long it may take the client to read it."""


class OverwhelmedError(Exception):
    """The peer does not read what it asked for."""


class Connection:
    """Serves one client."""

    def __init__(self, stream: trio.socket.SocketType, daemon: Daemon, peer: Peer, user: User) -> None:
        self._wire = Wire(stream, AnyRequest)
        self._daemon = daemon
        self._user = user
        self._peer = peer
        self._open_pidfd = lambda: peer_pidfd(stream, peer)
        self._foreground: dict[int, int] = {}
        self._tracers: dict[int, Tracer] = {}
        self._send_queue, self._to_send = trio.open_memory_channel[Outgoing](MAX_QUEUED_FRAMES)
        self._queued_bytes = 0
        self._held_bytes = 0
        """Its part of what its user's connections hold."""
        self._unfinished = 0
        self._outstanding = 0
        self._all_sent = trio.Event()
        self._log = structlog.get_logger().bind(uid=peer.uid, pid=peer.pid)

    async def serve(self) -> None:
        """Serve until the peer leaves or must."""
        THREADS.set(self._user.threads)
        try:
            async with trio.open_nursery() as requests:
                requests.start_soon(self._send_all, requests.cancel_scope)
                try:
                    await self._receive_all(requests)
                except (ProtocolError, OverwhelmedError) as error:
                    self._log.info("connection_refused", reason=str(error))
                    await self._say_last(Failure(code="protocol", message=str(error)))
                except PeerClosedError:
                    pass
                requests.cancel_scope.cancel()
        finally:
            self._discard()
            self._user.held_bytes -= self._held_bytes
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._user.closer.close, self._wire.socket)
                with trio.CancelScope(shield=True):
                    await self._leave()

    async def _leave(self) -> None:
        for tracer in self._tracers.values():
            await self._daemon.traces.stop(tracer)
        for number in self._foreground:
            job = self._daemon.jobs.known.get(number)
            if job is not None and not job.over:
                await self._daemon.jobs.caller_gone(job)

    async def _receive_all(self, requests: trio.Nursery) -> None:
        greeted = False
        with trio.CancelScope(deadline=trio.current_time() + HELLO_SECONDS) as patience:
            while True:
                await self._wire.receive_plain()
                async with self._user.reading:
                    greeted = await self._take_frames(requests, greeted)
                if greeted:
                    patience.deadline = float("inf")
        if patience.cancelled_caught:
            raise ProtocolError(f"no hello within {HELLO_SECONDS:g} s")

    async def _take_frames(self, requests: trio.Nursery, greeted: bool) -> bool:
        """Begin what was asked; whether hello has been said. Raises ProtocolError, OverwhelmedError."""
        decoder = self._wire.frames
        frames = decoder.frames()
        self._hold(decoder.unfinished + sum(decoder.sizes) - self._unfinished)
        self._unfinished = decoder.unfinished
        if self._user.held_bytes > MOST_HELD_BYTES:
            raise OverwhelmedError(
                f"{MOST_HELD_BYTES} bytes of this user's wait to be served or read, the most that may"
            )
        for (identifier, body), size in zip(frames, decoder.sizes, strict=True):
            answer = self._refusal(body) if greeted else self._greet(body)
            greeted = True
            if answer is not None:
                self._queue(identifier, answer)
                self._hold(-size)
                continue
            turn = Turn(self._user)
            await turn.take()
            self._outstanding += 1
            self._user.outstanding += 1
            requests.start_soon(self._serve_one, requests.cancel_scope, turn, size, identifier, body)
        return greeted

    def _hold(self, more: int) -> None:
        self._held_bytes += more
        self._user.held_bytes += more

    def _greet(self, body: Request | InvalidBody) -> Reply:
        if isinstance(body, InvalidBody):
            raise ProtocolError(f"the first request must be hello: {body.message}")
        if not isinstance(body, Hello):
            raise ProtocolError(f"the first request must be hello, not {type(body).__struct_config__.tag}")
        if body.version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"this daemon speaks protocol version {PROTOCOL_VERSION}, not {body.version}:"
                " install the client that came with it"
            )
        peer = self._peer
        return Welcome(
            version=PROTOCOL_VERSION,
            daemon=self._daemon.version,
            uid=peer.uid,
            tenant=peer.tenant,
            administrator=peer.administrator,
            priority_ceiling=self._daemon.allowance(peer).priority_ceiling,
            start_seconds=math.ceil(self._daemon.supervisor.start_seconds),
        )

    def _refusal(self, body: Request | InvalidBody) -> Failure | None:
        """Why it is not served."""
        if isinstance(body, InvalidBody):
            return Failure(code="invalid", message=body.message)
        for whose, outstanding, most in (
            ("connection", self._outstanding, MAX_OUTSTANDING),
            ("user", self._user.outstanding, MOST_OUTSTANDING),
        ):
            if outstanding >= most:
                message = f"{most} requests of this {whose} are being served, the most that may be"
                return Failure(code="quota", message=message, hint="wait for their replies")
        return None

    async def _serve_one(
        self, connection: trio.CancelScope, turn: Turn, size: int, identifier: int, body: Request
    ) -> None:
        try:
            if not self._daemon.taken_over.is_set():
                async with turn.waiting():
                    await self._daemon.taken_over.wait()
            await self._answer(connection, turn, identifier, body)
        finally:
            turn.give_back()
            self._hold(-size)
            self._outstanding -= 1
            self._user.outstanding -= 1

    async def _answer(self, connection: trio.CancelScope, turn: Turn, identifier: int, body: Request) -> None:
        async def send_event(event: Event) -> None:
            """Waits for room: a slow subscriber loses events in his own queue (events.py), nothing else."""
            outgoing = Outgoing(encode(identifier, event), patience=math.inf)
            self._count_queued(len(outgoing.frame))
            try:
                await self._send_queue.send(outgoing)
            except trio.ClosedResourceError:
                raise OverwhelmedError("the connection is ending") from None

        caller = Caller(
            peer=self._peer,
            daemon=self._daemon,
            turn=turn,
            open_pidfd=self._open_pidfd,
            send_event=send_event,
            foreground=self._foreground,
            tracers=self._tracers,
        )
        try:
            answer = await HANDLERS[type(body)](caller, body)
        except RequestError as refusal:
            answer = refusal.failure()
        except OverwhelmedError:
            connection.cancel()
            return
        except Exception as error:
            scarce = isinstance(error, OSError) and error.errno in SCARCE
            if not scarce:
                self._log.exception("request_failed", request=type(body).__name__)
            if isinstance(error, OSError):
                what = "lacks what it needs" if scarce else "was refused what it needs"
                answer = Unavailable(f"the daemon {what}: {error}", "try again later").failure()
            else:
                answer = Failure(code="internal", message="a defect of the daemon; its log says more")
        try:
            self._queue(identifier, answer)
        except OverwhelmedError:
            connection.cancel()

    def _queue(self, identifier: int, answer: Reply | Handed) -> None:
        """Queue a reply. Raises OverwhelmedError."""
        reply, descriptors = (
            (answer.reply, answer.descriptors) if isinstance(answer, Handed) else (answer, [])
        )
        try:
            frame = encode(identifier, reply)
        except ProtocolError as error:
            frame = encode(
                identifier, Failure(code="invalid", message=f"the answer: {error}", hint="ask for less")
            )
        try:
            if self._queued_bytes + len(frame) > MAX_QUEUED_BYTES:
                raise trio.WouldBlock
            if self._user.held_bytes + len(frame) > MOST_HELD_BYTES:
                raise trio.WouldBlock
            self._send_queue.send_nowait(Outgoing(frame, descriptors))
            self._count_queued(len(frame))
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            close_all(descriptors)
            raise OverwhelmedError("the client does not read its replies") from None

    async def _send_all(self, connection: trio.CancelScope) -> None:
        async for outgoing in self._to_send:
            try:
                with trio.fail_after(outgoing.patience):
                    await self._wire.send(outgoing.frame, outgoing.descriptors)
            except (PeerClosedError, trio.TooSlowError):
                connection.cancel()
                return
            finally:
                self._count_queued(-len(outgoing.frame))
                close_all(outgoing.descriptors)
        self._all_sent.set()

    async def _say_last(self, failure: Failure) -> None:
        """Tell why the connection ends, once what was queued before is sent; never waits long."""
        try:
            self._queue(0, failure)
        except OverwhelmedError:
            return
        with trio.move_on_after(SEND_SECONDS):
            self._send_queue.close()
            await self._all_sent.wait()

    def _count_queued(self, more: int) -> None:
        self._queued_bytes += more
        self._hold(more)

    def _discard(self) -> None:
        while True:
            try:
                close_all(self._to_send.receive_nowait().descriptors)
            except (trio.WouldBlock, trio.EndOfChannel):
                return
