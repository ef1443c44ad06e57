"""What the sharing benchmark reads out of steps, and the plans it writes."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fikitctl.demonstration.shapes import Machine
from fikitctl.demonstration.workloads import Operation, Workload

from bench import plans, report, sharing
from bench.playing import Reading, Steps

MACHINE = Machine(1_000_000, 10, 2048, 65536, 32, 100_000, 99_000, 1024)
MILLISECOND = 1_000_000


def test_a_step_that_reaches_beyond_the_window_counts_in_part() -> None:
    steps = Steps([(number * 4 * MILLISECOND, (number * 4 + 3) * MILLISECOND) for number in range(10)])
    window = (2 * MILLISECOND, 34 * MILLISECOND)
    assert steps.per_second(*window, 1.0) == pytest.approx(250.0)
    assert steps.per_second(*window, 8.0) == pytest.approx(2000.0)
    assert steps.durations_ms(*window, 1.0) == [3.0] * 7  # the one cut at its beginning is not among them


def test_nothing_played_is_no_throughput() -> None:
    assert Steps([]).per_second(0, MILLISECOND, 1.0) == 0.0


def test_ratios_are_taken_round_by_round() -> None:
    alone = [Reading(1.0, 2.0, 10.0), Reading(2.0, 4.0, 20.0), Reading(1.0, 2.0, 10.0)]
    shared = [Reading(1.5, 3.0, 5.0), Reading(3.0, 6.0, 10.0), Reading(1.5, 9.0, 5.0)]
    row = sharing.row("some", shared, alone, bound=shared)
    assert (row.hp_p50_ratio, row.hp_p99_ratio, row.lp_ratio) == (1.5, 1.5, 0.5)
    assert row.lp_of_bound == 1.0


def test_what_did_not_play_has_no_ratio() -> None:
    row = sharing.row("control", [Reading(1.0, 2.0, None)], [Reading(1.0, 1.0, 9.0)], [Reading(1, 1, 9.0)])
    assert (row.hp_p99_ratio, row.lp_ratio, row.lp_of_bound) == (2.0, None, None)


def test_a_recorded_plan_has_every_operation_in_its_order(tmp_path: Path) -> None:
    workload = Workload(
        name="w",
        iter_ms=1.0,
        operations=(
            Operation("kernel", "a<int>()", 7, 0.0, 11.0, (20, 2, 1), (128, 1, 1), regs=32),
            Operation("gpu_memset", "set", 7, 5.0, 1.0, bytes=64),
            Operation("kernel", "b", 7, 9.5, 3.0, (1, 1, 1), (32, 1, 1), regs=32),
            Operation("gpu_memcpy", "copy DtoD", 7, 10.0, 1.0, bytes=4096, copy="on_device"),
        ),
        pause_us=12.0,
    )
    lines = plans.recorded(workload, MACHINE, tmp_path / "image").splitlines()
    kinds = [line.split()[0] for line in lines]
    assert kinds == [
        *["image", "function", "function", "buffer", "buffer", "pause"],
        *["launch", "fill", "launch", "copy"],
    ]
    assert lines[6].startswith("launch 0.000 0 20 2 1 128 1 1 0 ")
    assert lines[6].split()[-1] == "10000"  # 10 us of blocks at 1 GHz, in one wave
    assert lines[7:10:2] == ["fill 5.000 0 64", "copy 10.000 on_device 0 1 4096"]
    assert (tmp_path / "image").read_text().count(".visible .entry") == 2


def test_a_workload_may_be_named_like_a_path(tmp_path: Path) -> None:
    row = ["kernel", 0, 0.0, 5.0]
    columns = ["kind", "name", "start_us", "dur_us"]
    recording = {"iter_ms_unprofiled": 1, "iters": 1, "names": ["k"], "columns": columns, "ops": [row]}
    traces = tmp_path / "traces.json"
    traces.write_text(json.dumps({"workloads": {"../a b": recording}}))
    folder = tmp_path / "folder"
    folder.mkdir()
    path = plans.write("../a b", MACHINE, "compute_90", traces, folder)
    image = path.read_text().splitlines()[0].split()
    assert path.parent == Path(image[1]).parent == folder
    assert len(image) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--traces", "/dev/null"], "/dev/null is no trace file"),
        (["--device", "no"], "there is no GPU no"),
        (["--device", "sim", "--seconds", "nan"], "--seconds and --within are above 0"),
        (["--device", "sim", "--within", "-1"], "--seconds and --within are above 0"),
    ],
)
def test_a_wrong_command_line_is_told(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        sharing.main(arguments)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("benchmark", ["dispatch", "loading", "unmodified", "workloads"])
def test_the_other_benchmarks_tell_a_wrong_device_so_too(benchmark: str) -> None:
    command = [sys.executable, "-m", f"bench.{benchmark}", "--device", "no"]
    ran = subprocess.run(command, cwd=plans.ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, "error: there is no GPU no" in ran.stderr) == (2, True), ran.stderr


def test_real_kernels_are_launched_by_their_number(tmp_path: Path) -> None:
    source = (plans.ROOT / "bench/native/kernels.cu").read_text()
    for name in plans.REAL:
        lines = plans.real(name, tmp_path / "image").splitlines()
        declared = [line.split()[1] for line in lines if line.startswith("function")]
        assert all(f"void {kernel}(" in source for kernel in declared)
        launched = {int(line.split()[2]) for line in lines if line.startswith("launch")}
        assert launched
        assert launched <= set(range(len(declared)))


@pytest.mark.parametrize("name", ["README.md", "docs/unmodified-programs.md"])
def test_documents_have_the_tables_that_their_results_give(name: str) -> None:
    path = plans.ROOT / name
    text = path.read_text()
    assert len(report.BLOCK.findall(text)) > 0
    assert report.renewed(text, path.parent) == text


def result_of(*rows: dict[str, object]) -> dict[str, Any]:
    return {"device": "some GPU", "skipped": {"mps": "none"}, "pairs": [
        {"high": "a", "low": "b", "configurations": rows}
    ]}  # fmt: skip


def configuration(name: str, p99: float | None, low: float | None) -> dict[str, object]:
    return {"configuration": name, "hp_p99_ratio": p99, "lp_ratio": low, "lp_of_bound": low}


def test_a_table_of_what_shares() -> None:
    rows = [configuration(name, 1.25, 0.5) for name in ("alone", "control", "mps", "fikitd-fikit")]
    text = report.markdown(result_of(*rows, configuration("fikitd-fikit-alone", 1.0, 1.0)))
    assert text.splitlines() == [
        "| high : low | MPS | fikitd, `fikit` |",
        "|---|---|---|",
        "| a : b | 1.25, 0.50 | 1.25, 0.50 |",
        "| mean | 1.25, 0.50 (0.50 of the bound) | 1.25, 0.50 (0.50 of the bound) |",
        "| worst | 1.25, 0.50 (0.50 of the bound) | 1.25, 0.50 (0.50 of the bound) |",
        "",
        "Left out: mps (none).",
    ]


def test_baselines_are_measured_in_the_first_rounds_only() -> None:
    options = argparse.Namespace(rounds=3, baseline_rounds=1, policies=["fikit"])
    names = ["alone", "control", "streams", "mps", "fikitd-fikit-alone", "fikitd-fikit"]
    first, *rest = sharing.schedule(names, options)
    assert first == names
    judged = ["alone", "streams", "fikitd-fikit"]
    assert rest == [judged[::-1], judged]


def test_what_there_is_time_for() -> None:
    assert sharing.affordable(1.2, 10, math.inf, 1.0) == 1.2
    assert sharing.affordable(1.2, 10, 6.25, 1.0) == pytest.approx(0.5)  # 0.025 to settle, 0.1 besides
    assert sharing.affordable(1.2, 10, 6.25, 4.0) == pytest.approx(0.125)
    assert sharing.affordable(1.2, 10, -3.0, 1.0) == sharing.LEAST_SECONDS


def test_the_picture_shows_every_configuration(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from bench.plot import draw

    rows = [
        configuration("alone", 1.0, 1.0),
        configuration("mps", 2.0, 0.9),
        configuration("control", 1, None),
    ]
    draw(result_of(*rows), tmp_path / "image.svg")
    text = (tmp_path / "image.svg").read_text()
    assert "<!-- mps -->" in text
    assert "<!-- alone -->" not in text


def workload_result() -> dict[str, Any]:
    def timed(name: str, p50: float, p99: float) -> dict[str, Any]:
        return {**configuration(name, p99, None), "hp_p50_ms": p50, "hp_p99_ms": p99, "hp_p50_ratio": p50}

    def of(lows: int, *rows: dict[str, Any]) -> dict[str, Any]:
        return {"high": "a", "low": "b", "lows": lows, "configurations": rows, **PART_TIMES}

    def unbound(name: str, p99: float, low: float | None) -> dict[str, Any]:
        times = {"hp_p50_ms": 1.0, "hp_p99_ms": p99, "hp_p50_ratio": 1.0, "lp_steps_per_second": 3.0}
        return {"configuration": name, "hp_p99_ratio": p99, "lp_ratio": low, "lp_of_bound": None, **times}

    stages = {"started": 0.1, "imported": 2.0, "built": 3.0, "stepped": 4.0}
    return {
        "benchmark": "workloads",
        "device": "some GPU",
        "driver": "",
        "commit": "c",
        "skipped": {},
        "start_ups": {
            "workload": "a",
            "first_ratio": 1.0,
            "second_ratio": 0.75,
            "native": {"first": stages, "second": stages},
            "fikitd": {"first": stages, "second": {**stages, "stepped": 3.0}},
        },
        "solo": [
            {
                "workload": "a",
                "memory_mib": {"native": 721.0, "fikitd": 0.0},
                "configurations": [timed("native", 1.0, 1.0), timed("fikitd-strict-alone", 0.5, 0.75)],
            }
        ],
        "pairs": [
            of(
                1,
                unbound("alone", 1.0, 1.0),
                unbound("control", 1.1, None),
                unbound("fikitd-strict", 1.0, 0.9),
            ),
            of(4, unbound("fikitd-strict", 1.2, 0.8)),
        ],
    }


PART_TIMES = {"seconds": 1.0, "set_up_seconds": 2.0, "all_seconds": 3.0}


def test_a_table_of_real_programs() -> None:
    assert report.markdown(workload_result()).splitlines() == [
        "| alone | native p50, p99 (ms) | under fikitd | ratio | GPU memory of the process (MiB) |",
        "|---|---|---|---|---|",
        "| a | 1.00, 1.00 | 0.50, 0.75 | 0.50, 0.75 | 721 : 0 |",
        "",
        "From exec to the first step of a: a first process 4.0 s natively, 4.0 s under fikitd, "
        "a second process 4.0 s natively, 3.0 s under fikitd.",
        "",
        "| high : low | control: the low side's host work only | fikitd, `strict` |",
        "|---|---|---|",
        "| a : b | 1.10 | 1.00, 0.90 |",
        "| a : 4 x b | - | 1.20, 0.80 |",
        "| mean | 1.10 | 1.10, 0.85 |",
        "| worst | 1.10 | 1.20, 0.80 |",
    ]


def test_real_programs_for_people() -> None:
    text = report.workloads_table(workload_result())
    assert "a : 4 x b" in text
    assert "fikitd      4.00   3.00" in text
    line = report.summary(workload_result()["pairs"][1])
    assert line.endswith("p99 and low of alone: fikitd-strict 1.200 0.800")
