"""Captured launches: what of their attributes the graph tells of.

cuda.bindings was seen to give zeros for what edges carry, so the library is asked itself.
"""

import ctypes
import os
import threading
from typing import Any

import pytest
from cuda_calls import Check, Cuda, Edge, replay

FULL, PROGRAMMATIC, BEGUN = (0, 0, 0), (1, 0, 1), (2, 0, 0)
Data = tuple[int, int, int]


def handle(value: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(int(value))


class Asked:
    """What the library says of captures and graphs."""

    def __init__(self, cuda: Cuda) -> None:
        self.names = cuda.CUresult
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: Any) -> str:
        answer = getattr(self.library, name)(*arguments)
        return str(self.names(answer).name).removeprefix("CUDA_").removeprefix("ERROR_")

    def ends(self, stream: Any) -> list[tuple[int, Data]]:
        """What the stream's next node will depend on."""
        state, nodes, count = ctypes.c_int(), ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
        edges = ctypes.POINTER(Edge)()
        places = [ctypes.byref(each) for each in (nodes, edges, count)]
        asked = (handle(stream), ctypes.byref(state), None, None, *places)
        assert self.call("cuStreamGetCaptureInfo_v3", *asked) == "SUCCESS"
        return [(int(nodes[i] or 0), edges[i].told()) for i in range(count.value)]

    def ends_without_data(self, stream: Any) -> str:
        state, nodes, count = ctypes.c_int(), ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
        places = [ctypes.byref(each) for each in (nodes, count)]
        return self.call(
            "cuStreamGetCaptureInfo_v2", handle(stream), ctypes.byref(state), None, None, *places
        )

    def edges(self, graph: Any) -> list[Data]:
        room = 8
        ends = [(ctypes.c_void_p * room)() for _ in range(2)]
        data, count = (Edge * room)(), ctypes.c_size_t(room)
        asked = (handle(graph), *ends, data, ctypes.byref(count))
        assert self.call("cuGraphGetEdges_v2", *asked) == "SUCCESS"
        return [data[i].told() for i in range(count.value)]


@pytest.fixture
def asked(cuda: Cuda) -> Asked:
    return Asked(cuda)


def begin(cuda: Cuda, stream: Any) -> None:
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)


def launch(cuda: Cuda, place: int, stream: Any, *attributes: Any) -> None:
    config = cuda.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.hStream = stream
    config.attrs, config.numAttrs = list(attributes), len(attributes)
    cuda.cuLaunchKernelEx(config, cuda.function("count"), ((place,), (ctypes.c_void_p,)), 0)


def attribute(cuda: Cuda, name: str) -> Any:
    made = cuda.CUlaunchAttribute()
    made.id = getattr(cuda.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
    return made


def recording(cuda: Cuda, event: Any, name: str, at_start: int = 0) -> Any:
    """An attribute by which a launch records an event."""
    made = attribute(cuda, name)
    if name == "PROGRAMMATIC_EVENT":
        given = made.value.programmaticEvent
        given.event, given.flags, given.triggerAtBlockStart = event, 0, at_start
        made.value.programmaticEvent = given
    else:
        given = made.value.launchCompletionEvent
        given.event, given.flags = event, 0
        made.value.launchCompletionEvent = given
    return made


# A launch-completion event is (2, 0, 0) on an H200, too, a programmatic one (1, 0, 1).
@pytest.mark.parametrize(
    ("name", "at_start", "edge"),
    [
        ("PROGRAMMATIC_EVENT", 0, PROGRAMMATIC),
        ("PROGRAMMATIC_EVENT", 1, (2, 0, 1)),
        ("LAUNCH_COMPLETION_EVENT", 0, BEGUN),
    ],
)
def test_an_event_of_a_captured_launch(
    cuda: Cuda, asked: Asked, name: str, at_start: int, edge: Data
) -> None:
    place, stream, other = cuda.device_words(), cuda.stream(), cuda.stream()
    event = cuda.cuEventCreate(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)
    priority = attribute(cuda, "PRIORITY")
    begin(cuda, stream)
    launch(cuda, place, stream, recording(cuda, event, name, at_start), priority)
    cuda.cuStreamWaitEvent(other, event, 0)
    ((first, told),) = asked.ends(other)
    assert told == edge
    assert asked.ends_without_data(other) == "LOSSY_QUERY"
    assert asked.ends(stream) == [(first, FULL)]
    assert asked.ends_without_data(stream) == "SUCCESS"
    cuda.launch("count", place, stream=other)
    cuda.cuEventRecord(event, other)
    cuda.cuStreamWaitEvent(stream, event, 0)
    graph = cuda.cuStreamEndCapture(stream)
    assert asked.edges(graph) == [edge]
    replay(cuda, graph)
    assert cuda.read(place)[0] == 2


def test_who_waits_for_the_end_too_waits_for_that(cuda: Cuda, asked: Asked) -> None:
    place, stream, other = cuda.device_words(), cuda.stream(), cuda.stream()
    early, late = (cuda.cuEventCreate(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING) for _ in range(2))
    begin(cuda, stream)
    launch(cuda, place, stream, recording(cuda, early, "PROGRAMMATIC_EVENT"))
    cuda.cuEventRecord(late, stream)
    for event in (early, early, late):
        cuda.cuStreamWaitEvent(other, event, 0)
    cuda.cuStreamWaitEvent(stream, early, 0)
    ((_, told),) = asked.ends(other)
    assert told == FULL
    ((_, told),) = asked.ends(stream)
    assert told == FULL
    cuda.cuGraphDestroy(cuda.cuStreamEndCapture(stream))


def test_a_captured_launch_that_may_begin_early(cuda: Cuda, asked: Asked) -> None:
    place, stream = cuda.device_words(), cuda.stream()
    early = attribute(cuda, "PROGRAMMATIC_STREAM_SERIALIZATION")
    early.value.programmaticStreamSerializationAllowed = 1
    begin(cuda, stream)
    launch(cuda, place, stream, early)  # behind nothing
    launch(cuda, place, stream, early)
    cuda.cuMemsetD32Async(place, 5, 1, stream)
    launch(cuda, place, stream, early)  # behind no kernel
    graph = cuda.cuStreamEndCapture(stream)
    assert sorted(asked.edges(graph)) == [FULL, FULL, PROGRAMMATIC]
    replay(cuda, graph)
    assert cuda.read(place)[0] == 6


def test_a_captured_launch_that_may_begin_early_behind_several(cuda: Cuda, asked: Asked) -> None:
    place, stream, other = cuda.device_words(), cuda.stream(), cuda.stream()
    early = attribute(cuda, "PROGRAMMATIC_STREAM_SERIALIZATION")
    early.value.programmaticStreamSerializationAllowed = 1
    event = cuda.cuEventCreate(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)
    begin(cuda, stream)
    cuda.cuEventRecord(event, stream)
    cuda.cuStreamWaitEvent(other, event, 0)
    for each in (stream, other):
        launch(cuda, place, each)
    cuda.cuEventRecord(event, other)
    cuda.cuStreamWaitEvent(stream, event, 0)
    launch(cuda, place, stream, early)
    graph = cuda.cuStreamEndCapture(stream)
    assert asked.edges(graph) == [PROGRAMMATIC, PROGRAMMATIC]
    cuda.cuGraphDestroy(graph)


def test_a_capture_ends_with_the_thread_whose_own_stream_it_is(cuda: Cuda) -> None:
    own, place = cuda.CUstream(cuda.CU_STREAM_PER_THREAD), cuda.device_words()

    def capture() -> None:
        cuda.cuCtxSetCurrent(cuda.context)
        cuda.cuStreamBeginCapture(own, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)

    thread = threading.Thread(target=capture)
    thread.start()
    # Python lets one join it before it has ended.
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        thread.join(0.001)
    for stream in (0, own):
        assert int(cuda.cuStreamIsCapturing(stream)) == 0
    cuda.cuMemFree(cuda.cuMemAlloc(64))
    cuda.launch("count", place)
    cuda.cuCtxSynchronize()
    assert cuda.read(place)[0] == 1


def test_dependencies_are_given_with_what_they_carry(cuda: Cuda, asked: Asked) -> None:
    place, stream = cuda.device_words(), cuda.stream()
    begin(cuda, stream)
    cuda.launch("count", place, stream=stream)
    ((first, _),) = asked.ends(stream)
    node, one, replace = ctypes.byref(ctypes.c_void_p(first)), ctypes.c_size_t(1), ctypes.c_uint(1)

    def change(edge: Edge) -> str:
        given = (handle(stream), node, ctypes.byref(edge), one, replace)
        return asked.call("cuStreamUpdateCaptureDependencies_v2", *given)

    assert change(Edge(from_port=1)) == "INVALID_VALUE"
    assert asked.ends(stream) == [(first, FULL)]
    assert change(Edge(from_port=1, type=1)) == "SUCCESS"
    assert asked.ends(stream) == [(first, PROGRAMMATIC)]
    cuda.launch("count", place, stream=stream)
    graph = cuda.cuStreamEndCapture(stream)
    assert asked.edges(graph) == [PROGRAMMATIC]
    mode, edge = ctypes.c_int(2), Edge(from_port=2)
    into = (handle(stream), handle(graph), node, ctypes.byref(edge), one, mode)
    assert asked.call("cuStreamBeginCaptureToGraph", *into) == "SUCCESS"
    cuda.launch("count", place, stream=stream)
    cuda.cuStreamEndCapture(stream)
    assert sorted(asked.edges(graph)) == [PROGRAMMATIC, BEGUN]
    replay(cuda, graph)
    assert cuda.read(place)[0] == 3


def test_a_captured_launch_keeps_its_hints(cuda: Cuda) -> None:
    place, stream = cuda.device_words(), cuda.stream()
    carveout = attribute(cuda, "PREFERRED_SHARED_MEMORY_CARVEOUT")
    carveout.value.sharedMemCarveout = 45
    spread = attribute(cuda, "CLUSTER_SCHEDULING_POLICY_PREFERENCE")
    spread.value.clusterSchedulingPolicyPreference = (
        cuda.CUclusterSchedulingPolicy.CU_CLUSTER_SCHEDULING_POLICY_SPREAD
    )
    begin(cuda, stream)
    launch(cuda, place, stream, carveout, spread)
    graph = cuda.cuStreamEndCapture(stream)
    (node,) = cuda.cuGraphGetNodes(graph, 1)[0]
    assert cuda.cuGraphKernelNodeGetAttribute(node, carveout.id).sharedMemCarveout == 45
    told = cuda.cuGraphKernelNodeGetAttribute(node, spread.id).clusterSchedulingPolicyPreference
    assert told == spread.value.clusterSchedulingPolicyPreference
    cuda.cuGraphDestroy(graph)


def test_an_event_that_is_refused_spoils_no_capture(cuda: Cuda, fails: Check) -> None:
    place, stream = cuda.device_words(), cuda.stream()
    timed = recording(cuda, cuda.cuEventCreate(0), "PROGRAMMATIC_EVENT")
    begin(cuda, stream)
    fails("NOT_SUPPORTED", launch, cuda, place, stream, timed)
    graph = cuda.cuStreamEndCapture(stream)
    assert cuda.cuGraphGetNodes(graph)[1] == 0
    cuda.cuGraphDestroy(graph)


def test_an_event_of_another_context_is_no_launch_s(cuda: Cuda, fails: Check) -> None:
    """Nothing is launched then."""
    place, stream = cuda.device_words(), cuda.stream()
    other = cuda.cuCtxCreate(None, 0, cuda.device)
    event = cuda.cuEventCreate(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)
    cuda.cuCtxPopCurrent()
    fails("INVALID_HANDLE", launch, cuda, place, stream, recording(cuda, event, "PROGRAMMATIC_EVENT"))
    assert cuda.read(place)[0] == 0
    cuda.cuCtxDestroy(other)
