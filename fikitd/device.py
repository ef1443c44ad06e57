"""Which GPUs this daemon serves: the one place that knows that a device may be simulated.

Everybody else sees DeviceSpec: what to call the device, what the executor is started with, how fast its
time passes. ``auto`` takes every GPU of a driver that answers, as far as CUDA_VISIBLE_DEVICES shows it, else
the simulated one.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import structlog

from fikitd.configuration import DeviceSection
from fikitd.errors import DeviceUnavailableError

CHOICES: Final = (
    "auto (the NVIDIA GPUs that CUDA_VISIBLE_DEVICES shows, or the simulated one where there is none), sim, "
    "or the index of one GPU"
)
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
PCI: Final = Path("/sys/bus/pci/devices")
NVIDIA: Final = 0x10DE
"""Its number as a vendor of PCI devices; DISPLAY: their class of those that have GPUs (pci.ids)."""
DISPLAY: Final = 0x03
SIMULATED_MEMORY_BYTES: Final = 4 << 30
SIMULATED_COMPUTE_CAPABILITY: Final = 90
SIMULATED_DRIVER_VERSION: Final = "580.159.04"
"""That of the driver that is modelled: programs read numbers from it."""
SIMULATED_NAME: Final = "NVIDIA H200 (simulated)"
"""As its driver says: programs take devices of one name for devices of one kind."""
SIMULATED_UUID: Final = "GPU-66696b69-742d-7369-6d2d-6770752d00"
"""Its number follows, as in what its driver says: the characters of fikit-sim-gpu-, then the number."""


@dataclass(frozen=True)
class DeviceSpec:
    """One GPU, as the daemon and its executors are to use it."""

    index: int
    name: str
    uuid: str
    memory_bytes: int
    ordinal: int
    """The driver's number of it."""
    simulated: bool
    library: str | None
    """The driver library to load; None: the system's libcuda.so.1."""
    time_scale: float
    environment: dict[str, str] = field(default_factory=dict)
    pci: str = ""
    """Where it is on the bus, as NVML writes it."""
    compute_capability: int = 0
    """Ten times the major number, and the minor one."""
    driver_version: str = ""
    has_mps: bool = False
    """Whether its driver has the Multi-Process Service."""

    @property
    def nvidia(self) -> bool:
        """The NVIDIA driver knows it, in a tenant's process too."""
        return not self.simulated


@dataclass(frozen=True)
class Reading:
    """What the driver says of a GPU now; None: it does not say."""

    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None


def choose(choice: str, settings: DeviceSection, runtime: Path | None = None) -> list[DeviceSpec]:
    """The GPUs to serve. Blocking. Raises DeviceUnavailableError.

    ``runtime``: the directory of what processes share while they run; without it each simulates its own GPU.
    """
    if choice == "sim":
        return simulated(settings, runtime)
    found = [with_library(spec, settings) for spec in nvidia()]
    if choice == "auto" and found:
        seen = visible(found, os.environ.get(VISIBLE))
        if not seen:
            wished = f"{VISIBLE}={os.environ[VISIBLE]}"
            raise DeviceUnavailableError(
                f"{wished} leaves none of {len(found)} GPUs visible ('sim' is always there)"
            )
        return seen
    if choice == "auto":
        return simulated(settings, runtime)
    asked = [spec for spec in found if str(spec.index) == choice]
    if not asked:
        raise DeviceUnavailableError(f"there is no GPU {choice}: the NVIDIA driver reports {len(found)} GPUs")
    return asked


def visible(found: Sequence[DeviceSpec], wished: str | None) -> list[DeviceSpec]:
    """Those that a CUDA program would see, in its order; all where nothing is ``wished``.

    Indices (in the order of the bus) and beginnings of UUIDs, or a whole one behind MIG-; nothing counts from
    the first that is wrong on, and what is named twice shows none. Source: CUDA C++ Programming Guide,
    "Environment Variables".
    """
    if wished is None:
        return list(found)
    seen: list[DeviceSpec] = []
    for word in wished.split(","):
        if word.startswith("GPU-") and len(word) > len("GPU-"):
            meant = [spec for spec in found if spec.uuid.lower().startswith(word.lower())]
        elif word.startswith("MIG-"):
            meant = [spec for spec in found if spec.uuid.lower() == f"gpu-{word[4:].lower()}"]
        else:
            meant = [spec for spec in found if str(spec.index) == word]
        if len(meant) != 1:
            break
        if meant[0] in seen:
            return []
        seen += meant
    return seen


def with_library(spec: DeviceSpec, settings: DeviceSection) -> DeviceSpec:
    """The device with the library that the configuration names, where it names one."""
    if not settings.library:
        return spec
    return replace(
        spec, library=settings.library, environment={**spec.environment, "FIKIT_LIBCUDA": settings.library}
    )


def asked(variable: str, default: int, possible: range) -> int:
    """A number of the environment's, as its driver takes it. Raises DeviceUnavailableError."""
    text = os.environ.get(variable, str(default))
    if not re.fullmatch("[0-9]{1,18}", text) or int(text) not in possible:
        wanted = f"wanted {possible[0]} to {possible[-1]}"
        raise DeviceUnavailableError(f"{variable}={text}: {wanted}")
    return int(text)


def simulated(settings: DeviceSection, runtime: Path | None) -> list[DeviceSpec]:
    """The simulated GPUs, one unless FIKIT_SIM_DEVICES says more: each for all executors, like a real one."""
    try:
        library = settings.library or str(importlib.import_module("fikitd.simcuda").library_path())
    except (ImportError, AttributeError, FileNotFoundError):
        library = ""  # an executor will say so when it starts; doctor does at once
    memory_bytes = asked("FIKIT_SIM_MEMORY", SIMULATED_MEMORY_BYTES, range(2 << 20, (16 << 40) + 1))
    environment = {"FIKIT_SIM_SCALE": str(settings.time_scale), "FIKIT_SIM_MEMORY": str(memory_bytes)}
    if library:
        environment["FIKIT_LIBCUDA"] = library
    if runtime is not None and os.environ.get("FIKIT_SIM_CLOCK") != "virtual":  # that is a single process's
        environment["FIKIT_SIM_MACHINE"] = os.environ.get("FIKIT_SIM_MACHINE", str(runtime / "machine"))
    count = asked("FIKIT_SIM_DEVICES", 1, range(1, 17))
    environment["FIKIT_SIM_DEVICES"] = str(count)
    # Whatever our own say of a machine's real ones.
    environment |= {VISIBLE: ",".join(map(str, range(count))), ORDER: "PCI_BUS_ID"}
    return [
        DeviceSpec(
            index=index,
            name=SIMULATED_NAME,
            uuid=f"{SIMULATED_UUID}{index:02x}",
            memory_bytes=memory_bytes,
            ordinal=index,
            simulated=True,
            library=library or None,
            time_scale=settings.time_scale,
            environment=environment,
            pci=f"00000000:{index + 1:02X}:00.0",
            compute_capability=SIMULATED_COMPUTE_CAPABILITY,
            driver_version=SIMULATED_DRIVER_VERSION,
        )
        for index in range(count)
    ]


def driver() -> Any | None:
    """pynvml, initialised; None where there is no NVIDIA driver. Raises DeviceUnavailableError.

    One that is there and does not answer may do so soon: the machine has just started, or the driver was
    renewed. Serving simulated GPUs instead would be nothing that anybody asked for.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return None
    except pynvml.NVMLError as error:
        if isinstance(error, pynvml.NVMLError_DriverNotLoaded) and not has_gpu():
            return None
        raise DeviceUnavailableError(
            f"the NVIDIA driver does not answer: {error} ('sim' is always there)"
        ) from None
    return pynvml


def has_gpu() -> bool:
    """Whether there is a GPU of NVIDIA's, whatever the driver says (Linux, ABI/testing/sysfs-bus-pci)."""
    for device in PCI.glob("*"):
        try:
            vendor, kind = (int((device / name).read_text(), 16) for name in ("vendor", "class"))
        except (OSError, ValueError):
            continue
        if vendor == NVIDIA and kind >> 16 == DISPLAY:
            return True
    return False


def text(value: str | bytes) -> str:
    """NVML's bindings have returned both."""
    return value.decode() if isinstance(value, bytes) else value


def nvidia() -> list[DeviceSpec]:
    """The GPUs of the NVIDIA driver; none where there is no driver. Raises DeviceUnavailableError."""
    nvml = driver()
    if nvml is None:
        return []
    found: list[DeviceSpec] = []
    environment: dict[str, str] = {}
    count, unreachable = nvml.nvmlDeviceGetCount(), ""
    for index in range(count):
        try:
            found.append(nvidia_gpu(nvml, index, len(found), environment))
        except nvml.NVMLError as error:  # it has fallen off the bus, say: the others are served all the same
            unreachable = str(error)
            structlog.get_logger().error("gpu_left_out", gpu=index, reason=unreachable)
    if unreachable and not found:
        raise DeviceUnavailableError(f"the NVIDIA driver reaches none of its {count} GPUs: {unreachable}")
    # The driver's numbers are the ordinals then: its own order puts the fastest first, and shows all.
    environment |= {VISIBLE: ",".join(spec.uuid for spec in found), ORDER: "PCI_BUS_ID"}
    return found


def nvidia_gpu(nvml: Any, index: int, ordinal: int, environment: dict[str, str]) -> DeviceSpec:
    """One of them. Raises NVMLError."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return DeviceSpec(
        index=index,
        name=text(nvml.nvmlDeviceGetName(handle)),
        uuid=text(nvml.nvmlDeviceGetUUID(handle)),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        ordinal=ordinal,
        simulated=False,
        library=None,
        time_scale=1.0,
        environment=environment,
        pci=text(nvml.nvmlDeviceGetPciInfo(handle).busId),
        compute_capability=10 * major + minor,
        driver_version=text(nvml.nvmlSystemGetDriverVersion()),
        has_mps=True,
    )


def reading(spec: DeviceSpec) -> Reading:
    """What the driver says of the GPU now. Blocking; never fails."""
    try:
        nvml = None if spec.simulated else driver()
    except DeviceUnavailableError:
        nvml = None
    if nvml is None:
        return Reading()

    def ask(question: Callable[[Any], Any]) -> int | None:
        try:
            return int(question(nvml.nvmlDeviceGetHandleByIndex(spec.index)))
        except nvml.NVMLError:
            return None

    milliwatts = ask(nvml.nvmlDeviceGetPowerUsage)
    return Reading(
        utilization_percent=ask(lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
        temperature_celsius=ask(lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
        power_watts=None if milliwatts is None else milliwatts / 1000,
    )


def library_finding(spec: DeviceSpec) -> tuple[bool, str]:
    """Whether the library that executors will load is there, and in words. Blocking."""
    if spec.library is not None:
        return os.path.exists(spec.library), spec.library
    if spec.simulated:
        return False, "the simulated driver is not built: fikitd.simcuda has no library"
    try:
        return driver() is not None, "libcuda.so.1 of the NVIDIA driver"
    except DeviceUnavailableError as error:
        return False, str(error)
