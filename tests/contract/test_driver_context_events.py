"""Events of whole contexts: what they stand for, and who waits for them."""

import ctypes

from cuda_calls import Check, Cuda


def test_an_event_stands_for_all_of_a_context(cuda: Cuda) -> None:
    streams = [cuda.stream(), cuda.stream(blocking=True), cuda.stream()]
    place, seen = cuda.pinned_words(4)
    event = cuda.cuEventCreate(0)
    cuda.cuCtxRecordEvent(cuda.context, event)
    cuda.cuEventSynchronize(event)
    with cuda.held(streams[1]):
        for index, stream in enumerate(streams[:2]):
            cuda.launch("spin_store", 3_000_000, place + 4 * index, ctypes.c_uint32(1), stream=stream)
        cuda.cuCtxRecordEvent(cuda.context, event)
        assert cuda.result("cuEventQuery", event) == "ERROR_NOT_READY"
    cuda.cuEventSynchronize(event)
    assert seen[:2].tolist() == [1, 1]
    assert cuda.result("cuStreamQuery", streams[2]) == "SUCCESS"
    for stream in streams:
        cuda.cuStreamDestroy(stream)
    cuda.cuEventDestroy(event)
    cuda.cuMemFreeHost(place)


def test_a_context_waits_for_an_event(cuda: Cuda) -> None:
    streams = [cuda.stream(), cuda.stream(blocking=True), cuda.stream()]
    place, seen = cuda.pinned_words(4)
    event = cuda.cuEventCreate(0)
    cuda.launch("spin_store", 3_000_000, place, ctypes.c_uint32(5), stream=streams[0])
    cuda.cuEventRecord(event, streams[0])
    cuda.cuCtxWaitEvent(cuda.context, event)
    for index, stream in enumerate(streams[1:], 1):
        cuda.cuMemcpyHtoDAsync(place + 4 * index, place, 4, stream)
    cuda.cuMemcpyHtoDAsync(place + 12, place, 4, 0)
    cuda.cuCtxSynchronize()
    assert seen.tolist() == [5] * 4
    for stream in streams:
        cuda.cuStreamDestroy(stream)
    cuda.cuEventDestroy(event)
    cuda.cuMemFreeHost(place)


def test_what_a_context_s_events_may_not_be(cuda: Cuda, fails: Check) -> None:
    event = cuda.cuEventCreate(0)
    cuda.cuCtxWaitEvent(cuda.context, event)  # never recorded
    stream = cuda.stream()
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    fails("STREAM_CAPTURE_UNSUPPORTED", cuda.cuCtxRecordEvent, cuda.context, event)
    fails("STREAM_CAPTURE_INVALIDATED", cuda.cuStreamEndCapture, stream)
    cuda.cuStreamDestroy(stream)
    cuda.cuEventDestroy(event)


def test_an_event_is_recorded_in_its_own_context(cuda: Cuda, fails: Check) -> None:
    event = cuda.cuEventCreate(0)
    other = cuda.cuCtxCreate(None, 0, cuda.device)
    theirs = cuda.cuEventCreate(0)
    fails("INVALID_HANDLE", cuda.cuCtxRecordEvent, other, event)
    fails("INVALID_HANDLE", cuda.cuCtxRecordEvent, cuda.context, theirs)
    cuda.cuCtxRecordEvent(other, theirs)
    cuda.cuCtxWaitEvent(cuda.context, theirs)
    cuda.cuCtxSynchronize()
    cuda.cuCtxDestroy(other)
    cuda.cuCtxSetCurrent(cuda.context)
