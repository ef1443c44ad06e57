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
