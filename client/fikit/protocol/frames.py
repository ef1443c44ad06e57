"""Frames: bytes to bodies and back, without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import msgpack
import msgspec
from msgspec import Struct

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
PORTION_BYTES: Final = MAX_FRAME_BYTES // 4
Record = TypeVar("Record", bound=Struct)


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


class Decoder:
    """Bytes in, ``(id, body)`` out. ``union`` is what the bodies may be (``AnyRequest`` or ``AnyReply``)."""

    def __init__(self, union: Any) -> None:
        self._union = union
        self._unpacker = msgpack.Unpacker(
            max_buffer_size=MAX_FRAME_BYTES,
            max_str_len=MAX_FRAME_BYTES,
            max_bin_len=MAX_FRAME_BYTES,
            max_array_len=1 << 20,
            max_map_len=1 << 16,
            max_ext_len=0,
            strict_map_key=True,
        )

    def feed(self, data: bytes) -> None:
        """Add what was received. Raises ProtocolError when an unfinished frame grows too large."""
        try:
            self._unpacker.feed(data)
        except msgpack.BufferFull:
            raise ProtocolError(f"frame exceeds the limit of {MAX_FRAME_BYTES} bytes") from None

    def frames(self) -> list[tuple[int, Any]]:
        """The frames completed so far. Raises ProtocolError for the first that is not one.

        A frame whose envelope is right but whose body is not yields InvalidBody with its id, so that
        the peer can be told and the connection can go on.
        """
        complete = []
        while (frame := self._next()) is not None:
            complete.append(frame)
        return complete

    def _next(self) -> tuple[int, Any] | None:
        try:
            raw = self._unpacker.unpack()
        except msgpack.OutOfData:
            return None
        except Exception as error:  # msgpack raises ValueError, its own classes and UnicodeDecodeError
            reason = str(error) or type(error).__name__  # some of its own have no text
            raise ProtocolError(f"not a MessagePack frame: {reason}") from None
        if not isinstance(raw, dict) or raw.keys() != {"id", "body"}:
            raise ProtocolError("a frame is a map of 'id' and 'body'")
        identifier, body = raw["id"], raw["body"]
        if not isinstance(identifier, int) or isinstance(identifier, bool) or not 0 <= identifier < 1 << 63:
            raise ProtocolError("'id' is not an integer between 0 and 2^63")
        try:
            return identifier, msgspec.convert(body, self._union)
        except msgspec.ValidationError as error:
            return identifier, InvalidBody(str(error))


class InvalidBody(Struct, frozen=True):
    """Takes the place of a body that does not fit any struct; ``message`` names the field."""

    message: str
