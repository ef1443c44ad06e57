"""What the players of a sharing benchmark play: recorded workloads as timed kernels, and real kernels.

The text is described in native/play.hpp. A plan computes nothing that matters, so buffers may overlap in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from fikit.nvrtc import compile_ptx, for_older_drivers
from fikitctl.demonstration.shapes import Machine, shape_of
from fikitctl.demonstration.timed_kernels import entry_names, module_text
from fikitctl.demonstration.workloads import Operation, Workload, load_workload

from bench.build import ROOT

MEBI: Final = 1 << 20


def recorded(workload: Workload, machine: Machine, image: Path) -> str:
    """A recorded workload; writes its kernels to ``image``."""
    kernels = [each for each in workload.operations if each.kind == "kernel"]
    entries = entry_names(each.name for each in kernels)
    image.write_text(module_text(entries.values()))
    numbers = {name: number for number, name in enumerate(entries)}
    shapes = {id(each): shape_of(each, machine) for each in kernels}
    most = dict.fromkeys(entries, 0)
    for each in kernels:
        most[each.name] = max(most[each.name], shapes[id(each)].shared_bytes)
    moved = max((each.bytes for each in workload.operations), default=0)

    def operation(each: Operation) -> str:
        if each.kind == "gpu_memset":
            return f"fill {each.at_us:.3f} 0 {each.bytes}"
        if each.copy is not None:
            return f"copy {each.at_us:.3f} {each.copy} 0 1 {each.bytes}"
        shape = shapes[id(each)]
        return _launch(
            each.at_us, numbers[each.name], shape.grid, shape.block, shape.shared_bytes, shape.cycles
        )

    lines = [
        f"image {image}",
        *(f"function {entry} {most[name]}" for name, entry in entries.items()),
        *([f"buffer {moved}"] * 2 if moved else []),
        f"pause {workload.pause_us:.3f}",
        *map(operation, workload.operations),
    ]
    return "\n".join(lines) + "\n"


def _launch(
    at_us: float,
    function: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int,
    *values: object,
) -> str:
    axes = " ".join(map(str, (*grid, *block)))
    return f"launch {at_us:.3f} {function} {axes} {shared_bytes} {' '.join(map(str, values))}"


# Real kernels. Function numbers in the order of KERNELS.
KERNELS: Final = ("multiply", "scale", "iterate")
_MULTIPLY, _SCALE, _ITERATE = range(len(KERNELS))
_TILE: Final = 64
_MATRIX: Final = 1024 * 1024 * 4
_ARRAY: Final = 128 * MEBI


def _multiply(at_us: float, size: int) -> str:
    """A product of two square matrices."""
    grid = (size // _TILE, size // _TILE, 1)
    return _launch(at_us, _MULTIPLY, grid, (256, 1, 1), 0, "@0", "@1", "@2", size)


def _scale(at_us: float, size: int) -> str:
    """A pass over ``size`` bytes, read and written."""
    return _launch(at_us, _SCALE, (2048, 1, 1), (256, 1, 1), 0, "@3", "@4", size // 4)


def _iterate(at_us: float, blocks: int, rounds: int) -> str:
    """Blocks that only compute, each for so many dependent operations of about 2 ns."""
    return _launch(at_us, _ITERATE, (blocks, 1, 1), (256, 1, 1), 0, "@0", rounds)


def _gemm_service() -> Iterator[str]:
    """Small products with the gaps of a host that thinks: what answers requests."""
    yield "pause 50"
    yield from (_multiply(number * 60.0, 512) for number in range(60))


def _gemm_chain() -> Iterator[str]:
    """Products back to back."""
    yield from (_multiply(0, 1024) for _ in range(60))


def _memory_chain() -> Iterator[str]:
    """Passes over memory back to back, bound by its bandwidth."""
    yield from (_scale(0, _ARRAY) for _ in range(60))


def _long_blocks() -> Iterator[str]:
    """Short kernels, and every eighth with blocks of about 1 ms."""
    for number in range(64):
        yield _iterate(0, 264, 500_000) if number % 8 == 7 else _multiply(0, 1024)


REAL: Final[dict[str, Callable[[], Iterable[str]]]] = {
    "gemm_service": _gemm_service,
    "gemm_chain": _gemm_chain,
    "memory_chain": _memory_chain,
    "long_blocks": _long_blocks,
}


def real(name: str, image: Path) -> str:
    """A workload of real kernels, which ``compiled`` wrote to ``image``."""
    lines = [
        f"image {image}",
        *(f"function {kernel} 0" for kernel in KERNELS),
        *[f"buffer {_MATRIX}"] * 3,
        *[f"buffer {_ARRAY}"] * 2,
        *REAL[name](),
    ]
    return "\n".join(lines) + "\n"


def compiled(architecture: str, image: Path) -> None:
    """Compile the real kernels. Raises MissingExtraError without NVRTC."""
    source = (ROOT / "bench/native/kernels.cu").read_text()
    ptx = compile_ptx(source, name="kernels.cu", architecture=architecture)
    image.write_bytes(for_older_drivers(ptx.rstrip(b"\0")))


def write(name: str, machine: Machine, architecture: str, traces: Path | None, folder: Path) -> Path:
    """The plan of a workload, real or recorded, in a file. Raises WorkloadError, MissingExtraError."""
    stem = quote(name, safe="")  # as a file's name, and a word of a plan: without slashes and spaces
    path = folder / f"{stem}.plan"
    if name in REAL:
        image = folder / "kernels.ptx"
        if not image.exists():
            compiled(architecture, image)
        path.write_text(real(name, image))
    else:
        path.write_text(recorded(load_workload(name, traces), machine, folder / f"{stem}.ptx"))
    return path
