"""How a recorded kernel is replayed on a machine: as one that only waits, of the same shape.

Same grid and block; as many blocks fit on a multiprocessor at a time, which dynamic shared memory sees to;
and a block waits so long that all waves of blocks together last as long as the recorded kernel. So what
the kernel leaves free for others, and for how long it holds on to what it has, are as recorded. It touches
no memory: interference in caches and bandwidth is not replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import ClassVar, Final, Self

from fikitctl.demonstration.workloads import Operation

# CUdevice_attribute
_CLOCK_KHZ: Final = 13
_MULTIPROCESSORS: Final = 16
_THREADS: Final = 39
_SHARED_BYTES: Final = 81
_REGISTERS: Final = 82
_SHARED_BYTES_PER_BLOCK: Final = 97
_BLOCKS: Final = 106
_RESERVED_SHARED_BYTES: Final = 111

WARP: Final = 32
OVERHEAD_US: Final = 1.0
"""What a recorded duration has besides its blocks."""
SHORTEST_BLOCK_US: Final = 0.2
FEWEST_REGISTERS: Final = 16
UNKNOWN_REGISTERS: Final = 32
CROWDED: Final = 16
"""From so many blocks on a multiprocessor, shared memory is left alone: threads and registers limit them."""
SLACK_BYTES: Final = 512
GRANULE_BYTES: Final = 128


@dataclass(frozen=True, slots=True)
class Machine:
    """What of a GPU decides how a kernel's blocks spread. All but the first two per multiprocessor."""

    clock_khz: int
    multiprocessors: int
    threads: int
    registers: int
    blocks: int
    shared_bytes: int
    shared_bytes_per_block: int
    reserved_shared_bytes: int
    """Taken by every block."""

    ATTRIBUTES: ClassVar = (
        _CLOCK_KHZ,
        _MULTIPROCESSORS,
        _THREADS,
        _REGISTERS,
        _BLOCKS,
        _SHARED_BYTES,
        _SHARED_BYTES_PER_BLOCK,
        _RESERVED_SHARED_BYTES,
    )

    @classmethod
    def of(cls, attributes: Mapping[int, int]) -> Self:
        """From the device's attributes, by CUdevice_attribute number. Raises KeyError for one it lacks."""
        return cls(*(attributes[number] for number in cls.ATTRIBUTES))


@dataclass(frozen=True, slots=True)
class Shape:
    """A timed kernel's launch."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    """Dynamic; holds the other blocks off."""
    cycles: int
    """How long each block waits."""


def blocks_at_a_time(operation: Operation, machine: Machine) -> int:
    """How many blocks of the recorded kernel fit on a multiprocessor."""
    threads = max(WARP, ceil(prod(operation.block) / WARP) * WARP)
    registers = max(FEWEST_REGISTERS, operation.regs or UNKNOWN_REGISTERS)
    limits = (
        machine.blocks,
        machine.threads // threads,
        machine.registers // (registers * threads),
        machine.shared_bytes // (operation.shared_bytes + machine.reserved_shared_bytes),
    )
    return max(1, min(limits))


def block_us(operation: Operation, machine: Machine) -> float:
    """How long a block lasts, so that all of them together take the recorded time."""
    together = machine.multiprocessors * blocks_at_a_time(operation, machine)
    waves = ceil(prod(operation.grid) / together)
    return max(SHORTEST_BLOCK_US, (operation.dur_us - OVERHEAD_US) / waves)


def shape_of(operation: Operation, machine: Machine) -> Shape:
    """The launch that replays a recorded kernel."""
    together = blocks_at_a_time(operation, machine)
    shared = 0
    if together < CROWDED:
        share = machine.shared_bytes // together - machine.reserved_shared_bytes - SLACK_BYTES
        shared = min(max(0, share), machine.shared_bytes_per_block) // GRANULE_BYTES * GRANULE_BYTES
    return Shape(
        grid=operation.grid,
        block=operation.block,
        shared_bytes=shared,
        cycles=round(block_us(operation, machine) * machine.clock_khz / 1e3),
    )
