"""Programs that use several GPUs, on the driver itself and under a daemon."""

from __future__ import annotations

import sys

import pytest

from tests.integration.end_to_end.conftest import Served
from tests.integration.shim.conftest import PROGRAMS, Runner

TWO = {"FIKIT_SIM_DEVICES": "2"}


@pytest.fixture
def two_gpus(daemon: Served) -> Served:
    daemon.stop()
    daemon.start(**TWO)
    return daemon


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("name", ["devices", "devices_more"])
def test_a_program_with_two_devices_prints_the_same(
    monkeypatch: pytest.MonkeyPatch, natively: Runner, shared: Runner, name: str
) -> None:
    monkeypatch.setenv("FIKIT_SIM_DEVICES", "2")
    program = (sys.executable, str(PROGRAMS / f"{name}.py"))
    alone = natively(*program)
    assert alone[0] == 0, alone[2]
    assert shared(*program) == alone
