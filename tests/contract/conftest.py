"""Fixtures of the driver's contract: the same tests on the simulated driver and on real hardware.

With FIKIT_TEST_SHIM=1 they run as an unmodified program of a daemon does: through fikitd's libcuda.so.1, in
sessions of one daemon for the whole run.
"""

import inspect
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

from cuda_calls import SHIM, Cuda, CudaError, open_cuda, preload  # noqa: E402
from shim_limits import reason  # noqa: E402

preload()  # before NVML or anybody loads the driver's

from tests.integration.end_to_end.conftest import CHOICE, Served  # noqa: E402

SETTINGS = f"""
[daemon]
drain_seconds = 0.0
[device]
choice = "{CHOICE}"
[executor]
heartbeat_seconds = 0.2
[tenant_defaults]
priority_ceiling = "high"
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect of fikitd what its documents say that it does not serve."""
    for item in items if SHIM else ():
        if item.path.parent == HERE and (why := reason(item.path.name, item.name)):
            item.add_marker(pytest.mark.xfail(reason=why, strict=True))


@pytest.fixture(scope="session", autouse=SHIM)
def served() -> Iterator[None]:
    """Run the daemon that the shim finds by FIKIT_SOCKET."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="fikitd-contract-"))
    daemon = Served(place)
    daemon.configure(settings=SETTINGS)
    daemon.start()
    os.environ |= {"FIKIT_SOCKET": str(daemon.socket), "FIKIT_PRIORITY": "high"}
    yield
    daemon.clear()
    shutil.rmtree(place)


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
    descriptors that it inherits, `environment` variables that it gets. It shares a daemon's context with this
    process only when it has to: `beside` says so.
    """

    def run(
        body: Callable[[Cuda], None], keep: Iterable[int] = (), *, beside: bool = False, **environment: str
    ) -> str:
        source = textwrap.dedent(inspect.getsource(body))
        program = (
            f"import os, socket, sys\nsys.path.insert(0, {str(HERE)!r})\nfrom cuda_calls import *\n{source}\n"
        )
        program += f"{body.__name__}(open_cuda())\n"
        python = [sys.executable, "-P", "-c"]
        fikitctl = [*python, "from fikitctl.main import main; main()"]
        isolated = [*fikitctl, "run", "--isolate", "--priority", "high", "--"]
        done = subprocess.run(
            [*(isolated if SHIM and not beside else ()), *python, program],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            pass_fds=tuple(keep),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
