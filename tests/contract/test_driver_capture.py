"""Stream capture: what becomes a node, and what a capture forbids."""

import ctypes
import threading
from typing import Any

import pytest
from cuda_calls import Check, Cuda, replay


def begin(cuda: Cuda, stream: Any, mode: str = "THREAD_LOCAL") -> None:
    cuda.cuStreamBeginCapture(stream, getattr(cuda.CUstreamCaptureMode, "CU_STREAM_CAPTURE_MODE_" + mode))


def status(cuda: Cuda, stream: Any) -> str:
    return str(cuda.cuStreamIsCapturing(stream).name).removeprefix("CU_STREAM_CAPTURE_STATUS_")


def test_work_is_kept_and_not_done(cuda: Cuda) -> None:
    place, stream = cuda.device_words(), cuda.stream()
    begin(cuda, stream)
    assert status(cuda, stream) == "ACTIVE"
    cuda.launch("store", place, ctypes.c_uint32(3), stream=stream)
    cuda.launch("count", place, stream=stream)
    graph = cuda.cuStreamEndCapture(stream)
    assert status(cuda, stream) == "NONE"
    assert cuda.read(place)[0] == 0
    assert cuda.cuGraphGetNodes(graph)[1] == 2
    replay(cuda, graph)
    assert cuda.read(place)[0] == 4


def test_fork_and_join_by_events(cuda: Cuda) -> None:
    place, main, side = cuda.device_words(2), cuda.stream(), cuda.stream()
    fork, join = cuda.cuEventCreate(0), cuda.cuEventCreate(0)
    begin(cuda, main)
    cuda.cuMemsetD32Async(place, 1, 2, main)
    cuda.cuEventRecord(fork, main)
    cuda.cuStreamWaitEvent(side, fork, 0)
    assert status(cuda, side) == "ACTIVE"
    cuda.launch("count", place, stream=main)
    cuda.launch("count", place + 4, grid=2, stream=side)
    cuda.cuEventRecord(join, side)
    cuda.cuStreamWaitEvent(main, join, 0)
    graph = cuda.cuStreamEndCapture(main)
    assert status(cuda, side) == "NONE"
    replay(cuda, graph)
    assert cuda.read(place, 2).tolist() == [2, 3]


def test_a_fork_that_is_not_joined(cuda: Cuda, fails: Check) -> None:
    place, main, side = cuda.device_words(), cuda.stream(), cuda.stream()
    fork = cuda.cuEventCreate(0)
    begin(cuda, main)
    cuda.cuEventRecord(fork, main)
    cuda.cuStreamWaitEvent(side, fork, 0)
    cuda.launch("count", place, stream=side)
    fails("STREAM_CAPTURE_UNJOINED", cuda.cuStreamEndCapture, main)
    assert status(cuda, main) == status(cuda, side) == "NONE"


def test_a_captured_stream_cannot_be_waited_for(cuda: Cuda, fails: Check) -> None:
    stream = cuda.stream()
    begin(cuda, stream)
    fails("STREAM_CAPTURE_UNSUPPORTED", cuda.cuStreamSynchronize, stream)
    assert status(cuda, stream) == "INVALIDATED"
    fails("STREAM_CAPTURE_INVALIDATED", cuda.launch, "nothing", stream=stream)
    fails("STREAM_CAPTURE_INVALIDATED", cuda.cuStreamEndCapture, stream)
    assert status(cuda, stream) == "NONE"


def test_an_event_of_a_capture_is_no_event(cuda: Cuda, fails: Check) -> None:
    stream, event = cuda.stream(), cuda.cuEventCreate(0)
    begin(cuda, stream, "RELAXED")
    cuda.cuEventRecord(event, stream)
    fails("CAPTURED_EVENT", cuda.cuEventSynchronize, event)
    cuda.result("cuStreamEndCapture", stream)


def test_work_outside_is_no_dependency(cuda: Cuda, fails: Check) -> None:
    inside, outside, event = cuda.stream(), cuda.stream(), cuda.cuEventCreate(0)
    cuda.cuEventRecord(event, outside)
    begin(cuda, inside)
    fails("STREAM_CAPTURE_ISOLATION", cuda.cuStreamWaitEvent, inside, event, 0)
    fails("STREAM_CAPTURE_INVALIDATED", cuda.cuStreamEndCapture, inside)


def test_the_legacy_stream_beside_a_blocking_one(cuda: Cuda, fails: Check) -> None:
    stream = cuda.stream(blocking=True)
    begin(cuda, stream)
    fails("STREAM_CAPTURE_IMPLICIT", cuda.launch, "nothing")
    fails("STREAM_CAPTURE_INVALIDATED", cuda.cuStreamEndCapture, stream)


def test_unsafe_calls_by_mode(cuda: Cuda, fails: Check) -> None:
    stream = cuda.stream()
    begin(cuda, stream, "RELAXED")
    cuda.cuMemFree(cuda.cuMemAlloc(16))
    cuda.cuGraphDestroy(cuda.cuStreamEndCapture(stream))
    begin(cuda, stream, "GLOBAL")
    fails("STREAM_CAPTURE_UNSUPPORTED", cuda.cuMemAlloc, 16)
    fails("STREAM_CAPTURE_INVALIDATED", cuda.cuStreamEndCapture, stream)


def test_a_thread_can_take_the_risk(cuda: Cuda) -> None:
    stream, modes = cuda.stream(), cuda.CUstreamCaptureMode
    begin(cuda, stream, "GLOBAL")
    before = cuda.cuThreadExchangeStreamCaptureMode(modes.CU_STREAM_CAPTURE_MODE_RELAXED)
    cuda.cuMemFree(cuda.cuMemAlloc(16))
    assert before == modes.CU_STREAM_CAPTURE_MODE_GLOBAL
    cuda.cuThreadExchangeStreamCaptureMode(before)
    cuda.cuGraphDestroy(cuda.cuStreamEndCapture(stream))


def test_ends_that_fit_no_beginning(cuda: Cuda, fails: Check) -> None:
    stream = cuda.stream()
    fails("ILLEGAL_STATE", cuda.cuStreamEndCapture, stream)
    begin(cuda, stream)
    fails("ILLEGAL_STATE", begin, cuda, stream)
    cuda.result("cuStreamEndCapture", stream)
    fails("STREAM_CAPTURE_UNSUPPORTED", begin, cuda, 0)


def test_a_thread_that_may_not_end_a_capture_ends_it(cuda: Cuda, fails: Check) -> None:
    stream, got = cuda.stream(), []

    def end() -> None:
        cuda.cuCtxSetCurrent(cuda.context)
        got.append(cuda.result("cuStreamEndCapture", stream))

    begin(cuda, stream)
    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    assert got == ["ERROR_STREAM_CAPTURE_WRONG_THREAD"]
    fails("ILLEGAL_STATE", cuda.cuStreamEndCapture, stream)


def test_copies_that_wait_beside_a_capture(cuda: Cuda, fails: Check) -> None:
    place, stream, blocking = cuda.device_words(), cuda.stream(), cuda.stream(blocking=True)
    begin(cuda, stream)
    cuda.cuMemcpyHtoD(place, b"abcd", 4)
    back = bytearray(4)
    cuda.cuMemcpyDtoH(back, place, 4)
    assert back == b"abcd"
    cuda.cuGraphDestroy(cuda.cuStreamEndCapture(stream))
    begin(cuda, blocking)
    fails("STREAM_CAPTURE_IMPLICIT", cuda.cuMemcpyHtoD, place, b"abcd", 4)
    fails("STREAM_CAPTURE_INVALIDATED", cuda.cuStreamEndCapture, blocking)


def test_waits_and_pools_beside_a_capture(cuda: Cuda, fails: Check) -> None:
    stream, event = cuda.stream(), cuda.cuEventCreate(0)
    for call, argument in (("cuEventSynchronize", (event,)), ("cuStreamSynchronize", (1,))):
        begin(cuda, stream)
        fails("STREAM_CAPTURE_UNSUPPORTED", getattr(cuda, call), *argument)
        fails("STREAM_CAPTURE_INVALIDATED", cuda.cuStreamEndCapture, stream)
    begin(cuda, stream)
    fails("STREAM_CAPTURE_UNSUPPORTED", cuda.cuMemAllocAsync, 16, 1)
    fails("STREAM_CAPTURE_INVALIDATED", cuda.cuStreamEndCapture, stream)


def test_an_event_of_a_capture_that_is_over(cuda: Cuda, fails: Check) -> None:
    stream, other, event = cuda.stream(), cuda.stream(), cuda.cuEventCreate(0)
    begin(cuda, stream)
    cuda.cuEventRecord(event, stream)
    cuda.cuGraphDestroy(cuda.cuStreamEndCapture(stream))
    fails("INVALID_VALUE", cuda.cuStreamWaitEvent, other, event, 0)
    cuda.cuEventRecord(event, stream)
    cuda.cuStreamWaitEvent(other, event, 0)


@pytest.mark.parametrize("own_handle", [True, False], ids=["told", "known"])
def test_capture_to_a_graph(cuda: Cuda, own_handle: bool) -> None:
    place, stream, graph = cuda.device_words(), cuda.stream(), cuda.cuGraphCreate(0)
    root = cuda.cuGraphAddEmptyNode(graph, None, 0)
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    cuda.cuStreamBeginCaptureToGraph(stream, graph, [root], None, 1, mode)
    cuda.launch("count", place, stream=stream)
    if own_handle:
        assert int(cuda.cuStreamEndCapture(stream)) == int(graph)
    else:
        assert ctypes.CDLL("libcuda.so.1").cuStreamEndCapture(ctypes.c_void_p(int(stream)), None) == 0
        assert int(cuda.cuStreamIsCapturing(stream)) == 0
    assert cuda.cuGraphNodeGetDependentNodes(root)[2] == 1
    replay(cuda, graph)
    assert cuda.read(place)[0] == 1


def test_dependencies_can_be_changed_meanwhile(cuda: Cuda) -> None:
    stream = cuda.stream()
    begin(cuda, stream)
    cuda.launch("nothing", stream=stream)
    state, number, graph, nodes, _edges, count = cuda.cuStreamGetCaptureInfo(stream)
    assert state == cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    assert int(number) > 0
    assert len(nodes) == count == 1
    extra = cuda.cuGraphAddEmptyNode(graph, None, 0)
    replace = cuda.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES.value
    cuda.cuStreamUpdateCaptureDependencies(stream, [extra], None, 1, replace)
    cuda.launch("nothing", stream=stream)
    done = cuda.cuStreamEndCapture(stream)
    assert cuda.cuGraphNodeGetDependentNodes(extra)[2] == 1
    cuda.cuGraphDestroy(done)


def test_a_captured_allocation_is_a_node(cuda: Cuda) -> None:
    stream = cuda.stream()
    begin(cuda, stream)
    memory = cuda.cuMemAllocAsync(4096, stream)
    cuda.cuMemsetD32Async(memory, 1, 4, stream)
    cuda.cuMemFreeAsync(memory, stream)
    graph = cuda.cuStreamEndCapture(stream)
    kinds = [
        str(cuda.cuGraphNodeGetType(n).name).rsplit("TYPE_")[1] for n in cuda.cuGraphGetNodes(graph, 3)[0]
    ]
    assert sorted(kinds) == ["MEMSET", "MEM_ALLOC", "MEM_FREE"]
    replay(cuda, graph)


def test_a_stream_that_waits_for_what_is_external_is_captured_already(cuda: Cuda, fails: Check) -> None:
    stream, other, event = cuda.stream(), cuda.stream(), cuda.cuEventCreate(2)
    external = cuda.CUevent_wait_flags.CU_EVENT_WAIT_EXTERNAL.value
    begin(cuda, stream, "RELAXED")
    cuda.cuEventRecord(event, stream)
    fails("ILLEGAL_STATE", cuda.cuStreamWaitEvent, other, event, external)
    assert status(cuda, other) == "NONE"
    cuda.cuGraphDestroy(cuda.cuStreamEndCapture(stream))
    fails("INVALID_VALUE", cuda.cuStreamWaitEvent, other, event, external)
