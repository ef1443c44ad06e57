"""Timed kernels have the recorded shapes, by formulas that were tried on the recorded machine."""

from __future__ import annotations

import re
from math import ceil

import pytest
from fikitctl.demonstration.shapes import Machine, block_us, blocks_at_a_time, shape_of
from fikitctl.demonstration.timed_kernels import entry_names, module_text
from fikitctl.demonstration.workloads import Operation, load_workload, workload_names

H200 = Machine(
    clock_khz=1_980_000,
    multiprocessors=132,
    threads=2048,
    registers=65536,
    blocks=32,
    shared_bytes=233472,
    shared_bytes_per_block=232448,
    reserved_shared_bytes=1024,
)


def kernels(workload: str) -> list[Operation]:
    return [each for each in load_workload(workload).operations if each.kind == "kernel"]


@pytest.mark.parametrize("workload", workload_names())
def test_as_tried_on_the_recorded_machine(workload: str) -> None:
    for each in kernels(workload):
        (x, y, z), (a, b, c) = each.grid, each.block
        blocks, threads, registers = x * y * z, (a * b * c + 31) // 32 * 32, max(16, each.regs)
        occupancy = min(32, 2048 // threads, 65536 // (registers * threads) or 1)
        occupancy = max(1, min(occupancy, 233472 // (each.shared_bytes + 1024)))
        longest_us = max(0.2, (each.dur_us - 1.0) / ceil(blocks / (132.0 * occupancy)))
        dynamic = 0 if occupancy >= 16 else min(max(0, int(233472 / occupancy) - 1024 - 512), 227 * 1024)
        assert blocks_at_a_time(each, H200) == occupancy
        assert block_us(each, H200) == pytest.approx(longest_us)
        shape = shape_of(each, H200)
        assert (shape.grid, shape.block) == (each.grid, each.block)
        assert shape.shared_bytes == dynamic & ~127
        assert abs(shape.cycles - longest_us * 1980) <= 1


@pytest.mark.parametrize("workload", workload_names())
def test_shared_memory_lets_as_many_blocks_in_as_fitted(workload: str) -> None:
    for each in kernels(workload):
        if (together := blocks_at_a_time(each, H200)) < 16:
            taken = shape_of(each, H200).shared_bytes + H200.reserved_shared_bytes
            assert H200.shared_bytes // taken == together


def test_a_recording_without_registers_counts_as_usual() -> None:
    operation = Operation("kernel", "k", 7, 0, 10, block=(1024, 1, 1))
    assert blocks_at_a_time(operation, H200) == 2


def test_a_machine_of_its_attributes() -> None:
    attributes = {
        13: 1_980_000, 16: 132, 39: 2048, 82: 65536, 106: 32, 81: 233472, 97: 232448, 111: 1024, 1: 7
    }  # fmt: skip
    assert Machine.of(attributes) == H200
    with pytest.raises(KeyError):
        Machine.of({})


@pytest.mark.parametrize("workload", workload_names())
def test_every_recorded_name_has_an_entry(workload: str) -> None:
    names = {each.name for each in kernels(workload)}
    entries = entry_names(each.name for each in kernels(workload))
    assert entries.keys() == names
    assert len(set(entries.values())) == len(names)
    assert all(re.fullmatch(r"[A-Za-z]\w{0,90}", entry, re.ASCII) for entry in entries.values())
    text = module_text(entries.values())
    assert text.count(".visible .entry") == len(names)


@pytest.mark.parametrize(
    ("recorded", "entry"),
    [
        ("nvjet_sm90_tst_256x8_64x6_2x1_v_bz_TNT", "nvjet_sm90_tst_256x8_64x6_2x1_v_bz_TNT_0"),
        (
            "void at::native::(anonymous namespace)::fill<4, at::F<int>>(int, at::F<int>)",
            "fill_0",
        ),
        ("64 x", "kernel_64_x_0"),
        ("", "kernel__0"),
        ("a" * 100, "a" * 80 + "_0"),
    ],
)
def test_entries_are_called_what_one_recognises(recorded: str, entry: str) -> None:
    assert entry_names([recorded]) == {recorded: entry}
