"""What a session's GPU is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

# CUdevice_attribute
_MULTIPROCESSORS: Final = 16
_MAJOR: Final = 75
_MINOR: Final = 76


class MemoryInformation(NamedTuple):
    """In bytes, as the tenant's quota allows."""

    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU behind a session."""

    index: int
    """Its number at the daemon."""
    name: str
    uuid: bytes
    memory_bytes: int
    time_scale: float
    """Host seconds per device second; 1.0 on a real GPU."""
    attributes: Mapping[int, int] = field(repr=False, hash=False)
    """By CUdevice_attribute number."""

    @property
    def compute_capability(self) -> tuple[int, int]:
        """(major, minor)."""
        return self.attributes.get(_MAJOR, 0), self.attributes.get(_MINOR, 0)

    @property
    def multiprocessors(self) -> int:
        """How many the device has."""
        return self.attributes.get(_MULTIPROCESSORS, 0)
