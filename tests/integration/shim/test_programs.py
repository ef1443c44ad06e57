"""Programs that know nothing of fikitd print the same natively and under it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import bench
import pytest

from tests.integration.shim.conftest import PROGRAMS, Runner

PYTHON = (sys.executable,)
DRIVER_API = Path(bench.__file__).with_name("programs") / "driver_api.py"
NAMES = ["contexts", "memory", "launches", "streams", "virtual_memory", "graphs", "pools"]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_prints_the_same(name: str, natively: Runner, shared: Runner) -> None:
    program = [*PYTHON, str(PROGRAMS / f"{name}.py")]
    alone = natively(*program)
    assert alone[0] == 0, alone[2]
    assert shared(*program) == alone


def test_what_nvrtc_compiles_prints_the_same(natively: Runner, shared: Runner) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    program = [*PYTHON, str(DRIVER_API)]
    alone = natively(*program)
    assert alone[0] == 0, alone[2]
    assert shared(*program) == alone


def test_a_program_that_is_linked_prints_the_same(natively: Runner, shared: Runner, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    import fikit
    from nvidia import cu13

    folder = Path(fikit.__file__).with_name("libcuda")
    include = f"-I{next(iter(cu13.__path__))}/include"
    for kind in ((), ("-DCUDA_API_PER_THREAD_DEFAULT_STREAM",)):
        program = tmp_path / f"plain{len(kind)}"
        source = str(PROGRAMS / "plain.c")
        command = [compiler, *kind, include, source, "-o", str(program), f"-L{folder}", "-lcuda"]
        subprocess.run(command, check=True)
        alone = natively(str(program))
        assert alone == (0, "9 9 3\n201\n", "")
        assert shared(str(program)) == alone
