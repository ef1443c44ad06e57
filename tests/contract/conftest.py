"""Fixtures of the driver's contract: the same tests on the simulated driver and on real hardware."""

import inspect
import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

from cuda_calls import Cuda, CudaError, open_cuda  # noqa: E402


@pytest.fixture(scope="session")
def driver() -> Cuda:
    """Return the driver under test, one for the session."""
    return open_cuda()


@pytest.fixture
def cuda(driver: Cuda) -> Iterator[Cuda]:
    """Yield the driver with its context current and, afterwards, no work left."""
    driver.cuCtxSetCurrent(driver.context)
    yield driver
    driver.cuCtxSetCurrent(driver.context)
    driver.cuCtxSynchronize()


@pytest.fixture
def fails(cuda: Cuda) -> Callable[..., None]:
    """Return a check that a call fails with the error so named."""

    def check(error: str, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        with pytest.raises(CudaError) as caught:
            call(*arguments, **named)
        assert caught.value.result.name == "CUDA_ERROR_" + error

    return check


@pytest.fixture
def alone() -> Callable[..., str]:
    """Run one function in a process of its own, for what poisons a process; its output comes back.

    The function is sent as source: it gets the driver, with os, socket and sys imported. `keep` are
    descriptors that it inherits, `environment` variables that it gets.
    """

    def run(body: Callable[[Cuda], None], keep: Iterable[int] = (), **environment: str) -> str:
        source = textwrap.dedent(inspect.getsource(body))
        program = (
            f"import os, socket, sys\nsys.path.insert(0, {str(HERE)!r})\nfrom cuda_calls import *\n{source}\n"
        )
        program += f"{body.__name__}(open_cuda())\n"
        done = subprocess.run(
            [sys.executable, "-P", "-c", program],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            pass_fds=tuple(keep),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
