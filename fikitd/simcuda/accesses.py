"""Which bytes of device memory each launch read and wrote, as the simulated GPU saw it.

The interpreter knows every load and store, so this is the oracle for access sets: exact, per launch, of this
process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from fikitd.simcuda import library_path

KINDS: Final = ("read", "write", "atomic")
_NAME_BYTES: Final = 4096


@dataclass(frozen=True)
class Access:
    """Addresses [begin, end) that a launch touched; kind is read, write or atomic."""

    begin: int
    end: int
    kind: str


@dataclass(frozen=True)
class LaunchAccesses:
    """What one launch touched: sorted by kind and address, disjoint within a kind."""

    kernel: str
    accesses: tuple[Access, ...]

    def of(self, kind: str) -> list[tuple[int, int]]:
        """Return the ranges of one kind."""
        return [(access.begin, access.end) for access in self.accesses if access.kind == kind]


class _Range(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_uint64), ("end", ctypes.c_uint64), ("kind", ctypes.c_uint8))


class AccessLog:
    """The launches that began since the log was opened, in that order."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._library.fikitSimAccesses.restype = ctypes.c_long
        self._library.fikitSimAccesses.argtypes = (
            ctypes.c_ulong,
            ctypes.c_char_p,
            ctypes.c_ulong,
            ctypes.POINTER(_Range),
            ctypes.c_ulong,
        )

    def launches(self) -> list[LaunchAccesses]:
        """Return all launches; synchronise first, so that they have ended."""
        found: list[LaunchAccesses] = []
        while (launch := self._launch(len(found))) is not None:
            found.append(launch)
        return found

    def _launch(self, number: int) -> LaunchAccesses | None:
        count = self._library.fikitSimAccesses(number, None, 0, None, 0)
        if count < 0:
            return None
        name = ctypes.create_string_buffer(_NAME_BYTES)
        ranges = (_Range * count)()
        self._library.fikitSimAccesses(number, name, _NAME_BYTES, ranges, count)
        return LaunchAccesses(
            name.value.decode(), tuple(Access(one.begin, one.end, KINDS[one.kind]) for one in ranges)
        )


@contextmanager
def recorded() -> Iterator[AccessLog]:
    """Record what launches of this process touch, while the context lasts.

    The simulated library must be the process's libcuda (``python -m fikitd.simcuda``, or opened first).
    """
    library = ctypes.CDLL(str(library_path()))
    library.fikitSimRecordAccesses(1)
    try:
        yield AccessLog(library)
    finally:
        library.fikitSimRecordAccesses(0)
