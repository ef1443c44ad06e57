"""bench.loading runs on the simulated GPU: every way has launches, alone and beside loading."""

from __future__ import annotations

import json
import subprocess
import sys

from bench.build import ROOT


def test_launches_and_loads_natively_and_under_fikitd() -> None:
    command = [sys.executable, "-m", "bench.loading", "--device", "sim", "--seconds", "0.2"]
    done = subprocess.run(
        [*command, "--instructions", "100", "--json"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for way in ("native", "fikitd"):
        for part in ("alone", "beside", "loading"):
            figures = result[way][part]
            assert figures["count"] > 0
            assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["worst_ms"]
