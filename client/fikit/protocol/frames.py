"""Frames: bytes to bodies and back, without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, TypeVar

import msgpack
import msgspec
from msgspec import Meta, Struct

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
PORTION_BYTES: Final = MAX_FRAME_BYTES // 4
Record = TypeVar("Record", bound=Struct)
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are no such record: text may be no UTF-8, values nested too deeply."""


class ProtocolError(Exception):
    """The peer broke the protocol; the message says how. The connection cannot go on."""


class UnsendableError(ProtocolError):
    """What was to be sent fits into no frame: the sender's own mistake. The connection can go on."""


def encode(identifier: int, body: Struct) -> bytes:
    """One frame. Raises UnsendableError beyond MAX_FRAME_BYTES or 64 bits, and for text that is no UTF-8."""
    try:
        packed: bytes = msgpack.packb(
            {"id": identifier, "body": msgspec.to_builtins(body, builtin_types=(bytes,))}
        )
    except OverflowError as error:
        raise UnsendableError(f"a number in {type(body).__name__}: {error}") from None
    except UnicodeEncodeError as error:
        raise UnsendableError(
            f"a text in {type(body).__name__} is not UTF-8: {error.object!r:.200}"
        ) from None
    if len(packed) > MAX_FRAME_BYTES:
        raise UnsendableError(f"frame of {len(packed)} bytes exceeds the limit of {MAX_FRAME_BYTES}")
    return packed


def portions(records: Iterable[Record]) -> Iterator[list[Record]]:
    """All of them, in lists that fit into a frame with room to spare; none is empty."""
    portion: list[Record] = []
    size = 0
    for record in records:
        more = len(msgspec.msgpack.encode(record))
        if portion and size + more > PORTION_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(record)
        size += more
    if portion:
        yield portion


class Envelope(Struct, frozen=True, forbid_unknown_fields=True):
    """What every frame is."""

    id: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    body: msgspec.Raw


class Decoder:
    """Bytes in, ``(id, body)`` out. ``union`` is what the bodies may be (``AnyRequest`` or ``AnyReply``).

    Where a frame ends is found without making anything of it, and only what a body of the union has is made:
    16 MiB that hold 15 million lists would take the reader seconds, and a gigabyte, before it saw that they
    are no request.
    """

    def __init__(self, union: Any) -> None:
        self._envelope = msgspec.msgpack.Decoder(Envelope)
        self._body = msgspec.msgpack.Decoder(union)
        self._ends = msgpack.Unpacker(max_buffer_size=0)
        """Finds them; what it counts begins with the first byte that was fed."""
        self._received = bytearray()
        """Since the last frame's end, which was there."""
        self._there = 0
        self.sizes: list[int] = []
        """Of the frames that were given last."""

    def feed(self, data: bytes) -> None:
        """Add what was received."""
        self._received += data
        self._ends.feed(data)

    @property
    def unfinished(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return len(self._received)

    def frames(self) -> list[tuple[int, Any]]:
        """The frames completed so far. Raises ProtocolError for the first that is not one, or is too large.

        A frame whose envelope is right but whose body is not yields InvalidBody with its id, so that
        the peer can be told and the connection can go on.
        """
        complete, begin = [], 0
        self.sizes = []
        while (end := self._next_end()) is not None:
            self.sizes.append(end - begin)
            complete.append(self._decode(self._received[begin:end]))
            begin = end
        del self._received[:begin]
        self._there += begin
        self._check_size(len(self._received))
        return complete

    def _next_end(self) -> int | None:
        try:
            self._ends.skip()
        except msgpack.OutOfData:
            return None
        except Exception as error:  # ValueError and msgpack's own classes, of which some have no text
            raise not_a_frame(str(error) or type(error).__name__) from None
        return int(self._ends.tell()) - self._there

    def _decode(self, frame: bytearray) -> tuple[int, Any]:
        self._check_size(len(frame))
        try:
            envelope = self._envelope.decode(frame)
        except msgspec.ValidationError as error:
            raise ProtocolError(f"a frame is a map of 'id', below 2^63, and 'body': {error}") from None
        except UNDECODABLE as error:
            raise not_a_frame(str(error)) from None
        try:
            return envelope.id, self._body.decode(envelope.body)
        except msgspec.ValidationError as error:
            return envelope.id, InvalidBody(str(error))
        except UNDECODABLE as error:
            raise not_a_frame(str(error)) from None

    def _check_size(self, size: int) -> None:
        if size > MAX_FRAME_BYTES:
            raise ProtocolError(f"frame exceeds the limit of {MAX_FRAME_BYTES} bytes")


def not_a_frame(reason: str) -> ProtocolError:
    """What is no frame ends the connection: nobody knows where the next one begins."""
    return ProtocolError(f"not a MessagePack frame: {reason}")


class InvalidBody(Struct, frozen=True):
    """Takes the place of a body that does not fit any struct; ``message`` names the field."""

    message: str
