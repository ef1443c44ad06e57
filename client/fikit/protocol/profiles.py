"""What is known of kernels."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from fikit.protocol.words import Count, KernelKey, Reply, Request

MOST_PROFILES: Final = 100_000
"""That are kept, some 100 MB, or fewer where names have more than 512 bytes: a program whose shapes never
repeat must not fill the disk.
"""
Extent = Annotated[int, Meta(ge=1, lt=1 << 32)]
"""As CUDA's launches have it: 32 bits."""
Measured = Annotated[int, Meta(ge=0, lt=1 << 32)]
"""Nanoseconds, launches or bytes, as executors keep them: 32 bits."""


class KernelGap(Struct, frozen=True, array_like=True):
    """From the launch of one kernel to that of another, its usual successor in a session."""

    before: KernelKey
    """The first of the two."""
    samples: Measured
    median_ns: Measured


class KernelProfile(Struct, frozen=True, kw_only=True):
    """What is known of one kernel key: durations are of the latest measured launches."""

    function: str
    module: KernelKey
    """Hash of the module's content."""
    grid: tuple[Extent, Extent, Extent]
    block: tuple[Extent, Extent, Extent]
    shared_bytes: Measured
    samples: Measured
    median_ns: Measured
    p95_ns: Measured
    shortest_ns: Measured = 0
    """What it takes beside nothing, smoothed; what was measured beside others only lowers it."""
    block_ns: Measured = 0
    """What one block takes: what it may delay others by."""
    wrong: Measured = 0
    """Durations less than half or more than twice of what was known."""
    key: str = ""
    """Hash of module, function and shape: how gaps name it."""
    gaps: list[KernelGap] = []


class ProfileRecord(KernelProfile, frozen=True, kw_only=True):
    """What is known of one kernel key on one model of device."""

    device: str


class ListProfiles(Request, tag="list_profiles", frozen=True):
    """Kernel profiles that the peer may see, from ``offset`` on, the most sampled first.

    Those that sessions of its user have learnt, and imported ones; an administrator sees everybody's.
    """

    limit: Annotated[int, Meta(ge=1, le=MOST_PROFILES)] = 1000
    offset: Count = 0


class Profiles(Reply, tag="profiles", frozen=True):
    """Answer to ``ListProfiles``; ``more``: of those that were asked for, these had room."""

    profiles: list[ProfileRecord]
    more: bool = False


class ImportProfiles(Request, tag="import_profiles", frozen=True):
    """Take over profiles that were exported elsewhere (administrator).

    ``more``: others follow; executors that run are told with the last.
    """

    profiles: list[ProfileRecord]
    more: bool = False


class ClearProfiles(Request, tag="clear_profiles", frozen=True):
    """Forget every profile (administrator)."""
