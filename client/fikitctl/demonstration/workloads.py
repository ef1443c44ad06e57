"""Recorded workloads: the trace file, read and checked.

The file is JSON, plain or compressed with gzip: ``workloads`` has by name what ``Recording`` declares. It
holds every operation of a few iterations, in microseconds from the first one, with the host time of each
launch. A profiler slowed the host down while it recorded, but not the GPU; so host times are scaled here
until an iteration lasts as long as it did without the profiler. They are never stretched: an iteration that
was longer than what its host did was waiting for the GPU, and will be again.

Columns may come in any order, those of ``OPTIONAL`` may be missing, and unknown ones are ignored. Operations
that do not part into equal iterations count as one long iteration.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from fikit.protocol import UNDECODABLE
from msgspec import Meta, Struct

from fikitctl.whole_file import read_whole

Kind = Literal["kernel", "gpu_memcpy", "gpu_memset"]
Copy = Literal["to_device", "to_host", "on_device"]

_DIRECTIONS: Final[dict[str, Copy]] = {
    "HtoD": "to_device",
    "DtoH": "to_host",
    "DtoD": "on_device",
    "PtoP": "on_device",
    "HtoA": "to_device",
    "AtoH": "to_host",
    "AtoA": "on_device",
    "AtoD": "on_device",
    "DtoA": "on_device",
    "HtoH": "on_device",
}
"""By what CUPTI calls them; A is an array, in the device's memory. One between host memory has its place in
its stream, and takes nothing of the link."""
_GZIP: Final = b"\x1f\x8b"
_Index = Annotated[int, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=0, le=2**62)]
_Axis = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_ShortAxis = Annotated[int, Meta(ge=0, le=65535)]
_Axes = tuple[_Axis, _ShortAxis, _ShortAxis]
_THREADS_PER_BLOCK: Final = 1024
_ThreadAxis = Annotated[int, Meta(ge=0, le=_THREADS_PER_BLOCK)]
_ShortThreadAxis = Annotated[int, Meta(ge=0, le=64)]
_ThreadAxes = tuple[_ThreadAxis, _ThreadAxis, _ShortThreadAxis]
_Moment = Annotated[float, Meta(ge=-1e12, le=1e12)]
_Duration = Annotated[float, Meta(ge=0, le=1e10)]
_UNKNOWN_GRID: Final = (132, 1, 1)
_UNKNOWN_BLOCK: Final = (_THREADS_PER_BLOCK, 1, 1)
_UNKNOWN_REGS: Final = 64
_WHOLE: Final = 2.0**53
"""A kernel whose shape was not recorded counts as one that fills the GPU, a block on each multiprocessor."""


class WorkloadError(Exception):
    """A trace file cannot be read, is not of this format, or lacks a workload."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Row(Struct, frozen=True):
    """One operation in the file: a value for each name in ``columns`` there."""

    kind: Kind
    name: _Index
    """Index into the recording's names."""
    grid: _Axes | None
    """None, or all 0: not known."""
    block: _ThreadAxes | None
    shared_bytes: Annotated[int, Meta(ge=0, le=2**20)] | None
    regs: Annotated[int, Meta(ge=0, le=1024)] | None
    stream: _Count | None
    launch_us: _Moment | None
    start_us: _Moment
    dur_us: _Duration
    bytes: _Count | None
    occupancy_pct: float | None


OPTIONAL: Final = frozenset(
    ("grid", "block", "shared_bytes", "regs", "stream", "launch_us", "bytes", "occupancy_pct")
)
"""Columns that a file need not have: as if every row had null there."""


class Recording(Struct, frozen=True):
    """One workload in the file."""

    iter_ms_unprofiled: Annotated[float, Meta(gt=0, le=1e7)]
    iters: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    names: list[str]
    columns: list[str]
    ops: Annotated[list[list[Any]], Meta(min_length=1)]


def _number(text: str) -> float:
    """JSON has one kind of number: 7.0, as who writes tables from columns with gaps writes it, is 7."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < _WHOLE else number


_RECORDING: Final = msgspec.json.Decoder(Recording, float_hook=_number)


class _File(Struct, frozen=True):
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
    from importlib.resources import files  # slow, and for this alone

    return Path(str(files("fikitctl").joinpath("data", "h200_kernel_traces.json.gz")))


def workload_names(path: Path | None = None) -> list[str]:
    """The workloads of a trace file (None: the shipped one). Raises WorkloadError."""
    return list(_read(path or shipped()).workloads)


def load_workload(name: str, path: Path | None = None) -> Workload:
    """One workload of a trace file (None: the shipped one). Raises WorkloadError."""
    return load_workloads([name], path)[0]


def load_workloads(names: Iterable[str], path: Path | None = None) -> list[Workload]:
    """Several workloads of a trace file, which is read once. Raises WorkloadError."""
    path = path or shipped()
    recordings = _read(path).workloads
    found = []
    for name in names:
        if name not in recordings:
            raise WorkloadError(f"no workload {name} in {path}", f"there are {', '.join(recordings)}")
        try:
            found.append(workload_of(name, _RECORDING.decode(recordings[name])))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:  # the last: nested too deeply
            raise WorkloadError(f"workload {name} in {path} is malformed: {error}") from error
    return found


def _read(path: Path) -> _File:
    try:
        with path.open("rb") as file:
            content = read_whole(file)
        if content.startswith(_GZIP):
            content = read_whole(gzip.GzipFile(fileobj=io.BytesIO(content)))
        return msgspec.json.decode(content, type=_File)
    except UNDECODABLE as error:
        raise WorkloadError(f"{path} is no trace file: {error}") from error
    except (OSError, EOFError, ValueError, zlib.error) as error:  # gzip.BadGzipFile is an OSError
        raise WorkloadError(f"cannot read the traces {path}: {error}") from error


def workload_of(name: str, recording: Recording) -> Workload:
    """The last recorded iteration, scaled. Raises ValueError where the recording contradicts itself."""
    rows = sorted(rows_of(recording), key=_launched)
    iters, iter_ms = recording.iters, recording.iter_ms_unprofiled
    if len(rows) % iters:
        iters, iter_ms = 1, iter_ms * iters
    size = len(rows) // iters
    iterations = [rows[start : start + size] for start in range(0, len(rows), size)]
    scale = host_scale(iterations, iter_ms)
    origin = _launched(iterations[-1][0])
    return Workload(
        name=name,
        iter_ms=iter_ms,
        operations=tuple(
            _operation(row, recording.names, (_launched(row) - origin) * scale) for row in iterations[-1]
        ),
        pause_us=_pause(iterations) * scale,
    )


def rows_of(recording: Recording) -> list[Row]:
    """The operations by name of column. Raises ValueError, which names the row and the column."""
    columns, rows = recording.columns, recording.ops
    for column in columns:
        if columns.count(column) > 1:
            raise ValueError(f"column {column} is there twice")
    for number, row in enumerate(rows):
        if len(row) != len(columns):
            raise ValueError(f"ops[{number}] has {len(row)} values for {len(columns)} columns")
    found: list[Sequence[Any]] = []
    for field in msgspec.structs.fields(Row):
        if field.name in columns:
            place = columns.index(field.name)
            found.append(_checked(field.name, [row[place] for row in rows], field.type))
        elif field.name in OPTIONAL:
            found.append([None] * len(rows))
        else:
            raise ValueError(f"there is no column {field.name} among {', '.join(columns) or 'none'}")
    made = [Row(*values) for values in zip(*found, strict=True)]
    for number, each in enumerate(made):
        if problem := _problem(each, recording.names):
            raise ValueError(f"ops[{number}], {problem}")
    return made


def _checked(column: str, values: list[Any], kind: Any) -> list[Any]:
    try:
        return msgspec.convert(values, list[kind])
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        row = path.partition("[")[2].partition("]")[0]
        raise ValueError(f"ops[{row}], column {column}: {message}") from None


def _problem(row: Row, names: Sequence[str]) -> str | None:
    """What contradicts the rest, by column."""
    if row.name >= len(names):
        return f"column name: {row.name}, of {len(names)} names"
    if row.kind == "kernel" and row.block is not None and prod(row.block) > _THREADS_PER_BLOCK:
        return f"column block: {prod(row.block)} threads, {_THREADS_PER_BLOCK} is the most"
    for column, axes in (("grid", row.grid), ("block", row.block)):
        if axes is not None and any(axes) and not all(axes):
            return f"column {column}: {list(axes)}, of which none or all can be 0 (not known)"
    if row.kind == "gpu_memcpy" and _direction(names[row.name]) is None:
        return f"column name: {names[row.name]!r} does not say where it copies ({', '.join(_DIRECTIONS)})"
    return None


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
    name, stream = names[row.name], row.stream or 0
    if row.kind != "kernel":
        copy = _direction(name) if row.kind == "gpu_memcpy" else None
        return Operation(row.kind, name, stream, at_us, row.dur_us, bytes=max(1, row.bytes or 0), copy=copy)
    grid, block, regs = _UNKNOWN_GRID, _UNKNOWN_BLOCK, _UNKNOWN_REGS
    if row.grid is not None and row.block is not None and any(row.grid) and any(row.block):
        grid, block, regs = row.grid, row.block, row.regs or 0
    return Operation(
        kind=row.kind,
        name=name,
        stream=stream,
        at_us=at_us,
        dur_us=row.dur_us,
        grid=grid,
        block=block,
        shared_bytes=row.shared_bytes or 0,
        regs=regs,
        occupancy=row.occupancy_pct or 0.0,
    )


def _direction(name: str) -> Copy | None:
    return next((direction for mark, direction in _DIRECTIONS.items() if mark in name), None)
