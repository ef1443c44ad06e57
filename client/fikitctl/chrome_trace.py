"""A recorded trace as Chrome JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

A session is a process of the trace, named by its tenant, and each of its streams a thread: operations of
one stream follow each other, so complete ("X") events never overlap there. Waits at the gate do overlap
what runs before them, hence asynchronous ("b"/"e") events, which viewers stack by themselves. One more
process has a thread for each partition of the multiprocessors; what runs at the same time on the same
partition is spread over lanes, because overlapping complete events would be drawn as nested. A session of
the highest priority has one more thread, with its gaps: when nothing of it ran, and how much of that others
filled.

The format: "Trace Event Format", Google, 2016. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, Final

import msgspec
from fikit.protocol import SessionRecord, Trace, TraceOperation, priority_name

PARTITIONS: Final = 1
"""The process id of the multiprocessors; sessions follow."""
LANES: Final = 64
"""Threads kept for each partition."""
GAPS: Final = 1 << 20
"""The thread of a session's gaps, below its streams."""
HIGHEST: Final = 0
SHORTEST_GAP_NS: Final = 1000

Events = Iterator[dict[str, Any]]


def chrome_trace(trace: Trace, sessions: Iterable[SessionRecord], gpu: int) -> Iterator[bytes]:
    """The document, piece by piece: the events of millions of operations would not fit in memory."""
    known = {session.session: session for session in sessions}
    operations = sorted(trace.operations, key=_first)
    # The device's clock is known to some microseconds: what it says may lie before the host's first time.
    origin = min((time for operation in operations for time in _times(operation)), default=0)
    numbers = {name: PARTITIONS + 1 + place for place, name in enumerate(_sessions(operations))}
    header = {
        "displayTimeUnit": "ns",
        "otherData": {"gpu": gpu, "operations": len(operations), "dropped": trace.dropped},
    }
    yield msgspec.json.encode(header)[:-1] + b',"traceEvents":['
    events = chain(
        _session_names(operations, numbers, known),
        _operations(operations, numbers, origin),
        _gaps(operations, numbers, known, origin),
        _partitions(operations, known, origin, gpu),
    )
    for number, event in enumerate(events):
        yield (b"," if number else b"") + msgspec.json.encode(event)
    yield b"]}"


def _times(operation: TraceOperation) -> list[int]:
    """Those that are known."""
    times = (operation.arrived_ns, operation.issued_ns, operation.started_ns, operation.ended_ns)
    return [time for time in times if time]


def _first(operation: TraceOperation) -> int:
    return next(iter(_times(operation)), 0)


def _sessions(operations: Iterable[TraceOperation]) -> list[str]:
    return sorted({operation.session for operation in operations})


def _microseconds(time_ns: int, origin: int) -> float:
    return (time_ns - origin) / 1000


def _metadata(name: str, pid: int, tid: int, argument: str, value: str | int) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": {argument: value}}


def _process(pid: int, name: str, order: int) -> Events:
    yield _metadata("process_name", pid, 0, "name", name)
    yield _metadata("process_sort_index", pid, 0, "sort_index", order)


def _thread(pid: int, tid: int, name: str) -> Events:
    yield _metadata("thread_name", pid, tid, "name", name)
    yield _metadata("thread_sort_index", pid, tid, "sort_index", tid)


def _owner(session: str, known: Mapping[str, SessionRecord]) -> tuple[str, int]:
    """What to call a session, and where to put it: high priority on top."""
    record = known.get(session)
    if record is None:
        return session, 100
    work = record.job or record.name
    return f"{record.tenant} / {session} ({work}, {priority_name(record.priority)})", 10 + record.priority


def _session_names(
    operations: Sequence[TraceOperation], numbers: Mapping[str, int], known: Mapping[str, SessionRecord]
) -> Events:
    for session, pid in numbers.items():
        yield from _process(pid, *_owner(session, known))
    streams = {(numbers[operation.session], operation.stream) for operation in operations}
    for pid, stream in sorted(streams):
        yield from _thread(pid, stream, f"stream {stream}")


def _arguments(operation: TraceOperation) -> dict[str, Any]:
    return {
        "bytes": operation.bytes,
        "blocks": operation.blocks,
        "multiprocessors": operation.partition or "all",
        "arrived_ns": operation.arrived_ns,
        "issued_ns": operation.issued_ns,
    }


def _operations(operations: Sequence[TraceOperation], numbers: Mapping[str, int], origin: int) -> Events:
    for number, operation in enumerate(operations):
        place = {"pid": numbers[operation.session], "tid": operation.stream}
        if operation.arrived_ns and operation.issued_ns > operation.arrived_ns:
            wait = {"name": "gate wait", "cat": "gate", "id": number, **place}
            yield {**wait, "ph": "b", "ts": _microseconds(operation.arrived_ns, origin)}
            yield {**wait, "ph": "e", "ts": _microseconds(operation.issued_ns, origin)}
        event = {"name": operation.name or operation.kind, "cat": operation.kind, **place}
        event["args"] = _arguments(operation)
        if _ran(operation):
            yield {**event, **_span(operation, origin)}
        else:
            yield {**event, "ph": "i", "s": "t", "ts": _microseconds(_first(operation), origin)}


def _ran(operation: TraceOperation) -> bool:
    return 0 < operation.started_ns <= operation.ended_ns


def _span(operation: TraceOperation, origin: int) -> dict[str, Any]:
    duration = (operation.ended_ns - operation.started_ns) / 1000
    return {"ph": "X", "ts": _microseconds(operation.started_ns, origin), "dur": duration}


def _gaps(
    operations: Sequence[TraceOperation],
    numbers: Mapping[str, int],
    known: Mapping[str, SessionRecord],
    origin: int,
) -> Events:
    ran = sorted(filter(_ran, operations), key=lambda operation: operation.started_ns)
    for session, pid in numbers.items():
        if session not in known or known[session].priority != HIGHEST:
            continue
        own = [operation for operation in ran if operation.session == session]
        others = _Covered([operation for operation in ran if operation.session != session])
        until, found = own[0].ended_ns if own else 0, False
        for operation in own[1:]:
            if operation.started_ns - until >= SHORTEST_GAP_NS:
                if not found:
                    yield from _thread(pid, GAPS, "gaps")
                found = True
                length, filled = operation.started_ns - until, others.within(until, operation.started_ns)
                yield {
                    "name": f"idle, {filled / length:.0%} filled",
                    "cat": "gap",
                    "ph": "X",
                    "pid": pid,
                    "tid": GAPS,
                    "ts": _microseconds(until, origin),
                    "dur": length / 1000,
                    "args": {"filled_ns": filled},
                }
            until = max(until, operation.ended_ns)


class _Covered:
    """When any of some operations ran; asked about spans in the order of time."""

    def __init__(self, ran: Iterable[TraceOperation]) -> None:
        self._spans: list[tuple[int, int]] = []
        for operation in ran:
            start, end = operation.started_ns, operation.ended_ns
            if self._spans and start <= self._spans[-1][1]:
                self._spans[-1] = (self._spans[-1][0], max(end, self._spans[-1][1]))
            else:
                self._spans.append((start, end))
        self._next = 0

    def within(self, start: int, end: int) -> int:
        """How much of the span they ran."""
        covered = 0
        while self._next < len(self._spans) and self._spans[self._next][1] <= start:
            self._next += 1
        place = self._next
        while place < len(self._spans) and self._spans[place][0] < end:
            begin, over = self._spans[place]
            covered += min(over, end) - max(begin, start)
            place += 1
        return covered


def _partitions(
    operations: Sequence[TraceOperation],
    known: Mapping[str, SessionRecord],
    origin: int,
    gpu: int,
) -> Events:
    ran = sorted(
        (operation for operation in operations if _ran(operation) and operation.kind in ("launch", "graph")),
        key=lambda operation: (operation.partition, operation.started_ns),
    )
    if ran:
        yield from _process(PARTITIONS, f"GPU {gpu}: multiprocessors", 0)
    for partition, members in groupby(ran, key=lambda operation: operation.partition):
        title = f"{partition} multiprocessors" if partition else "whole GPU"
        lanes: list[int] = []
        for operation in members:
            lane = _free_lane(lanes, operation)
            tid = partition * LANES + lane
            if lane == len(lanes):
                lanes.append(0)
                yield from _thread(PARTITIONS, tid, title if lane == 0 else f"{title}, beside ({lane})")
            lanes[lane] = operation.ended_ns
            yield {
                "name": operation.name or operation.kind,
                "cat": "partition",
                "pid": PARTITIONS,
                "tid": tid,
                "args": {"session": _owner(operation.session, known)[0]},
                **_span(operation, origin),
            }


def _free_lane(lanes: Sequence[int], operation: TraceOperation) -> int:
    free = (lane for lane, busy_until in enumerate(lanes) if busy_until <= operation.started_ns)
    return min(next(free, len(lanes)), LANES - 1)
