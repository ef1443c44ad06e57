"""Programs that ask NVML see what their tenant may have, and that agrees with CUDA."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fikit import protocol
from pynvml import NVML_ERROR_NOT_SUPPORTED

from tests.integration.conftest import Client
from tests.integration.end_to_end.conftest import CHOICE, SETTINGS, Served
from tests.integration.shim.conftest import PROGRAMS, Runner

PYTHON = (sys.executable, "-c", "from pynvml import *\nnvmlInit()\ngpu = nvmlDeviceGetHandleByIndex(0)\n")
LIMIT = 256 << 20


def run(shared: Runner, text: str, **environment: str) -> str:
    code, output, errors = shared(*PYTHON[:2], PYTHON[2] + text, **environment)
    assert (code, errors) == (0, "")
    return output


@pytest.fixture
def limited(stopped_daemon: Served, limit: int) -> None:
    """Limit what a tenant of the daemon, before it starts, may have."""
    stopped_daemon.configure(
        settings=SETTINGS.replace("[tenant_defaults]", f"[tenant_defaults]\nmemory_limit_bytes = {limit}")
    )


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("limit", [0, LIMIT])
def test_nvml_agrees_with_cuda(shared: Runner, limit: int) -> None:
    code, output, errors = shared(sys.executable, str(PROGRAMS / "nvml.py"))
    assert code == 0, errors
    # On a real GPU contexts take memory too, which is nobody's; a quota says nothing of it.
    own = limit != 0 or CHOICE == "sim"
    assert output.splitlines() == [
        *("True", "1 0 []", "True"),
        *("True True True", str(own), "True", f"[(True, 100, {own})]", "[] []"),
        *("True", "True", "True", "True", "[0, 0, 0] 0 True", "True True", "True", "0", "True", "True"),
        *("0", "True"),
    ]
    assert not limit or run(shared, "print(nvmlDeviceGetMemoryInfo(gpu).total)") == f"{limit}\n"


def test_asking_nvml_opens_no_session(shared: Runner, client: Client) -> None:
    assert run(shared, "print(nvmlDeviceGetMemoryInfo(gpu).used)") == "0\n"
    assert client.ask(protocol.GetStatus()).gpus[0].executors == 0


@pytest.mark.shares_daemon
def test_without_a_daemon_there_is_no_driver(shared: Runner) -> None:
    code, _, errors = shared(*PYTHON, FIKIT_SOCKET="/no/such/socket")
    assert (code, errors.splitlines()[-1].rpartition(": ")[2]) == (1, "Driver Not Loaded")


@pytest.mark.shares_daemon
def test_names_of_earlier_headers_are_there(shared: Runner, tmp_path: Path) -> None:
    """What is linked with all its names bound at once (-z now) starts with none missing."""
    names = ["ComputeInstanceGetInfo", "DeviceGetAttributes", "DeviceGetGpuInstancePossiblePlacements"]
    names += [f"DeviceGetGridLicensableFeatures{version}" for version in ("", "_v2", "_v3")]
    names += ["EventSetWait", "VgpuInstanceGetLicenseInfo", "DeviceRemoveGpu_v2"]
    text = f"import pynvml\nfor name in {names}:"
    text += "\n    print(pynvml._nvmlGetFunctionPointer('nvml' + name)(None, None, 0))"
    # A driver's own library would be asked, and these are no arguments for it.
    nowhere = {"FIKIT_NVIDIA_DRIVER": str(tmp_path / "libcuda.so.1")}
    assert run(shared, text, **nowhere) == f"{NVML_ERROR_NOT_SUPPORTED}\n" * len(names)


@pytest.mark.shares_daemon
def test_the_driver_s_own_library_answers_the_rest(
    shared: Runner, client: Client, compiler: list[str], tmp_path: Path
) -> None:
    """One beside the driver that FIKIT_NVIDIA_DRIVER names, in place of the machine's."""
    library = tmp_path / "libnvidia-ml.so.1"
    source = str(PROGRAMS / "nvml_driver.c")
    first = client.ask(protocol.GetStatus()).gpus[0]
    command = [*compiler, f'-DFIRST_GPU="{first.uuid}"', "-shared", "-fPIC", source, "-o", str(library)]
    subprocess.run(command, check=True)
    there = {"FIKIT_NVIDIA_DRIVER": str(tmp_path / "libcuda.so.1")}
    text = "print(nvmlDeviceGetTemperature(gpu, 0), nvmlDeviceGetMemoryInfo(gpu).total)"
    assert run(shared, text, **there) == f"42 {first.memory_bytes}\n"
    text = "try:\n    nvmlDeviceGetProcessUtilization(gpu, 0)\nexcept NVMLError as error:\n    print(error)"
    assert run(shared, text, **there) == "Not Supported\n"
    text = "import pynvml\nfor name in ('Stats', 'Stats_v2'):"
    text += "\n    print(pynvml._nvmlGetFunctionPointer('nvmlDeviceGetAccounting' + name)(gpu, 0, 0))"
    assert run(shared, text, **there) == f"{NVML_ERROR_NOT_SUPPORTED}\n" * 2
    text = "import os\nos.fork() and os.wait()\nprint(nvmlDeviceGetMemoryInfo(gpu).total)"
    assert run(shared, text, **there) == 2 * f"{first.memory_bytes}\n"
