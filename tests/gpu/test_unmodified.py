"""Every unmodified program of bench/programs on this machine's GPU: the documents' matrix still holds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fikitctl.own_daemon import own_daemon

from bench import found
from bench.build import ROOT
from bench.unmodified import PASSED, Place, examine
from fikitd.configuration import DeviceSection
from fikitd.device import choose

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(os.environ.get("FIKIT_TEST_DEVICE") != "real", reason="needs a GPU (make gpu-test)"),
]
SECONDS = 90.0
NAMES = sorted(path.stem for path in found.PROGRAMS.iterdir() if path.suffix in (".py", ".cu"))
MATRIX = {
    program["name"]: program["verdict"]
    for program in json.loads((ROOT / "bench/results/unmodified-h200.json").read_text())["programs"]
}


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with own_daemon("auto") as socket:
        yield Place(socket, [])


@pytest.mark.parametrize("name", NAMES)
def test_a_program_does_what_the_matrix_says(name: str, place: Place, tmp_path: Path) -> None:
    programs = found.programs([name], tmp_path, SECONDS, len(choose("auto", DeviceSection())))
    for program in programs:
        if program.lacks:
            pytest.skip(program.lacks)
        outcome = examine(program, place, SECONDS, tmp_path)
        fails = MATRIX.get(program.name, PASSED).startswith("FAIL")
        assert (outcome.verdict == PASSED) != fails, outcome.detail or "it passes now: renew the matrix"
