"""Which calls wait for a kernel that runs on another stream, and which do not."""

import ctypes
import mmap
import threading
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


def waits_for_a_waiting_stream(cuda: Cuda, call: Callable[[], object]) -> bool:
    """Whether a call returns only after another stream's wait for a value has ended."""
    stream = cuda.stream()
    place, words = cuda.pinned_words()
    words[0] = 0
    cuda.cuStreamWaitValue32(stream, place, 1, 0)
    writer = threading.Timer(0.1, lambda: words.__setitem__(0, 1))
    writer.start()
    call()
    waited = words[0] == 1
    writer.join()
    cuda.cuStreamSynchronize(stream)
    cuda.cuStreamDestroy(stream)
    return waited


def test_who_waits_for_streams_that_wait_for_values(cuda: Cuda) -> None:
    loaded = []

    def load() -> None:
        loaded.append(cuda.cuModuleLoadData(KERNELS))
        cuda.cuLaunchKernel(
            cuda.cuModuleGetFunction(loaded[-1], b"nothing"), 1, 1, 1, 1, 1, 1, 0, other, 0, 0
        )

    other = cuda.stream()
    memory = mmap.mmap(-1, 1 << 22)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    address = cuda.cuMemAlloc(2 << 20)
    assert waits_for_a_waiting_stream(cuda, load)
    assert waits_for_a_waiting_stream(cuda, lambda: cuda.cuModuleUnload(loaded[0]))
    assert waits_for_a_waiting_stream(cuda, lambda: cuda.cuMemFree(address))
    assert not waits_for_a_waiting_stream(cuda, lambda: cuda.cuMemHostRegister(start, len(memory), 0))
    assert waits_for_a_waiting_stream(cuda, lambda: cuda.cuMemHostUnregister(start))
    assert not waits_for_a_waiting_stream(
        cuda, lambda: (cuda.launch("nothing", stream=other), cuda.cuStreamSynchronize(other))
    )
    assert not waits_for_a_waiting_stream(cuda, cuda.stream)
