"""A file read as a whole: what never ends, as /dev/zero does, is refused instead of filling the memory."""

from __future__ import annotations

from typing import Final, Protocol

MOST_BYTES: Final = 256 << 20
_PIECE_BYTES: Final = 1 << 20


class Readable(Protocol):
    """As binary files are, compressed ones too."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none: the end."""


def read_whole(file: Readable) -> bytes:
    """All of it. Raises OSError; ValueError where there is more than may be.

    Piece by piece: an alarm that comes between two reads is heard before the next one.
    """
    content = bytearray()
    while piece := file.read(_PIECE_BYTES):
        content += piece
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    return bytes(content)
