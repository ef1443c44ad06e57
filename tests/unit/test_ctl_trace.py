"""The Chrome JSON of a trace: what viewers demand of it holds for any recording."""

from __future__ import annotations

import json
import tracemalloc
from collections import defaultdict
from itertools import pairwise
from typing import Any

import msgspec
from fikit.protocol import SessionRecord, Trace, TraceOperation, Usage
from fikitctl.chrome_trace import PARTITIONS, chrome_trace
from fikitctl.rates import Rate, rates
from hypothesis import example, given
from hypothesis import strategies as st

SESSION = SessionRecord(
    session="session-1",
    tenant="ada",
    uid=1000,
    pid=1,
    name="serve",
    priority=0,
    gpu=0,
    executor="x",
    isolated=False,
    job=None,
    state="running",
    memory_limit_bytes=0,
    opened_unix=0,
    usage=Usage(),
)
LOW = msgspec.structs.replace(
    SESSION, session="session-2", tenant="bob", name="train", priority=9, job="job-7"
)
OPERATIONS = [
    TraceOperation("session-1", 0, "launch", "gemm", 1_000, 1_500, 2_000, 7_000, 0, 64, 0),
    TraceOperation("session-1", 1, "copy", "", 2_500, 2_500, 3_000, 9_000, 4096, 0, 0),
    TraceOperation("session-2", 0, "launch", "train", 1_200, 6_000, 6_500, 8_500, 0, 16, 16),
    TraceOperation("session-2", 3, "launch", "other", 1_300, 6_100, 6_600, 8_600, 0, 16, 16),
    TraceOperation("session-2", 0, "record", "", 9_000, 9_100, 0, 0, 0, 0, 0),
]


def _document(operations: list[TraceOperation], dropped: int = 0) -> dict[str, Any]:
    trace = Trace(operations=operations, dropped=dropped)
    document: dict[str, Any] = json.loads(b"".join(chrome_trace(trace, [SESSION, LOW], 0)))
    return document


def _check(document: dict[str, Any]) -> None:
    """What the format demands, and what keeps Perfetto from drawing nonsense."""
    named: set[tuple[int, int]] = set()
    processes: set[int] = set()
    spans: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    open_waits: dict[int, float] = {}
    for event in document["traceEvents"]:
        place = (event["pid"], event["tid"])
        if event["ph"] == "M":
            (processes.add(event["pid"]) if event["name"] == "process_name" else None)
            (named.add(place) if event["name"] == "thread_name" else None)
            continue
        assert event["name"]
        assert event["ts"] >= 0
        assert event["pid"] in processes
        assert place in named
        if event["ph"] == "X":
            assert event["dur"] >= 0
            # Microseconds are fractions in binary: nanoseconds tell whether one ends before the next begins.
            began, lasted = round(event["ts"] * 1e3), round(event["dur"] * 1e3)
            spans[place].append((began, began + lasted))
        elif event["ph"] == "b":
            open_waits[event["id"]] = event["ts"]
        elif event["ph"] == "e":
            assert event["ts"] > open_waits.pop(event["id"])
        else:
            assert (event["ph"], event["s"]) == ("i", "t")
    assert not open_waits
    for (pid, tid), lane in spans.items():
        if pid == PARTITIONS and tid % 64 < 63:
            ordered = sorted(lane)
            assert all(ended <= started for (_, ended), (started, _) in pairwise(ordered))


def test_gaps_of_the_highest_priority_tell_how_much_was_filled() -> None:
    operations = [
        TraceOperation("session-1", 0, "launch", "a", 0, 500, 1_000, 2_000, 0, 64, 0),
        TraceOperation("session-1", 0, "launch", "b", 0, 2_100, 2_500, 3_000, 0, 64, 0),  # too short a gap
        TraceOperation("session-1", 0, "launch", "c", 0, 9_000, 13_000, 14_000, 0, 64, 0),
        TraceOperation("session-2", 0, "launch", "d", 0, 2_000, 2_500, 5_000, 0, 16, 16),
        TraceOperation("session-2", 1, "launch", "e", 0, 2_000, 4_000, 6_000, 0, 16, 16),
        TraceOperation("session-2", 0, "launch", "f", 0, 2_000, 12_000, 15_000, 0, 16, 16),
    ]
    document = _document(operations)
    _check(document)
    (gap,) = [event for event in document["traceEvents"] if event.get("cat") == "gap"]
    assert (gap["name"], gap["dur"], gap["args"]["filled_ns"]) == ("idle, 40% filled", 10.0, 4_000)


def test_a_recording() -> None:
    document = _document(OPERATIONS, dropped=3)
    _check(document)
    assert document["otherData"] == {"gpu": 0, "operations": 5, "dropped": 3}
    events = document["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] in ("process_name", "thread_name")]
    assert names == [
        "ada / session-1 (serve, high)",
        "bob / session-2 (job-7, low)",
        "stream 0",
        "stream 1",
        "stream 0",
        "stream 3",
        "GPU 0: multiprocessors",
        "whole GPU",
        "16 multiprocessors",
        "16 multiprocessors, beside (1)",
    ]
    gemm = next(event for event in events if event["ph"] == "X" and event["name"] == "gemm")
    assert (gemm["ts"], gemm["dur"], gemm["args"]["blocks"]) == (1.0, 5.0, 64)
    waits = [event["ts"] for event in events if event.get("cat") == "gate"]
    assert len(waits) == 8
    assert [event["cat"] for event in events if event["ph"] == "i"] == ["record"]


def test_an_empty_recording() -> None:
    assert _document([])["traceEvents"] == []


_TIME = st.integers(min_value=0, max_value=1_000_000)


@given(
    st.lists(
        st.builds(
            TraceOperation,
            st.sampled_from(["session-1", "session-2", "session-gone"]),
            st.integers(0, 200),
            st.sampled_from(["launch", "copy", "fill", "graph"]),
            st.sampled_from(["", "gemm"]),
            *[_TIME] * 4,
            st.just(0),
            st.just(0),
            st.sampled_from([0, 16, 66]),
        ),
        max_size=30,
    )
)
@example(
    [TraceOperation("session-1", 0, "launch", "", 0, issued, issued + 2, 3, 0, 0, 0) for issued in (0, 1)]
)
def test_any_recording(operations: list[TraceOperation]) -> None:
    """Times that make no sense included: unknown, or out of order."""
    _check(_document(operations))


def test_a_long_recording_needs_little_memory_to_be_written() -> None:
    count = 20_000
    recorded = Trace(operations=OPERATIONS * (count // len(OPERATIONS)), dropped=0)
    tracemalloc.start()
    for _ in chrome_trace(recorded, [SESSION, LOW], 0):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * count


def _used(gpu_ns: int, launches: int, at: float) -> SessionRecord:
    usage = Usage(gpu_ns=gpu_ns, launches=launches)
    return msgspec.structs.replace(SESSION, usage=usage, usage_unix=at)


def test_rates() -> None:
    scale = {0: 2.0}
    before = {rate.session.session: rate for rate in rates({}, [_used(1_000_000_000, 10, 100.0)], scale)}
    idle = msgspec.structs.replace(LOW, usage=Usage())
    found = rates(before, [idle, _used(1_500_000_000, 110, 102.0)], scale)
    assert [(rate.session.session, rate.gpu_share, rate.launches_per_second) for rate in found] == [
        ("session-1", 0.5, 50.0),
        ("session-2", 0.0, 0.0),
    ]


def test_rates_are_of_the_time_between_what_was_told_however_often_one_looks() -> None:
    before: dict[str, Rate] = {}
    shares = []
    for beat in (0, 0, 1, 1, 1, 2, 3):
        found = rates(before, [_used(beat * 500_000_000, beat, 100.0 + beat)], {0: 1.0})
        before = {rate.session.session: rate for rate in found}
        shares.append(found[0].gpu_share)
    assert shares == [0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5]


def test_a_clock_that_is_set_back_makes_no_rate() -> None:
    (before,) = rates({}, [_used(5_000_000_000, 5, 10.0)], {0: 1.0})
    (found,) = rates({"session-1": before}, [_used(6_000_000_000, 6, 9.0)], {0: 1.0})
    assert found.gpu_share == 0.5
