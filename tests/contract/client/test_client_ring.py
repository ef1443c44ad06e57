"""Random sequences of operations: what the executor parsed is what was enqueued, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fikit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Records = Callable[[], list[dict[str, Any]]]

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("launch"), st.integers(0, 2), st.integers(0, 2**32 - 1)),
        st.tuples(st.just("copy"), st.integers(0, 2), st.integers(1, 9000)),
        st.tuples(st.just("fill"), st.integers(0, 2), st.integers(0, 255)),
        st.tuples(st.just("event_record"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("flood"), st.integers(0, 2), st.integers(900, 1100)),
    ),
    max_size=20,
)


@settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(operations=OPERATIONS)
def test_what_is_parsed_is_what_was_enqueued(
    session: fikit.Session,
    module: fikit.Module,
    axpy: fikit.Kernel,
    records: Records,
    operations: list[tuple[str, int, int]],
) -> None:
    nothing = module.kernel("nothing")
    session.synchronize()
    before = len(records())
    expected: list[tuple[str, int, Any]] = []
    with session.allocate(9000) as memory, session.event() as event:
        streams = [session.stream() for _ in range(3)]
        for operation, index, value in operations:
            stream = streams[index]
            if operation == "launch":
                axpy.launch(0.0, memory, memory, value & 0xFF, grid=value or 1, block=1, stream=stream)
            elif operation == "copy":
                memory.copy_from(bytes(value), stream=stream)
            elif operation == "fill":
                memory.fill(value, stream=stream)
            elif operation == "event_record":
                event.record(stream)
            else:
                for _ in range(value):
                    nothing.launch(grid=1, block=1, stream=stream)
                expected += [("launch", stream.handle, [1, 1, 1])] * value
                continue
            subject: Any = {"launch": [value or 1, 1, 1], "copy": value, "fill": value}.get(operation)
            expected.append((operation, stream.handle, subject))
        session.synchronize()
        for stream in streams:
            stream.close()
    session.synchronize()
    assert [parsed for record in records()[before:] if (parsed := _seen(record))] == expected


def _seen(record: dict[str, Any]) -> tuple[str, int, Any] | None:
    subject = {"launch": "grid", "copy": "size", "fill": "value", "event_record": "none"}.get(record["op"])
    return (record["op"], record["stream"], record.get(subject)) if subject is not None else None
