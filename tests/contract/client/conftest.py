"""A daemon to run the client against: the double, or a real one that $FIKIT_TEST_SOCKET names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fikit
import pytest

DOUBLE = Path(__file__).parents[2] / "native" / "producer_double.py"
PTX = Path(__file__).with_name("kernels.ptx").read_text()
AXPY = Path(__file__).with_name("axpy.ptx").read_text()


@pytest.fixture(scope="session")
def real() -> bool:
    return "FIKIT_TEST_SOCKET" in os.environ


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def socket_path(
    tmp_path: Path, log_path: Path, monkeypatch: pytest.MonkeyPatch, real: bool
) -> Iterator[Path]:
    """The socket of a daemon; $FIKIT_SOCKET names it too."""
    path = Path(os.environ["FIKIT_TEST_SOCKET"]) if real else tmp_path / "s"
    monkeypatch.setenv("FIKIT_SOCKET", str(path))
    monkeypatch.delenv("FIKIT_JOB", raising=False)
    if real:
        yield path
        return
    package_home = str(Path(fikit.__file__).parents[1])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([package_home, os.environ.get("PYTHONPATH", "")])
    }
    command = [sys.executable, str(DOUBLE), str(path), str(log_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as double:
        assert double.stdout is not None
        assert double.stdout.readline() == b"ready\n"
        yield path
        double.kill()


@pytest.fixture
def records(log_path: Path, real: bool) -> Callable[[], list[dict[str, Any]]]:
    """What the executor parsed so far, once everything was waited for."""
    if real:
        pytest.skip("needs the double's log")
    return lambda: [json.loads(line) for line in log_path.read_text().splitlines()]


@pytest.fixture
def let_go(log_path: Path, real: bool) -> Callable[[], None]:
    """End what stalls, now or later."""
    if real:
        pytest.skip("needs the double's kernel")
    return log_path.with_name("go").touch


@pytest.fixture
def session(socket_path: Path) -> Iterator[fikit.Session]:
    with fikit.connect(name="test") as opened:
        yield opened


@pytest.fixture
def module(session: fikit.Session) -> Iterator[fikit.Module]:
    with session.load(PTX) as loaded:
        yield loaded


@pytest.fixture
def axpy(session: fikit.Session) -> Iterator[fikit.Kernel]:
    with session.load(AXPY) as loaded:
        yield loaded.kernel("axpy", ["f32", "pointer", "pointer", "u32"])


@pytest.fixture
def ptx() -> str:
    return PTX


@pytest.fixture
def axpy_ptx() -> str:
    return AXPY
