"""Which calls wait for a kernel that runs on another stream, and which do not."""

import time
from collections.abc import Callable

from cuda_calls import KERNELS, Cuda

KERNEL_NS = 60_000_000


def beside_a_kernel(cuda: Cuda, call: Callable[[], object]) -> float:
    """Seconds that the call takes while a kernel of 60 ms runs, as a share of that time."""
    stream = cuda.stream()
    cuda.launch("spin", KERNEL_NS, stream=stream)
    start = time.monotonic()
    call()
    took = time.monotonic() - start
    cuda.cuStreamSynchronize(stream)
    cuda.cuStreamDestroy(stream)
    return took / (KERNEL_NS / 1e9)


def test_loading_and_unloading_a_module_wait_for_running_kernels(cuda: Cuda) -> None:
    loaded = []
    assert beside_a_kernel(cuda, lambda: loaded.append(cuda.cuModuleLoadData(KERNELS))) > 0.8
    assert beside_a_kernel(cuda, lambda: cuda.cuModuleUnload(loaded[0])) > 0.8


def test_freeing_memory_waits_for_running_kernels(cuda: Cuda) -> None:
    address = cuda.cuMemAlloc(2 << 20)
    assert beside_a_kernel(cuda, lambda: cuda.cuMemFree(address)) > 0.8


def test_mapping_memory_does_not_wait(cuda: Cuda) -> None:
    size = 2 << 20

    def cycle() -> None:
        address = cuda.cuMemAddressReserve(size, 0, 0, 0)
        handle = cuda.cuMemCreate(size, cuda.properties(), 0)
        cuda.cuMemMap(address, size, 0, handle, 0)
        cuda.allow(int(address), size)
        cuda.cuMemUnmap(address, size)
        cuda.cuMemRelease(handle)
        cuda.cuMemAddressFree(address, size)

    assert beside_a_kernel(cuda, cycle) < 0.5
