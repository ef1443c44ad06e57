"""Events that processes share by handles."""

import ctypes
import os
import threading

import pytest
from cuda_calls import Alone, Check, Cuda


@pytest.fixture(name="event")
def make_event(cuda: Cuda) -> object:
    """Return an event that other processes may open."""
    flags = cuda.CUevent_flags
    return cuda.cuEventCreate(flags.CU_EVENT_INTERPROCESS.value | flags.CU_EVENT_DISABLE_TIMING.value)


def named(cuda: Cuda, event: object) -> str:
    return ctypes.string_at(cuda.cuIpcGetEventHandle(event).getPtr(), 64).hex()


def wait_for_the_other(cuda: Cuda) -> None:
    handle = cuda.CUipcEventHandle()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(os.environ["HANDLE"]), 64)
    event = cuda.cuIpcOpenEventHandle(handle)
    print(cuda.result("cuIpcGetEventHandle", event))
    print(cuda.result("cuEventQuery", event))
    os.write(int(os.environ["ASKED"]), b"1")
    stream, words = cuda.stream(), cuda.device_words()
    cuda.cuStreamWaitEvent(stream, event, 0)
    cuda.cuMemsetD32Async(words, 5, 1, stream)
    cuda.cuEventSynchronize(event)
    cuda.cuStreamSynchronize(stream)
    print(cuda.result("cuEventQuery", event), cuda.read(words)[0])
    cuda.cuEventDestroy(event)


def test_another_process_waits(cuda: Cuda, alone: Alone, event: object) -> None:
    stream, (address, words) = cuda.stream(), cuda.pinned_words()
    cuda.cuStreamWaitValue32(stream, address, 1, 0)
    cuda.cuEventRecord(event, stream)
    assert cuda.result("cuEventQuery", event) == "ERROR_NOT_READY"
    asked, write = os.pipe()
    printed: list[str] = []
    handle = named(cuda, event)

    def run() -> None:
        printed.extend(
            alone(wait_for_the_other, keep=[write], beside=True, HANDLE=handle, ASKED=str(write)).split()
        )

    other = threading.Thread(target=run)
    other.start()
    os.read(asked, 1)
    words[0] = 1
    other.join()
    assert printed == ["ERROR_INVALID_HANDLE", "ERROR_NOT_READY", "SUCCESS", "5"]
    cuda.cuEventSynchronize(event)
    cuda.cuEventDestroy(event)
    for descriptor in (asked, write):
        os.close(descriptor)


def record_here(cuda: Cuda) -> None:
    handle = cuda.CUipcEventHandle()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(os.environ["HANDLE"]), 64)
    event = cuda.cuIpcOpenEventHandle(handle)
    print(cuda.result("cuEventQuery", event))
    stream = cuda.stream()
    cuda.cuEventRecord(event, stream)
    cuda.cuStreamSynchronize(stream)
    print(cuda.result("cuEventQuery", event))


def test_another_process_records(cuda: Cuda, alone: Alone, event: object) -> None:
    assert alone(record_here, beside=True, HANDLE=named(cuda, event)).split() == ["SUCCESS", "SUCCESS"]
    stream = cuda.stream()
    cuda.cuStreamWaitEvent(stream, event, 0)
    cuda.cuStreamSynchronize(stream)
    cuda.cuEventSynchronize(event)
    assert cuda.result("cuEventQuery", event) == "SUCCESS"
    # And again here, beside which the other's is old.
    cuda.cuEventRecord(event, stream)
    cuda.cuStreamSynchronize(stream)
    assert cuda.result("cuEventQuery", event) == "SUCCESS"
    cuda.cuEventDestroy(event)


def record_late(cuda: Cuda) -> None:
    handle = cuda.CUipcEventHandle()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(os.environ["HANDLE"]), 64)
    event = cuda.cuIpcOpenEventHandle(handle)
    stream, (address, words) = cuda.stream(), cuda.pinned_words()
    cuda.cuStreamWaitValue32(stream, address, 1, 0)
    cuda.cuEventRecord(event, stream)
    os.write(int(os.environ["RECORDED"]), b"1")
    os.read(int(os.environ["GO"]), 1)
    words[0] = 1
    cuda.cuStreamSynchronize(stream)
    print(cuda.result("cuEventQuery", event))
    cuda.cuEventDestroy(event)


def test_the_maker_waits_for_another_process(cuda: Cuda, alone: Alone, event: object) -> None:
    stream, words = cuda.stream(), cuda.device_words()
    cuda.cuEventRecord(event, stream)  # before the event is shared
    handle = named(cuda, event)
    assert named(cuda, event) == handle
    recorded, tell_recorded = os.pipe()
    go, tell_go = os.pipe()
    printed: list[str] = []

    def run() -> None:
        ends = {"RECORDED": str(tell_recorded), "GO": str(go)}
        printed.append(
            alone(record_late, keep=[tell_recorded, go], beside=True, HANDLE=handle, **ends).strip()
        )

    other = threading.Thread(target=run)
    other.start()
    os.read(recorded, 1)
    assert cuda.result("cuEventQuery", event) == "ERROR_NOT_READY"
    cuda.cuStreamWaitEvent(stream, event, 0)
    cuda.cuMemsetD32Async(words, 5, 1, stream)
    assert cuda.result("cuStreamQuery", stream) == "ERROR_NOT_READY"
    os.write(tell_go, b"1")
    cuda.cuEventSynchronize(event)
    cuda.cuStreamSynchronize(stream)
    other.join()
    assert printed == ["SUCCESS"]
    assert cuda.read(words)[0] == 5
    assert cuda.result("cuEventQuery", event) == "SUCCESS"
    cuda.cuEventDestroy(event)
    for descriptor in (recorded, tell_recorded, go, tell_go):
        os.close(descriptor)


def test_what_is_no_shared_event(cuda: Cuda, fails: Check) -> None:
    fails("INVALID_VALUE", cuda.cuEventCreate, cuda.CUevent_flags.CU_EVENT_INTERPROCESS.value)
    ordinary = cuda.cuEventCreate(0)
    fails("INVALID_HANDLE", cuda.cuIpcGetEventHandle, ordinary)
    cuda.cuEventDestroy(ordinary)
