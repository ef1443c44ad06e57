"""The demonstration's tenants end with it, also while they wait for the GPU."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.conftest import heed_hangups

STUCK = """
import os, sys, time
with open(sys.argv[1] + ".part", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(60)
"""
DEMO = """
import sys
from fikitctl.demonstration import phases
from fikitctl.demonstration.messages import Task
phases._STOP_SECONDS = 0.1
class Stuck(phases.Tenant):
    def __init__(self, task):
        super().__init__(task, [sys.executable, "-c", *sys.argv[1:]])
        started(sys.argv[2])
phases.Tenant = Stuck
task = Task(socket="", gpu=0, priority="high", workload="", traces=None, seconds=1.0)
with phases.measured([task], 1.0):
    pass
"""


NOTHING = """
def started(told): pass
"""
ENDED = """
import os, time
def started(told):
    while not os.path.exists(told): time.sleep(0.02)
    os.kill(os.getpid(), {number:d})
"""


@pytest.mark.parametrize("meanwhile", [NOTHING, ENDED], ids=["later", "as it starts"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_tenant_that_is_stuck_ends_with_whoever_started_it(
    tmp_path: Path, number: int, meanwhile: str
) -> None:
    told = tmp_path / "pid"
    text = meanwhile.format(number=number) + DEMO
    demo = subprocess.Popen([sys.executable, "-c", text, STUCK, str(told)], preexec_fn=heed_hangups)
    try:
        deadline = time.monotonic() + 30
        while not told.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        if meanwhile == NOTHING:
            demo.send_signal(number)
        assert demo.wait(30) == 128 + number
    finally:
        demo.kill()
        demo.wait()
    assert not Path("/proc", told.read_text()).exists()
