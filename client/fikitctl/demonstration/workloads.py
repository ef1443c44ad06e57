"""Recorded workloads: the trace file, read and checked.

The file is JSON, compressed with gzip: ``device`` is where it was recorded, ``workloads`` has by name what
``Recording`` declares. It holds every operation of a few iterations, in microseconds from the first one,
with the host time of each launch. A profiler slowed the host down while it recorded, but not the GPU; so
host times are scaled here until an iteration lasts as long as it did without the profiler. They are never
stretched: an iteration that was longer than what its host did was waiting for the GPU, and will be again.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

Kind = Literal["kernel", "gpu_memcpy", "gpu_memset"]
Copy = Literal["to_device", "to_host", "on_device"]

_DIRECTIONS: Final[dict[str, Copy]] = {"HtoD": "to_device", "DtoH": "to_host", "DtoD": "on_device"}
_Count = Annotated[int, Meta(ge=0)]
_Axis = Annotated[int, Meta(ge=1)]
_Axes = tuple[_Axis, _Axis, _Axis]
_Duration = Annotated[float, Meta(ge=0)]


class WorkloadError(Exception):
    """A trace file cannot be read, is not of this format, or lacks a workload."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Row(Struct, array_like=True, frozen=True):
    """One operation in the file; ``columns`` there repeats these names."""

    kind: Kind
    name: _Count
    """Index into the recording's names."""
    grid: _Axes | None
    block: _Axes | None
    shared_bytes: _Count | None
    regs: _Count | None
    stream: _Count
    launch_us: float | None
    start_us: float
    dur_us: _Duration
    bytes: _Count | None
    occupancy_pct: float | None


class Recording(Struct, frozen=True):
    """One workload in the file."""

    iter_ms_unprofiled: Annotated[float, Meta(gt=0)]
    iters: Annotated[int, Meta(ge=1)]
    names: list[str]
    columns: list[str]
    ops: Annotated[list[Row], Meta(min_length=1)]


class _File(Struct, frozen=True):
    device: str
    workloads: dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of an iteration. ``grid`` to ``occupancy`` are a kernel's, ``copy`` a copy's."""

    kind: Kind
    name: str
    stream: int
    at_us: float
    """When the host enqueued it, from the iteration's start; scaled."""
    dur_us: float
    """How long it ran."""
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    regs: int = 0
    occupancy: float = 0.0
    """Percent, as recorded."""
    bytes: int = 0
    """Of a copy or a fill."""
    copy: Copy | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """One iteration of a recorded program."""

    name: str
    iter_ms: float
    """What an iteration takes on an idle GPU."""
    operations: tuple[Operation, ...]
    """In the order in which the host enqueued them."""
    pause_us: float
    """What the host did between an iteration's end and the next one's start; scaled."""


def shipped() -> Path:
    """The traces that come along."""
    return Path(str(files("fikitctl").joinpath("data", "h200_kernel_traces.json.gz")))


def workload_names(path: Path | None = None) -> list[str]:
    """The workloads of a trace file (None: the shipped one). Raises WorkloadError."""
    return list(_read(path or shipped()).workloads)


def load_workload(name: str, path: Path | None = None) -> Workload:
    """One workload of a trace file (None: the shipped one). Raises WorkloadError."""
    path = path or shipped()
    recordings = _read(path).workloads
    if name not in recordings:
        raise WorkloadError(f"no workload {name} in {path}", f"there are {', '.join(recordings)}")
    try:
        return workload_of(name, msgspec.json.decode(recordings[name], type=Recording))
    except (msgspec.DecodeError, ValueError) as error:
        raise WorkloadError(f"workload {name} in {path} is malformed: {error}") from error


def _read(path: Path) -> _File:
    try:
        return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=_File)
    except (OSError, EOFError, zlib.error) as error:  # gzip.BadGzipFile is an OSError
        raise WorkloadError(f"cannot read the traces {path}: {error}") from error
    except msgspec.DecodeError as error:
        raise WorkloadError(f"{path} is no trace file: {error}") from error


def workload_of(name: str, recording: Recording) -> Workload:
    """The last recorded iteration, scaled. Raises ValueError where the recording contradicts itself."""
    if tuple(recording.columns) != Row.__struct_fields__:
        raise ValueError(f"its columns are {recording.columns}, not {list(Row.__struct_fields__)}")
    if len(recording.ops) % recording.iters:
        raise ValueError(f"{len(recording.ops)} operations do not make {recording.iters} equal iterations")
    rows = sorted(recording.ops, key=_launched)
    size = len(rows) // recording.iters
    iterations = [rows[start : start + size] for start in range(0, len(rows), size)]
    scale = host_scale(iterations, recording.iter_ms_unprofiled)
    origin = _launched(iterations[-1][0])
    return Workload(
        name=name,
        iter_ms=recording.iter_ms_unprofiled,
        operations=tuple(
            _operation(row, recording.names, (_launched(row) - origin) * scale) for row in iterations[-1]
        ),
        pause_us=_pause(iterations) * scale,
    )


def host_scale(iterations: Sequence[Sequence[Row]], iter_ms: float) -> float:
    """By what to multiply recorded host times, so that an iteration lasts ``iter_ms``; at most 1."""
    starts = [_launched(iteration[0]) for iteration in iterations]
    if len(starts) > 1:
        period = (starts[-1] - starts[0]) / (len(starts) - 1)
    else:
        period = _end(iterations[0]) - starts[0]
    return min(1.0, iter_ms * 1e3 / period) if period > 0 else 1.0


def _pause(iterations: Sequence[Sequence[Row]]) -> float:
    """The mean time from an iteration's end to the next launch; 0 where the host did not wait for the GPU."""
    pauses = [
        max(0.0, _launched(following[0]) - _end(iteration)) for iteration, following in pairwise(iterations)
    ]
    return sum(pauses) / len(pauses) if pauses else 0.0


def _launched(row: Row) -> float:
    return row.start_us if row.launch_us is None else row.launch_us


def _end(iteration: Sequence[Row]) -> float:
    return max(row.start_us + row.dur_us for row in iteration)


def _operation(row: Row, names: Sequence[str], at_us: float) -> Operation:
    if row.name >= len(names):
        raise ValueError(f"an operation has name {row.name} of {len(names)}")
    name = names[row.name]
    if row.kind == "kernel":
        if row.grid is None or row.block is None:
            raise ValueError(f"kernel {name} has no grid or no block")
        return Operation(
            kind=row.kind,
            name=name,
            stream=row.stream,
            at_us=at_us,
            dur_us=row.dur_us,
            grid=row.grid,
            block=row.block,
            shared_bytes=row.shared_bytes or 0,
            regs=row.regs or 0,
            occupancy=row.occupancy_pct or 0.0,
        )
    if not row.bytes:
        raise ValueError(f"{name} has no bytes")
    copy = _direction(name) if row.kind == "gpu_memcpy" else None
    return Operation(row.kind, name, row.stream, at_us, row.dur_us, bytes=row.bytes, copy=copy)


def _direction(name: str) -> Copy:
    for mark, direction in _DIRECTIONS.items():
        if mark in name:
            return direction
    raise ValueError(f"{name!r} does not say where it copies ({', '.join(_DIRECTIONS)})")
