"""Order: streams, events, stream memory operations, host functions."""

import ctypes
import threading
from typing import Any

import pytest
from cuda_calls import Check, Cuda

MILLISECOND = 1_000_000


def test_a_stream_keeps_its_order(cuda: Cuda) -> None:
    stream = cuda.stream()
    place = cuda.device_words()
    cuda.launch("spin_store", MILLISECOND, place, ctypes.c_uint32(1), stream=stream)
    cuda.launch("store", place, ctypes.c_uint32(2), stream=stream)
    cuda.cuMemsetD32Async(place, 3, 1, stream)
    cuda.launch("store", place, ctypes.c_uint32(4), stream=stream)
    assert cuda.read(place)[0] == 4


def test_query_tells_pending_from_done(cuda: Cuda) -> None:
    stream = cuda.stream()
    assert cuda.result("cuStreamQuery", stream) == "SUCCESS"
    with cuda.held(stream):
        cuda.launch("spin", MILLISECOND, stream=stream)
        assert cuda.result("cuStreamQuery", stream) == "ERROR_NOT_READY"
    cuda.cuStreamSynchronize(stream)
    assert cuda.result("cuStreamQuery", stream) == "SUCCESS"


def test_the_legacy_stream_waits_for_blocking_streams_and_they_for_it(cuda: Cuda) -> None:
    first, second = cuda.stream(blocking=True), cuda.stream(blocking=True)
    place = cuda.device_words()
    cuda.launch("spin_store", 2 * MILLISECOND, place, ctypes.c_uint32(1), stream=first)
    cuda.launch("spin_store", MILLISECOND, place, ctypes.c_uint32(2))
    cuda.launch("store", place, ctypes.c_uint32(3), stream=second)
    assert cuda.read(place)[0] == 3


@pytest.mark.parametrize("recorded", [True, False])
def test_a_wait_orders_blocking_streams_if_the_legacy_stream_has_it(cuda: Cuda, *, recorded: bool) -> None:
    """CUDA Runtime API, "Stream synchronization behavior"; no action is one for what never was (H100)."""
    first, second, over = cuda.stream(blocking=True), cuda.stream(blocking=True), cuda.cuEventCreate(0)
    place, copy = cuda.device_words(), cuda.device_words()
    if recorded:
        cuda.cuEventRecord(over, second)
        cuda.cuEventSynchronize(over)
    with cuda.held(first):
        cuda.cuMemsetD32Async(place, 1, 1, first)
        cuda.cuStreamWaitEvent(0, over, 0)
        cuda.cuMemcpyDtoDAsync(copy, place, 4, second)
        if not recorded:
            cuda.cuStreamSynchronize(second)
    assert cuda.read(copy)[0] == recorded


def test_who_asks_the_legacy_stream_asks_blocking_streams(cuda: Cuda) -> None:
    """Seen on an H100: also where it has no work of its own. Nobody asks the legacy stream by another."""
    blocking, other = cuda.stream(blocking=True), cuda.stream(blocking=True)
    own = cuda.CUstream(cuda.CU_STREAM_PER_THREAD)
    for stream in (blocking, own):
        with cuda.held(stream):
            assert cuda.result("cuStreamQuery", 0) == "ERROR_NOT_READY"
            assert cuda.result("cuStreamQuery", other) == "SUCCESS"
        assert cuda.result("cuStreamQuery", 0) == "SUCCESS"
        cuda.launch("spin", 2 * MILLISECOND, stream=stream)
        cuda.cuStreamSynchronize(0)
        assert cuda.result("cuStreamQuery", stream) == "SUCCESS"
    with cuda.held(0):
        for stream in (blocking, own):
            cuda.cuStreamSynchronize(stream)
            assert cuda.result("cuStreamQuery", stream) == "SUCCESS"


def test_an_upload_begins_when_the_legacy_stream_s_work_is_over(cuda: Cuda) -> None:
    """CUDA Driver API, "API synchronization behavior": a stream sync before pageable bytes are read."""
    blocking, place, word = cuda.stream(blocking=True), cuda.device_words(), ctypes.c_uint32(4)
    for stream in (0, blocking):
        cuda.launch("spin", 2 * MILLISECOND, stream=stream)
        cuda.cuEventRecord(before := cuda.cuEventCreate(0), stream)
        cuda.cuMemcpyHtoD(place, ctypes.addressof(word), 4)
        assert cuda.result("cuEventQuery", before) == "SUCCESS"


def test_the_end_of_later_work_tells_of_earlier_work(cuda: Cuda) -> None:
    other = cuda.stream(blocking=True)
    for earlier, later in ((None, other), (other, None)) * 20:
        cuda.launch("spin", 20_000, stream=earlier)
        cuda.launch("spin", 1000, stream=later)
        cuda.cuStreamSynchronize(later)
        assert cuda.result("cuStreamQuery", earlier) == "SUCCESS"
    cuda.cuStreamDestroy(other)


def test_the_legacy_stream_ignores_non_blocking_streams(cuda: Cuda) -> None:
    place, words = cuda.pinned_words()
    stream = cuda.stream()
    cuda.launch("nothing")  # so that it is loaded, for which a genuine driver would wait for all streams
    cuda.cuStreamWaitValue32(stream, place, 1, 0)
    cuda.launch("nothing")
    cuda.cuStreamSynchronize(0)
    assert cuda.result("cuStreamQuery", stream) == "ERROR_NOT_READY"
    words[0] = 1
    cuda.cuStreamSynchronize(stream)


def test_priorities_are_clamped(cuda: Cuda) -> None:
    assert cuda.cuStreamGetPriority(cuda.stream(-5)) == -5
    assert cuda.cuStreamGetPriority(cuda.stream(-99)) == -5
    assert cuda.cuStreamGetPriority(cuda.stream(99)) == 0


def test_a_higher_priority_overtakes_a_flood(cuda: Cuda) -> None:
    low, high = cuda.stream(0), cuda.stream(-5)
    start, low_end, high_end = (cuda.cuEventCreate(0) for _ in range(3))
    with cuda.held(low):
        cuda.cuEventRecord(start, low)
        for _ in range(10):
            cuda.launch("spin", 500_000, grid=132 * 8, block=1024, stream=low)
        cuda.cuEventRecord(low_end, low)
        cuda.cuStreamWaitEvent(high, start, 0)
        cuda.launch("spin", 10_000, grid=132, block=1024, stream=high)
        cuda.cuEventRecord(high_end, high)
    cuda.cuCtxSynchronize()
    total = cuda.cuEventElapsedTime(start, low_end)
    assert total > 19
    assert cuda.cuEventElapsedTime(start, high_end) < total / 2


def test_kernels_of_two_streams_run_together(cuda: Cuda) -> None:
    streams = [cuda.stream(), cuda.stream()]
    start, ends = cuda.cuEventCreate(0), [cuda.cuEventCreate(0), cuda.cuEventCreate(0)]
    with cuda.held(streams[0]):
        cuda.cuEventRecord(start, streams[0])
        cuda.cuStreamWaitEvent(streams[1], start, 0)
        for stream, end in zip(streams, ends, strict=True):
            cuda.launch("spin", 10 * MILLISECOND, stream=stream)
            cuda.cuEventRecord(end, stream)
    cuda.cuCtxSynchronize()
    assert all(9.9 < cuda.cuEventElapsedTime(start, end) < 18 for end in ends)


def test_a_wave_over_all_sms_runs_at_once_and_the_next_after_it(cuda: Cuda) -> None:
    stream = cuda.stream()
    start, middle, end = (cuda.cuEventCreate(0) for _ in range(3))
    with cuda.held(stream):
        cuda.launch("nothing", stream=stream)
        cuda.cuEventRecord(start, stream)
        cuda.launch("spin", 4 * MILLISECOND, grid=132 * 2, block=1024, stream=stream)
        cuda.cuEventRecord(middle, stream)
        cuda.launch("spin", 4 * MILLISECOND, grid=132 * 2 + 1, block=1024, stream=stream)
        cuda.cuEventRecord(end, stream)
    assert 4 <= cuda.cuEventElapsedTime(start, middle) < 5
    assert 8 <= cuda.cuEventElapsedTime(middle, end) < 9


def test_an_event_never_recorded_is_done(cuda: Cuda, fails: Check) -> None:
    event = cuda.cuEventCreate(0)
    assert cuda.result("cuEventQuery", event) == "SUCCESS"
    cuda.cuEventSynchronize(event)
    fails("INVALID_HANDLE", cuda.cuEventElapsedTime, event, event)


def test_events_measure_and_report(cuda: Cuda, fails: Check) -> None:
    stream = cuda.stream()
    start, end = cuda.cuEventCreate(0), cuda.cuEventCreate(0)
    with cuda.held(stream):
        cuda.cuEventRecord(start, stream)
        cuda.launch("spin", 20 * MILLISECOND, stream=stream)
        cuda.cuEventRecord(end, stream)
        assert cuda.result("cuEventQuery", end) == "ERROR_NOT_READY"
        fails("NOT_READY", cuda.cuEventElapsedTime, start, end)
    cuda.cuEventSynchronize(end)
    assert 20 <= cuda.cuEventElapsedTime(start, end) < 40


def test_an_event_without_timing_has_no_time(cuda: Cuda, fails: Check) -> None:
    flags = cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING.value
    events = [cuda.cuEventCreate(flags), cuda.cuEventCreate(flags)]
    for event in events:
        cuda.cuEventRecord(event, 0)
    cuda.cuCtxSynchronize()
    fails("INVALID_HANDLE", cuda.cuEventElapsedTime, *events)
    fails("INVALID_VALUE", cuda.cuEventCreate, 1 << 20)


def test_a_wait_is_for_the_record_made_before_it(cuda: Cuda) -> None:
    writer, reader = cuda.stream(), cuda.stream()
    gate, words = cuda.pinned_words()
    event = cuda.cuEventCreate(2)
    cuda.cuEventRecord(event, writer)
    cuda.cuStreamWaitEvent(reader, event, 0)
    cuda.cuStreamWaitValue32(writer, gate, 1, 0)
    cuda.cuEventRecord(event, writer)
    cuda.cuStreamSynchronize(reader)
    cuda.cuStreamWaitEvent(reader, event, 0)
    assert cuda.result("cuStreamQuery", reader) == "ERROR_NOT_READY"
    words[0] = 1
    cuda.cuStreamSynchronize(reader)


def test_an_event_may_go_before_its_wait_is_over(cuda: Cuda) -> None:
    writer, reader = cuda.stream(), cuda.stream()
    place = cuda.device_words()
    event = cuda.cuEventCreate(2)
    cuda.launch("spin_store", 2 * MILLISECOND, place, ctypes.c_uint32(1), stream=writer)
    cuda.cuEventRecord(event, writer)
    cuda.cuStreamWaitEvent(reader, event, 0)
    cuda.cuEventDestroy(event)
    cuda.launch("store", place, ctypes.c_uint32(2), stream=reader)
    assert cuda.read(place)[0] == 2


def test_a_stream_may_go_before_its_work_is_over(cuda: Cuda) -> None:
    stream = cuda.stream()
    place = cuda.device_words()
    cuda.launch("spin_store", 5 * MILLISECOND, place, ctypes.c_uint32(9), stream=stream)
    cuda.cuStreamDestroy(stream)
    cuda.cuCtxSynchronize()
    assert cuda.read(place)[0] == 9


@pytest.mark.parametrize("wide", [False, True])
def test_written_values_come_in_order(cuda: Cuda, wide: bool) -> None:
    stream = cuda.stream()
    place, words = cuda.pinned_words(2)
    write = cuda.cuStreamWriteValue64 if wide else cuda.cuStreamWriteValue32
    cuda.launch("spin", MILLISECOND, stream=stream)
    value = (1 << 40) + 5 if wide else 5
    write(stream, place, value, 0)
    cuda.cuStreamSynchronize(stream)
    assert int(words[0]) + (int(words[1]) << 32) == value


@pytest.mark.parametrize(
    ("flag", "value", "wrong", "right"),
    [
        ("GEQ", 5, 4, 6),
        ("EQ", 5, 6, 5),
        ("AND", 0b1100, 0b0011, 0b0100),
        ("NOR", 0xF0, 0xFFFFFFFF, 0xFFFFFF00),
    ],
)
def test_waits_for_values(cuda: Cuda, flag: str, value: Any, wrong: int, right: int) -> None:
    flags = getattr(cuda.CUstreamWaitValue_flags, "CU_STREAM_WAIT_VALUE_" + flag).value
    stream = cuda.stream()
    place, words = cuda.pinned_words()
    words[0] = wrong
    cuda.launch("nothing")  # so that it is loaded, for which a genuine driver would wait for all streams
    cuda.cuStreamWaitValue32(stream, place, value, flags)
    cuda.launch("nothing")
    cuda.cuStreamSynchronize(0)
    assert cuda.result("cuStreamQuery", stream) == "ERROR_NOT_READY"
    words[0] = right
    cuda.cuStreamSynchronize(stream)


def test_one_stream_wakes_another_by_a_value(cuda: Cuda) -> None:
    writer, reader = cuda.stream(), cuda.stream()
    place = cuda.device_words()
    cuda.cuStreamWaitValue32(reader, place, 7, cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ.value)
    cuda.cuMemsetD32Async(place, 8, 1, reader)
    cuda.launch("spin", MILLISECOND, stream=writer)
    cuda.cuStreamWriteValue32(writer, place, 7, 0)
    assert cuda.read(place)[0] == 8


def test_value_operations_check_their_address(cuda: Cuda, fails: Check) -> None:
    stream = cuda.stream()
    place, _ = cuda.pinned_words(4)
    fails("INVALID_VALUE", cuda.cuStreamWriteValue32, stream, place + 2, 1, 0)
    fails("INVALID_VALUE", cuda.cuStreamWriteValue32, stream, 0, 1, 0)
    fails("INVALID_VALUE", cuda.cuStreamWriteValue32, stream, place, 1, 1)  # only its first version has flags


def test_host_functions_run_in_their_place(cuda: Cuda) -> None:
    stream = cuda.stream()
    place, words = cuda.pinned_words()
    seen = []
    done = threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def note(_data: int) -> None:
        seen.append(int(words[0]))
        done.set()

    cuda.launch("spin_store", MILLISECOND, place, ctypes.c_uint32(1), stream=stream)
    pointer = ctypes.cast(note, ctypes.c_void_p).value
    cuda.cuLaunchHostFunc(stream, cuda.CUhostFn(pointer), 0)
    cuda.launch("store", place, ctypes.c_uint32(2), stream=stream)
    cuda.cuStreamSynchronize(stream)
    assert done.is_set()
    assert seen == [1]
    assert words[0] == 2


def test_a_host_function_may_not_call_cuda(cuda: Cuda) -> None:
    answers = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def call(_data: int) -> None:
        for entry, *arguments in (
            (cuda.driver.cuMemAlloc, 64),
            (cuda.driver.cuMemGetInfo,),
            (cuda.driver.cuStreamSynchronize, 0),
            (cuda.driver.cuCtxSynchronize,),
        ):
            answers.append(entry(*arguments)[0].name)

    stream = cuda.stream()
    cuda.cuLaunchHostFunc(stream, cuda.CUhostFn(ctypes.cast(call, ctypes.c_void_p).value), 0)
    cuda.cuStreamSynchronize(stream)
    assert answers == ["CUDA_ERROR_NOT_PERMITTED"] * 4


def test_handles_of_nothing(cuda: Cuda, fails: Check) -> None:
    stream = cuda.stream()
    cuda.cuStreamDestroy(stream)
    fails("INVALID_VALUE", cuda.cuStreamCreate, 1 << 10)


def test_nothing_is_being_captured(cuda: Cuda) -> None:
    status = cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
    assert cuda.cuStreamIsCapturing(cuda.stream()) == status


def test_streams_of_many_threads(cuda: Cuda) -> None:
    place = cuda.device_words()
    failures = []

    def work() -> None:
        try:
            cuda.cuCtxSetCurrent(cuda.context)
            stream = cuda.stream()
            for _ in range(20):
                cuda.launch("count", place, grid=2, block=32, stream=stream)
            cuda.cuStreamSynchronize(stream)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert cuda.read(place)[0] == 4 * 20 * 64
