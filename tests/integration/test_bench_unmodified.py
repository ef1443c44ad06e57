"""bench.unmodified on the simulated GPU: programs at low priority beside one of high priority."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.build import ROOT

SERVICE = """
import time
from cuda.bindings import driver
assert driver.cuInit(0)[0] == 0 and driver.cuDevicePrimaryCtxRetain(0)[0] == 0
print("ready", flush=True)
time.sleep(600)
"""


def unmodified(output: Path, beside: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.unmodified", "query", "--device", "sim", "--output", str(output)]
    return subprocess.run(
        [*command, "--beside", beside, "--json", str(output / "matrix.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_programs_run_at_low_priority_once_the_other_is_ready(tmp_path: Path) -> None:
    service = tmp_path / "service.py"
    service.write_text(SERVICE)
    done = unmodified(tmp_path, f"{sys.executable} {service}")
    assert done.returncode == 0, done.stderr
    (program,) = json.loads((tmp_path / "matrix.json").read_text())["programs"]
    assert (program["name"], program["verdict"]) == ("query", "pass")
    log = (tmp_path / "daemon.log").read_text().splitlines()
    lines = [json.loads(line[line.index("{") :]) for line in log]
    opened = [line["priority"] for line in lines if line["event"] == "session_opened"]
    assert opened == [0, 9]
    assert len([line for line in lines if line["event"] == "executor_started"]) == 1


def test_one_that_ends_meanwhile_is_told(tmp_path: Path) -> None:
    done = unmodified(tmp_path, "false")
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"'false' ended meanwhile: {tmp_path / 'beside.out'}")
