"""The real kernels of the sharing benchmark (native/kernels.cu) as workloads of the replay.

Lengths are those measured on an H200. What the kernels do to each other, beside waiting for multiprocessors,
is fitted to what they took there together, on all multiprocessors and on partitions (DESIGN.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fikitctl.demonstration.workloads import Operation, Workload


@dataclass(frozen=True, slots=True)
class Interference:
    """What a kernel does to others beside taking room, and they to it (``native/replay_gpu.hpp``)."""

    pressure: float = 0.0
    """How hard it presses on caches and memory bandwidth from the whole GPU."""
    sensitivity: float = 0.0
    """How much longer it lasts for each of that."""
    crowding: float = 0.0
    """How much longer a block lasts for each other one on its multiprocessor."""
    confined: float = 1.0
    """How many times as long a block lasts on a partition, apart from that."""


_INTERFERENCE: Final = {
    "multiply_512": Interference(sensitivity=1.0, crowding=0.33),
    "multiply_1024": Interference(crowding=0.46),
    "scale": Interference(pressure=1.8, confined=0.72),
    "iterate": Interference(crowding=0.9),
}


@dataclass(frozen=True, slots=True)
class Interfering(Operation):
    """A kernel of which is known what it does to others. Nobody recorded that."""

    interference: Interference = Interference()


def _kernel(name: str, at_us: float, dur_us: float, blocks: int, regs: int, shared_bytes: int) -> Operation:
    return Interfering(
        kind="kernel",
        name=name,
        stream=0,
        at_us=at_us,
        dur_us=dur_us,
        grid=(blocks, 1, 1),
        block=(256, 1, 1),
        shared_bytes=shared_bytes,
        regs=regs,
        interference=_INTERFERENCE[name],
    )


def _multiply(at_us: float, size: int) -> Operation:
    blocks = (size // 64) ** 2
    return _kernel(f"multiply_{size}", at_us, {512: 48.0, 1024: 122.0}[size], blocks, 64, 8192)


def _long_blocks() -> Iterator[Operation]:
    for number in range(64):
        if number % 8 == 7:
            yield _kernel("iterate", 0.0, 1500.0, 264, 16, 0)
        else:
            yield _multiply(0.0, 1024)


def real() -> tuple[list[Workload], list[Workload]]:
    """The high one and the low ones, as bench/plans.py has them."""
    service = tuple(_multiply(number * 60.0, 512) for number in range(60))
    lows = {
        "gemm_chain": [_multiply(0.0, 1024) for _ in range(60)],
        "memory_chain": [_kernel("scale", 0.0, 90.0, 2048, 16, 0) for _ in range(60)],
        "long_blocks": list(_long_blocks()),
    }
    return [Workload("gemm_service", 3.6, service, 50.0)], [
        Workload(name, sum(each.dur_us for each in operations) / 1e3, tuple(operations), 0.0)
        for name, operations in lows.items()
    ]
