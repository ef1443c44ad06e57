"""The benchmark of real programs, all of it, with small programs on the simulated GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from fikit import protocol

from bench import build
from bench.workloads import HOST_ONLY

NATIVE = build.ROOT / "build/release/bench"
MODELS = build.ROOT / "tests/integration/shim/programs/tiny_workloads.py"


def measured(*options: str | Path) -> dict[str, Any]:
    library = NATIVE if (NATIVE / HOST_ONLY).exists() else build.build(["fikit_host_only"])
    command = [sys.executable, "-m", "bench.workloads", "--json", "--device", "sim", "--models", MODELS]
    done = subprocess.run(
        [*command, "--programs", library, *options],
        cwd=build.ROOT, capture_output=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_every_part_is_measured_and_what_fails_is_named(tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    result = measured(
        *("--solo", "service,broken", "--pairs", "service:batch,service:broken", "--lows", "1,2"),
        *("--start-ups", "service", "--rounds", "2", "--seconds", "0.1", "--output", output),
    )
    assert json.loads(output.read_text()) == result
    assert "ended with" in result["skipped"]["broken"]
    assert "ended with" in result["skipped"]["service:broken"]
    assert "time-sliced, mps" in result["skipped"]

    started = result["start_ups"]
    for way in ("native", "fikitd"):
        stages = list(started[way]["second"].values())
        assert stages == sorted(stages)
        assert len(started[way]["seconds_to_each_stage"]) == 2
    assert started["second_ratio"] > 0

    (alone,) = result["solo"]
    assert alone["workload"] == "service"
    assert alone["memory_mib"] == {"native": None, "fikitd": None}
    native, ours = alone["configurations"]
    assert native["hp_p50_ratio"] == 1.0
    assert ours["hp_p50_ratio"] > 0
    assert len(ours["rounds"]) == 2

    one, two = result["pairs"]
    assert len(one["configurations"][0]["rounds"]) == 2
    rows = {each["configuration"]: each for each in one["configurations"]}
    assert (one["lows"], two["lows"]) == (1, 2)
    assert set(rows) == {"alone", "control", "fikitd-fikit-alone", "fikitd-fikit"}
    assert [each["configuration"] for each in two["configurations"]] == ["fikitd-fikit"]
    assert rows["alone"]["hp_p99_ratio"] == rows["alone"]["lp_ratio"] == 1.0
    assert rows["control"]["lp_ratio"] is None
    assert rows["fikitd-fikit"]["lp_ratio"] > 0
    explained = one["explained"]["fikit"]
    priorities = {each["session"]["priority"] for each in [explained["gated"], *explained["beside"]]}
    assert priorities == {protocol.PRIORITIES["high"], protocol.PRIORITIES["low"]}


def test_where_nothing_runs_it_says_so() -> None:
    result = measured(*("--solo", "broken", "--pairs", "none", "--start-ups", "none", "--seconds", "0.1"))
    assert result["solo"] == []
    assert set(result["skipped"]) == {"solo", "broken", "time-sliced, mps"}


def test_what_there_is_no_time_for_is_refused() -> None:
    result = measured(
        *("--solo", "service", "--pairs", "none", "--start-ups", "none", "--seconds", "0.1", "--within", "1")
    )
    assert "raise --within" in result["skipped"]["solo"]
    assert result["solo"] == []
