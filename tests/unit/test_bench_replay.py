"""python -m bench.replay: its input, its output, and that it agrees with what was measured."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bench import replay
from bench.made import made
from bench.replay_results import TOLERATED, cells, summary
from bench.replayed import Replayer, ReplayError, Rule, Setup, program

try:
    program()
except ReplayError:
    pytest.skip("the native replay is not installed", allow_module_level=True)


def replayed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert replay.main([*arguments, "--seconds", "0.4", "--warmup", "0.3", "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.parametrize("policy", ["fikit", "fifo", "streams", "strict", "exclusive"])
def test_every_policy_replays_and_says_the_same_again(
    policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--hp", "bert_inf", "--lp", "bert_train", "--policy", policy)
    first = replayed(capsys, *arguments)
    assert first == replayed(capsys, *arguments)
    assert {
        "hp_p50_ratio",
        "hp_p99_ratio",
        "lp_ratio",
        "lp_of_bound",
        "fill_share",
        "decisions",
    } <= first.keys()
    assert 0.95 < first["hp_p50_ratio"] < 1.2
    assert 0.2 < first["lp_ratio"] < 1.05
    assert 0.1 < first["fill_share"] <= 1.0


def test_prediction_fills_where_a_fixed_rule_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    pair = ("--hp", "resnet50_inf", "--lp", "resnet50_train")
    streams, fikit = (replayed(capsys, *pair, "--policy", policy) for policy in ("streams", "fikit"))
    assert streams["hp_p99_ratio"] > fikit["hp_p99_ratio"]
    assert fikit["decisions"]["whole"] > 1000
    assert fikit["prediction_hit_rate"] > 0.95


def test_several_on_each_side(capsys: pytest.CaptureFixture[str]) -> None:
    result = replayed(capsys, "--hp", "bert_inf,llama1b_decode", "--lp", "bert_train,gpt2_train,bert_train")
    assert result["hp"] == ["bert_inf", "llama1b_decode"]
    assert result["hp_p99_ratio"] < 1.1
    assert result["lp_of_bound"] > 0.6


def test_figures_agree_with_those_measured() -> None:
    off = [cell for cell in cells() if cell.off > TOLERATED]
    assert off == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--hp", "nobody", "--lp", "bert_train"], "no workload nobody"),
        (["--hp", "bert_inf"], "--hp and --lp"),
        (["--hp", "bert_inf", "--lp", "bert_train", "--partitions", "32,96"], "the largest first"),
        (["--hp", "bert_inf", "--lp", "bert_train", "--partitions", "132"], "1 to 131 SMs"),
        (["--hp", "bert_inf", "--lp", "bert_train", "--seconds", "0"], "--seconds"),
        (
            ["--hp", "bert_inf", "--lp", "bert_train", "--seconds", "0.001", "--warmup", "0"],
            "use more --seconds",
        ),
    ],
)
def test_bad_input_is_named(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main(arguments) == 2
    assert complaint in capsys.readouterr().err


def test_a_trace_of_kernels_copies_and_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["kind", "name", "grid", "block", "shared_bytes", "regs", "stream", "launch_us", "start_us",
               "dur_us", "bytes", "occupancy_pct"]  # fmt: skip
    rows: list[list[Any]] = []
    for start in (0.0, 1000.0):
        rows.append(["gpu_memcpy", 1, None, None, None, None, 7, start, start + 5, 20.0, 1 << 20, None])
        rows += [
            ["kernel", 0, [64, 1, 1], [256, 1, 1], 0, 32, 7 + number % 2, None, start + 30 + 10 * number, 5.0,
             None, None]
            for number in range(20)
        ]  # fmt: skip
    workload = {
        "iter_ms_unprofiled": 0.9,
        "iters": 2,
        "names": ["k", "Memcpy HtoD"],
        "columns": columns,
        "ops": rows,
    }
    path = tmp_path / "traces.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"device": "x", "workloads": {"mine": workload}}).encode()))
    result = replayed(capsys, str(path), "--hp", "mine", "--lp", "mine,mine")
    assert result["hp_p99_ratio"] < 1.1
    assert result["lp_ratio"] > 0.3


def test_a_file_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "traces.json.gz"
    path.write_bytes(b"not a trace")
    assert replay.main([str(path), "--hp", "a", "--lp", "b"]) == 2
    assert "is no trace file" in capsys.readouterr().err


def test_made_workloads_are_the_same_every_time() -> None:
    assert made() == made()


def test_a_fixed_rule_confines() -> None:
    high, low = made()
    replayer = Replayer([high[0], low[0]])
    names = ([high[0].name], [low[0].name])
    setups = [Setup(policy="streams", seconds=0.3, rule=Rule(confine=size)) for size in (0, 32)]
    free, confined = replayer.run([(*names, setup) for setup in setups])
    assert confined["low"][0]["work"] < 0.6 * free["low"][0]["work"]


def test_a_summary_has_the_worst_of_each() -> None:
    results = [
        {"policy": "fikit", "hp_p99_ratio": tail, "lp_of_bound": bound}
        for tail, bound in ((1.0, 0.9), (1.1, 1.0))
    ]
    assert summary(results)["fikit"] == {
        "hp_p99_mean": 1.05,
        "hp_p99_worst": 1.1,
        "lp_of_bound_mean": 0.95,
        "lp_of_bound_worst": 0.9,
    }
