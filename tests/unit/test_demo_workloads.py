"""The trace file: what the shipped one holds, how host times are scaled, and what a malformed one is told."""

from __future__ import annotations

import gzip
import json
from math import isfinite, prod
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NAMES = ["resnet50_inf", "bert_inf", "llama1b_decode", "resnet50_train", "gpt2_train", "bert_train"]
OPERATIONS = [342, 177, 946, 999, 1260, 1231]


COLUMNS = list(Row.__struct_fields__)


def kernel(launch_us: float | None, start_us: float, dur_us: float = 2.0) -> list[Any]:
    return ["kernel", 0, (4, 2, 1), (64, 1, 1), 128, 40, 7, launch_us, start_us, dur_us, None, 12]


def recording(*rows: list[Any], iterations: int, iter_ms: float) -> Recording:
    return Recording(iter_ms, iterations, ["work"], COLUMNS, list(rows))


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
        "columns": COLUMNS,
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
        ({"iters": 10**400}, "`int` <= 2147483647"),
        ({"ops": []}, "length >= 1"),
        ({"columns": ["kind"]}, r"ops\[0\] has 12 values for 1 columns"),
        ({"columns": [*COLUMNS[:11], "kind"]}, "column kind is there twice"),
        ({"columns": [*COLUMNS[:11], "other"], "ops": [[*ROW]], "iters": 0}, "`int` >= 1"),
        ({"columns": ["sort", *COLUMNS[1:]]}, "there is no column kind among sort, name"),
        ({"ops": [ROW, ROW[:5]]}, r"ops\[1\] has 5 values for 12 columns"),
        ({"ops": [ROW, changed(0, "dance")]}, r"ops\[1\], column kind: Invalid enum value 'dance'"),
        ({"ops": [changed(1, 1)]}, r"ops\[0\], column name: 1, of 1 names"),
        ({"ops": [ROW, ROW, changed(2, [4, -1, 1])]}, r"ops\[2\], column grid: Expected `int` >= 0"),
        ({"ops": [changed(2, [4, 1])]}, r"ops\[0\], column grid: Expected `array` of length 3"),
        ({"ops": [ROW, changed(2, [4, 0, 1])]}, r"ops\[1\], column grid: \[4, 0, 1\], of which none or all"),
        ({"ops": [changed(3, [0, 1, 1])]}, r"ops\[0\], column block: \[0, 1, 1\], of which none or all"),
        ({"ops": [changed(3, [1, 1, 65])]}, r"ops\[0\], column block: Expected `int` <= 64"),
        ({"ops": [changed(3, [64, 64, 1])]}, r"ops\[0\], column block: 4096 threads"),
        ({"ops": [changed(9, -1.0)]}, r"ops\[0\], column dur_us: Expected `float` >= 0"),
        ({"ops": [changed(8, 1e300)]}, r"ops\[0\], column start_us: Expected `float` <= 1000000000000.0"),
        ({"ops": [[*changed(0, "gpu_memcpy")[:10], 64, None]]}, "does not say where it copies"),
    ],
)
def test_a_malformed_workload(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = written(tmp_path / "traces", document(**changes))
    with pytest.raises(WorkloadError, match=said) as raised:
        load_workload("w", path)
    assert f"workload w in {path} is malformed" in str(raised.value)


def test_columns_in_another_order_without_the_optional_ones_and_with_others(tmp_path: Path) -> None:
    columns = ["dur_us", "name", "comment", "kind", "start_us"]
    ops = [[3.0, 0, "hello", "kernel", 10.0], [4.0, 0, None, "gpu_memset", 20.0]]
    path = written(tmp_path / "traces", document(columns=columns, ops=ops))
    first, second = load_workload("w", path).operations
    assert (first.kind, first.dur_us, first.at_us, first.stream) == ("kernel", 3.0, 0.0, 0)
    assert prod(first.grid) * prod(first.block) * first.regs == 132 * 65536  # it fills a GPU
    assert (second.kind, second.dur_us, second.at_us, second.bytes) == ("gpu_memset", 4.0, 10.0, 1)


@pytest.mark.parametrize("as_what", [int, float])
def test_a_whole_number_is_one_however_it_is_written(tmp_path: Path, as_what: type) -> None:
    row = [[*map(as_what, each)] if isinstance(each, list | tuple) else each for each in ROW]
    row[1:2], row[4:7] = map(as_what, row[1:2]), map(as_what, row[4:7])
    path = written(tmp_path / "traces", document(ops=[row]))
    (only,) = load_workload("w", path).operations
    assert (only.grid, only.block, only.shared_bytes, only.regs) == (tuple(ROW[2]), tuple(ROW[3]), *ROW[4:6])
    path = written(tmp_path / "traces", document(ops=[changed(5, 40.5)]))
    with pytest.raises(WorkloadError, match=r"ops\[0\], column regs: Expected `int"):
        load_workload("w", path)


@pytest.mark.parametrize(
    ("kind", "copy"),
    [
        *(("HtoD", "to_device"), ("DtoH", "to_host"), ("HtoA", "to_device"), ("AtoH", "to_host")),
        *((kind, "on_device") for kind in ("DtoD", "PtoP", "AtoA", "AtoD", "DtoA", "HtoH")),
    ],
)
def test_every_kind_of_copy_that_is_recorded(tmp_path: Path, kind: str, copy: str) -> None:
    ops = [ROW, [*changed(0, "gpu_memcpy")]]
    path = written(tmp_path / "traces", document(names=[f"Memcpy {kind} (Pinned -> Device)"], ops=ops))
    assert load_workload("w", path).operations[1].copy == copy


@pytest.mark.parametrize("place", [2, 3])
@pytest.mark.parametrize("shape", [None, [0, 0, 0]])
def test_a_kernel_of_unknown_shape_fills_the_gpu(tmp_path: Path, place: int, shape: Any) -> None:
    path = written(tmp_path / "traces", document(ops=[changed(place, shape)]))
    (only,) = load_workload("w", path).operations
    assert (only.grid, only.block) == ((132, 1, 1), (1024, 1, 1))


def test_what_does_not_part_into_equal_iterations_is_one(tmp_path: Path) -> None:
    path = written(tmp_path / "traces", document(iters=2, ops=[kernel(at, at) for at in (0, 10, 1000)]))
    workload = load_workload("w", path)
    assert workload.iter_ms == 2.0
    assert [each.at_us for each in workload.operations] == [0, 10, 1000]


def test_a_file_that_is_not_compressed(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(document()))
    assert load_workload("w", path).operations


def complaint(path: Path) -> str:
    try:
        load_workload("w", path)
    except WorkloadError as error:
        return str(error)
    return ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=6,
)


@given(
    row=st.integers(0, 2),
    place=st.integers(0, 12),
    value=JSON,
    columns=st.permutations(COLUMNS),
    iters=st.integers(1, 4),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_is_read_or_named(
    tmp_path: Path, row: int, place: int, value: Any, columns: list[str], iters: int
) -> None:
    """Whatever one cell holds, in whatever order of columns: a workload, or an error that names the place."""
    ops = [[ROW[COLUMNS.index(column)] for column in columns] for _ in range(3)]
    ops[row][place:] = [value, *ops[row][place + 1 :]]
    path = written(tmp_path / "traces", document(columns=columns, ops=ops, iters=iters))
    said = complaint(path)
    if said:
        assert f"workload w in {path} is malformed: ops[{row}]" in said
        assert place == len(columns) or columns[place] in said
        return
    workload = load_workload("w", path)
    assert len(workload.operations) == (3 if iters in (1, 2, 4) else 1)
    assert all(isfinite(each.at_us) and prod(each.grid) > 0 for each in workload.operations)


@pytest.mark.parametrize(
    "content",
    [
        b"plain",
        gzip.compress(b"{}", mtime=0)[:-9],
        gzip.compress(b"{", mtime=0),
        b"",
        b'{"x":' + b"[" * 100_000,
        b'{"workloads":{"\xe9":{}}}',
    ],
)
def test_what_is_no_trace_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "traces"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=str(path)):
        workload_names(path)


def test_a_file_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="No such file"):
        workload_names(tmp_path / "traces")
