"""What an executor asks of CUDA before its first session: device, context, streams, a partition.

cuda-python makes them; the native core is handed the raw handles and loads the same driver library itself.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

LANES: Final = {-5: 4, -4: 16, -3: 4, -2: 16, -1: 4, 0: 16}
"""Streams by CUDA priority: most for what high, normal and low sessions have by default. So many because
kernels of streams that share one run one behind another, which those that wait for each other never end
in. With those of six partitions they stay below the 128 grids that a GPU runs at once (CUDA C++
Programming Guide, Technical Specifications per Compute Capability). On an H200 (driver 580) none of 103
was held up by another that waited; each took 0.6 MiB and, to make, 20 us."""
PARTITION_LANES: Final = 8
QUEUES: Final = 32
LEAST_MULTIPROCESSORS: Final = 8
"""Of a partition, and the step of its size (green contexts of compute capability 9.0)."""


def partition_sizes(multiprocessors: int, shares: Iterable[float]) -> list[int]:
    """Multiprocessors of each partition, rounded down to what a green context can have; the largest first."""
    step = LEAST_MULTIPROCESSORS
    sizes = {max(step, int(multiprocessors * share) // step * step) for share in shares}
    return sorted((size for size in sizes if size < multiprocessors), reverse=True)


class SetUpFailed(Exception):
    """It cannot serve. Where the device cannot be used the message names the CUDA call and its error."""


@dataclass(frozen=True)
class Lane:
    """A CUDA stream: its handle, its priority, the multiprocessors it is confined to (0: all)."""

    stream: int
    cuda_priority: int
    multiprocessors: int


@dataclass(frozen=True)
class Device:
    """A device that is ready for the core. ``keep`` holds what must outlive it."""

    name: str
    memory_bytes: int
    context: int
    driver_path: str
    lanes: list[Lane]
    monitor: int
    keep: list[object]


def set_up(ordinal: int, partition_shares: Sequence[float]) -> Device:
    """Make the context and streams on a device. Blocking; raises SetUpFailed.

    ``partition_shares``: shares of the multiprocessors, one for each partition (a green context). All of them
    begin with the same multiprocessors, so that what the largest leaves free is free of the others too.
    """
    path = os.environ.get("FIKIT_LIBCUDA", "libcuda.so.1")
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = str(QUEUES)
    os.environ.pop("CUDA_LAUNCH_BLOCKING", None)  # whoever started the daemon may debug something else
    try:
        # Loaded first, it is what every later search for libcuda.so.1 in this process finds.
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise SetUpFailed(f"cannot load the CUDA driver: {error}") from None
    from cuda.bindings import driver

    def call(function: Any, *arguments: Any) -> Any:
        status, *results = function(*arguments)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise SetUpFailed(f"{function.__name__}: {status.name} ({int(status)})")
        return results[0] if len(results) == 1 else tuple(results)

    call(driver.cuInit, 0)
    device = call(driver.cuDeviceGet, ordinal)
    pageable = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS
    if call(driver.cuDeviceGetAttribute, pageable, device) and os.geteuid() == 0:
        # CUDA Programming Guide, Unified Memory: then any pointer of the process is one of a kernel's, too.
        raise SetUpFailed(
            "kernels on this GPU can reach all memory of their process (HMM or ATS), so a tenant's "
            "could that of this executor, which root runs: load nvidia_uvm with uvm_disable_hmm=1, or, "
            "as that does not turn off ATS, run a daemon for each user"
        )
    context = call(driver.cuDevicePrimaryCtxRetain, device)
    call(driver.cuCtxSetCurrent, context)
    flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    least, greatest = call(driver.cuCtxGetStreamPriorityRange)
    streams: list[Any] = []
    lanes = []
    for priority, count in LANES.items():
        priority = min(max(priority, greatest), least)
        for _ in range(count):
            streams.append(call(driver.cuStreamCreateWithPriority, flags, priority))
            lanes.append(Lane(int(streams[-1]), priority, 0))
    monitor = call(driver.cuStreamCreateWithPriority, flags, greatest)
    keep = [context, monitor, streams]
    total = call(driver.cuDeviceGetDevResource, device, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM)
    for size in partition_sizes(total.sm.smCount, partition_shares):
        groups, _, _ = call(driver.cuDevSmResourceSplitByCount, 1, total, 0, size)
        description = call(driver.cuDevResourceGenerateDesc, [groups[0]], 1)
        green = call(
            driver.cuGreenCtxCreate,
            description,
            device,
            driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM,
        )
        for _ in range(PARTITION_LANES):
            stream = call(driver.cuGreenCtxStreamCreate, green, flags, least)
            lanes.append(Lane(int(stream), least, int(groups[0].sm.smCount)))
            keep.append(stream)
        keep.append(green)
    name = call(driver.cuDeviceGetName, 128, device)
    return Device(
        name=name.split(b"\0")[0].decode(),
        memory_bytes=int(call(driver.cuDeviceTotalMem, device)),
        context=int(context),
        driver_path=path,
        lanes=lanes,
        monitor=int(monitor),
        keep=keep,
    )
