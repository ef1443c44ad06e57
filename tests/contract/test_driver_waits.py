"""Which calls wait for a kernel that runs on another stream, and which do not."""

import ctypes
import mmap
import threading
import time
from collections.abc import Callable
from typing import Any

from cuda_calls import KERNELS, Cuda

KERNEL_NS = 60_000_000
AT_MOST_SECONDS = 20.0
"""For what is to return before."""


def waits_for_a_kernel(cuda: Cuda, call: Callable[[], object]) -> bool:
    """Whether a kernel that was launched before the call is over after it: each time, as it may be late."""
    stream = cuda.stream()
    place, words = cuda.pinned_words()
    waited = True
    for _ in range(3):
        words[0] = 0
        cuda.launch("spin_store", KERNEL_NS, place, ctypes.c_uint32(1), stream=stream)
        call()
        waited = waited and words[0] == 1
        cuda.cuStreamSynchronize(stream)
    cuda.cuStreamDestroy(stream)
    cuda.cuMemFreeHost(place)
    return waited


def test_loading_and_unloading_a_module_wait_for_running_kernels(cuda: Cuda) -> None:
    loaded: list[Any] = []
    assert waits_for_a_kernel(cuda, lambda: loaded.append(cuda.cuModuleLoadData(KERNELS)))
    assert waits_for_a_kernel(cuda, lambda: cuda.cuModuleUnload(loaded.pop()))


def test_bringing_a_library_to_the_gpu_waits_for_running_kernels(cuda: Cuda) -> None:
    libraries = [cuda.cuLibraryLoadData(KERNELS, [], [], 0, [], [], 0) for _ in range(3)]
    assert waits_for_a_kernel(cuda, lambda: cuda.cuLibraryGetModule(libraries.pop()))


def test_unloading_a_library_waits_for_running_kernels(cuda: Cuda) -> None:
    libraries = [cuda.cuLibraryLoadData(KERNELS, [], [], 0, [], [], 0) for _ in range(3)]
    for library in libraries:
        cuda.cuLibraryGetModule(library)
    assert waits_for_a_kernel(cuda, lambda: cuda.cuLibraryUnload(libraries.pop()))


def test_destroying_an_array_waits_for_running_kernels(cuda: Cuda) -> None:
    wanted = cuda.CUDA_ARRAY_DESCRIPTOR()
    wanted.Width, wanted.Height, wanted.NumChannels = 64, 64, 1
    wanted.Format = cuda.CUarray_format.CU_AD_FORMAT_FLOAT
    arrays = [cuda.cuArrayCreate(wanted) for _ in range(3)]
    assert waits_for_a_kernel(cuda, lambda: cuda.cuArrayDestroy(arrays.pop()))


def test_unloading_a_module_waits_for_what_a_function_of_the_host_holds_up(cuda: Cuda) -> None:
    module, stream = cuda.cuModuleLoadData(KERNELS), cuda.stream()
    place, words = cuda.pinned_words()
    words[0] = 0
    sleep = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(0.05))
    cuda.cuLaunchHostFunc(stream, cuda.CUhostFn(ctypes.cast(sleep, ctypes.c_void_p).value), 0)
    cuda.launch("spin_store", 1000, place, ctypes.c_uint32(1), stream=stream)
    cuda.cuModuleUnload(module)
    assert words[0] == 1
    cuda.cuStreamDestroy(stream)
    cuda.cuMemFreeHost(place)


def test_freeing_memory_waits_for_running_kernels(cuda: Cuda) -> None:
    addresses = [cuda.cuMemAlloc(2 << 20) for _ in range(3)]
    assert waits_for_a_kernel(cuda, lambda: cuda.cuMemFree(addresses.pop()))


def test_what_was_freed_is_free(cuda: Cuda) -> None:
    """Also while kernels run that were launched before."""
    busy = cuda.stream()
    cuda.cuCtxSynchronize()
    before = cuda.cuMemGetInfo()[0]
    addresses = [cuda.cuMemAlloc(size) for size in (64 << 20, *[512 << 10] * 128)]
    assert cuda.cuMemGetInfo()[0] <= before - (128 << 20)
    cuda.launch("spin", 20_000_000, stream=busy)
    for address in addresses:
        cuda.cuMemFree(address)
    assert cuda.cuMemGetInfo()[0] >= before - (4 << 20)
    cuda.cuStreamSynchronize(busy)
    cuda.cuStreamDestroy(busy)


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

    assert not waits_for_a_kernel(cuda, cycle)


def waits_for_a_waiting_stream(cuda: Cuda, call: Callable[[], object], seconds: float = 0.1) -> bool:
    """Whether a call returns only after another stream's wait for a value has ended, so long at most."""
    stream = cuda.stream()
    place, words = cuda.pinned_words()
    words[0] = 0
    cuda.cuStreamWaitValue32(stream, place, 1, 0)
    writer = threading.Timer(seconds, lambda: words.__setitem__(0, 1))
    writer.start()
    call()
    waited = bool(words[0] == 1)
    writer.cancel()
    words[0] = 1
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
    # A kernel's first launch may load its code, which waits.
    cuda.launch("nothing", stream=other)
    memory = mmap.mmap(-1, 1 << 22)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    address = cuda.cuMemAlloc(2 << 20)
    assert waits_for_a_waiting_stream(cuda, load)
    assert waits_for_a_waiting_stream(cuda, lambda: cuda.cuModuleUnload(loaded[0]))
    assert waits_for_a_waiting_stream(cuda, lambda: cuda.cuMemFree(address))
    assert not waits_for_a_waiting_stream(
        cuda, lambda: cuda.cuMemHostRegister(start, len(memory), 0), AT_MOST_SECONDS
    )
    assert waits_for_a_waiting_stream(cuda, lambda: cuda.cuMemHostUnregister(start))
    assert not waits_for_a_waiting_stream(
        cuda, lambda: (cuda.launch("nothing", stream=other), cuda.cuStreamSynchronize(other)), AT_MOST_SECONDS
    )
    assert not waits_for_a_waiting_stream(cuda, cuda.stream, AT_MOST_SECONDS)


def test_filling_host_memory_behind_what_a_stream_waits_for_does_not_wait(cuda: Cuda) -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    cuda.cuMemHostRegister(start, len(memory), cuda.driver.CU_MEMHOSTREGISTER_DEVICEMAP)
    pinned, words = cuda.pinned_words(2)
    stream = cuda.stream()
    for place in (int(cuda.cuMemHostGetDevicePointer(start, 0)), int(pinned) + 4):
        words[0] = 0
        cuda.cuStreamWaitValue32(stream, pinned, 1, 0)
        late = threading.Timer(AT_MOST_SECONDS, lambda: words.__setitem__(0, 1))
        late.start()
        cuda.cuMemsetD8Async(place, 7, 2, stream)
        cuda.cuMemsetD2D8Async(place + 2, 1, 8, 1, 2, stream)
        assert words[0] == 0
        late.cancel()
        words[0] = 1
        cuda.cuStreamSynchronize(stream)
    assert memory[:4] == bytes([7, 7, 8, 8])
    assert int(words[1]) == 0x08080707
    cuda.cuMemsetD8(start, 9, 4)
    assert memory[:4] == bytes([9] * 4)
    cuda.cuStreamDestroy(stream)
    cuda.cuMemHostUnregister(start)
    cuda.cuMemFreeHost(pinned)
