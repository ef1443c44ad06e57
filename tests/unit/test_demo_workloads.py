"""The trace file: what the shipped one holds, how host times are scaled, and what a malformed one is told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from fikitctl.demonstration.workloads import (
    Recording,
    Row,
    WorkloadError,
    load_workload,
    workload_names,
    workload_of,
)

NAMES = ["resnet50_inf", "bert_inf", "llama1b_decode", "resnet50_train", "gpt2_train", "bert_train"]
OPERATIONS = [342, 177, 946, 999, 1260, 1231]


def kernel(launch_us: float | None, start_us: float, dur_us: float = 2.0) -> Row:
    return Row("kernel", 0, (4, 2, 1), (64, 1, 1), 128, 40, 7, launch_us, start_us, dur_us, None, 12)


def recording(*rows: Row, iterations: int, iter_ms: float) -> Recording:
    return Recording(iter_ms, iterations, ["work"], list(Row.__struct_fields__), list(rows))


def test_the_shipped_traces() -> None:
    assert workload_names() == NAMES
    for name, operations in zip(NAMES, OPERATIONS, strict=True):
        workload = load_workload(name)
        times = [operation.at_us for operation in workload.operations]
        assert len(times) == operations
        assert times[0] == 0
        assert times == sorted(times)
        assert times[-1] + workload.pause_us <= workload.iter_ms * 1e3


def test_a_shipped_kernel_a_fill_and_a_copy() -> None:
    workload = load_workload("bert_train")
    copies = [operation for operation in workload.operations if operation.kind == "gpu_memcpy"]
    assert [(copy.copy, copy.bytes, copy.stream) for copy in copies] == [("on_device", 12582912, 7)]
    assert sum(operation.kind == "gpu_memset" for operation in workload.operations) == 141
    first = workload.operations[1]
    assert (first.kind, first.grid, first.block, first.regs) == ("kernel", (4096, 1, 1), (192, 1, 1), 32)
    assert first.occupancy == 94


def test_an_iteration_lasts_as_long_as_it_did_without_the_profiler() -> None:
    workload = workload_of(
        "w",
        recording(
            kernel(0, 5), kernel(60, 65, 5), kernel(100, 105), kernel(160, 165, 5), iterations=2, iter_ms=0.05
        ),
    )
    assert [operation.at_us for operation in workload.operations] == [0, 30]
    assert workload.pause_us == 15
    assert workload.operations[0].dur_us == 2


def test_host_times_are_never_stretched() -> None:
    workload = workload_of(
        "w",
        recording(kernel(0, 5), kernel(60, 400), kernel(90, 800), kernel(150, 900), iterations=2, iter_ms=1),
    )
    assert [operation.at_us for operation in workload.operations] == [0, 60]
    assert workload.pause_us == 0


def test_a_single_iteration_lasts_until_its_work_is_done() -> None:
    workload = workload_of("w", recording(kernel(0, 5), kernel(50, 98), iterations=1, iter_ms=0.05))
    assert [operation.at_us for operation in workload.operations] == [0, 25]


def test_a_launch_that_was_not_seen_counts_when_it_started() -> None:
    workload = workload_of("w", recording(kernel(0, 5), kernel(None, 50, 50), iterations=1, iter_ms=1))
    assert [operation.at_us for operation in workload.operations] == [0, 50]


ROW: list[Any] = ["kernel", 0, [4, 2, 1], [64, 1, 1], 128, 40, 7, 0.0, 5.0, 2.0, None, 12]


def document(**changes: Any) -> dict[str, Any]:
    workload = {
        "iter_ms_unprofiled": 1.0,
        "iters": 1,
        "names": ["Memcpy ???"],
        "columns": list(Row.__struct_fields__),
        "ops": [ROW],
    }
    return {"device": "some GPU", "workloads": {"w": workload | changes}}


def written(path: Path, content: Any) -> Path:
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = written(tmp_path / "traces", document())
    assert workload_names(path) == ["w"]
    assert len(load_workload("w", path).operations) == 1


def test_a_workload_that_there_is_not() -> None:
    with pytest.raises(WorkloadError, match="no workload llama in") as raised:
        load_workload("llama")
    assert raised.value.hint == f"there are {', '.join(NAMES)}"


def changed(place: int, value: Any) -> list[Any]:
    return [*ROW[:place], value, *ROW[place + 1 :]]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"iter_ms_unprofiled": 0}, r"`float` > 0.*iter_ms_unprofiled"),
        ({"iters": 2}, "1 operations do not make 2 equal iterations"),
        ({"ops": []}, "length >= 1"),
        ({"columns": ["kind"]}, r"its columns are \['kind'\]"),
        ({"ops": [ROW[:5]]}, "`array` of at least length 12"),
        ({"ops": [changed(0, "dance")]}, "Invalid enum value 'dance'"),
        ({"ops": [changed(1, 1)]}, "an operation has name 1 of 1"),
        ({"ops": [changed(2, None)]}, "has no grid"),
        ({"ops": [changed(2, [4, 0, 1])]}, "`int` >= 1"),
        ({"ops": [changed(9, -1.0)]}, "`float` >= 0"),
        ({"ops": [changed(0, "gpu_memset")]}, "has no bytes"),
        ({"ops": [[*changed(0, "gpu_memcpy")[:10], 64, None]]}, "does not say where it copies"),
    ],
)
def test_a_malformed_workload(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = written(tmp_path / "traces", document(**changes))
    with pytest.raises(WorkloadError, match=said) as raised:
        load_workload("w", path)
    assert f"workload w in {path} is malformed" in str(raised.value)


@pytest.mark.parametrize("content", [b"plain", gzip.compress(b"{}")[:-9], gzip.compress(b"{"), b""])
def test_what_is_no_trace_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "traces"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=str(path)):
        workload_names(path)


def test_a_file_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="No such file"):
        workload_names(tmp_path / "traces")
