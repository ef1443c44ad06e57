"""What a start does not load: each `fikitctl`, each executor and each daemon would pay for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = {"email", "http", "multiprocessing", "numpy", "prometheus_client", "xml"}


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("module", "others"),
    [
        ("fikitd.main", {"cuda", "fikitd._core", "pynvml"}),
        ("fikitd.executor.__main__", {"click", "fikitd.daemon", "pynvml", "sqlite3"}),
        ("fikitd.jobs.runner", {"click", "msgspec", "trio"}),
    ],
)
def test_a_start_loads_nothing_that_only_something_else_needs(module: str, others: set[str]) -> None:
    assert not (SLOW | others) & loaded_by(f"import {module}")


def test_who_serves_metrics_has_loaded_what_they_are() -> None:
    """Later there may be no descriptor left to do so, and the daemon would end for it."""
    assert "prometheus_client" in loaded_by("from fikitd import scraping; scraping.listen_http(0)")


PROGRAMS = {
    "fikitctl": "import fikitctl.main as m; m.main = told; import fikitctl; fikitctl.start()",
    "fikitd": "import fikitd.main as m; m.main = told; import fikitd; fikitd.start()",
    "runner": "import sys, fikitd.jobs.runner as m; m.files.lock = told; sys.argv[1:] = ['/there']; m.main()",
    "executor": (
        "from unittest.mock import MagicMock; import sys, fikitd.executor.__main__ as m; "
        "m.listen = m.output_file = m.set_up = m.DispatchCore = MagicMock(); m.trio.run = told; "
        "sys.argv[1:] = '--executor x --daemon 1 --gpu 0 --device 0 --domain d --socket s'.split(); m.main()"
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_importing_made_is_not_looked_through_for_garbage(program: str) -> None:
    """Neither from then on nor, which takes a fifth of what `fikitctl` does, when Python ends."""
    told = "told = lambda *_: print(gc.isenabled(), gc.get_freeze_count() > 5000)"
    code = f"import gc\n{told}\n{PROGRAMS[program]}"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["True", "True"]


@pytest.mark.parametrize("program", ["fikitctl", "fikitd"])
def test_what_is_left_when_a_program_ends_is_not_looked_through(program: str) -> None:
    left = "atexit.register(lambda: print(len(gc.get_objects()) < 100))"
    code = f"import atexit, gc\n{left}\ntold = lambda: None\n{PROGRAMS[program]}"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "True\n"
