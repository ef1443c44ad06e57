"""Conditional nodes of graphs: what kernels say decides which graph runs, and how often."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from cuda_calls import Cuda

KERNELS = """.version 8.4
.target sm_90
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 a, .param .b32 b);
// say(handle, place, step): adds step to the word and says what it is then
.visible .entry say(.param .u64 handle, .param .u64 place, .param .u32 step)
{
    .reg .b64 %handle, %place;
    .reg .b32 %value, %step;
    ld.param.u64 %handle, [handle];
    ld.param.u64 %place, [place];
    ld.param.u32 %step, [step];
    ld.global.u32 %value, [%place];
    add.u32 %value, %value, %step;
    st.global.u32 [%place], %value;
    {
        .param .b64 first;
        .param .b32 second;
        st.param.b64 [first], %handle;
        st.param.b32 [second], %value;
        call.uni cudaGraphSetConditional, (first, second);
    }
    ret;
}
.visible .entry add(.param .u64 place, .param .u32 step)
{
    .reg .b64 %place;
    .reg .b32 %step;
    ld.param.u64 %place, [place];
    ld.param.u32 %step, [step];
    red.global.add.u32 [%place], %step;
    ret;
}
"""
ASSIGN = 1  # CU_GRAPH_COND_ASSIGN_DEFAULT


class Words:
    """Words on the device, and kernels that change them."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.place = int(cuda.cuMemAlloc(16))
        self.module = cuda.cuModuleLoadData(KERNELS.encode())
        self.set()

    def set(self, *values: int) -> None:
        words = np.array([*values, 0, 0, 0, 0][:4], dtype=np.uint32)
        self.cuda.cuMemcpyHtoD(self.place, words.ctypes.data, words.nbytes)

    def get(self) -> list[int]:
        words = np.zeros(4, dtype=np.uint32)
        self.cuda.cuMemcpyDtoH(words.ctypes.data, self.place, words.nbytes)
        return [int(word) for word in words]

    def kernel(self, graph: Any, after: list[Any], name: str, *values: int) -> Any:
        with self.work(name, *values) as params:
            return self.cuda.cuGraphAddKernelNode(graph, after, len(after), params)

    @contextmanager
    def work(self, name: str, *values: int) -> Iterator[Any]:
        """What a kernel's node does."""
        params = self.cuda.driver.CUDA_KERNEL_NODE_PARAMS()
        params.func = self.cuda.cuModuleGetFunction(self.module, name.encode())
        params.gridDimX = params.gridDimY = params.gridDimZ = 1
        params.blockDimX = params.blockDimY = params.blockDimZ = 1
        kinds = {"say": (np.uint64, np.uint64, np.uint32), "add": (np.uint64, np.uint32)}[name]
        stored = [np.array([value], dtype=kind) for value, kind in zip(values, kinds, strict=True)]
        pointers = np.array([one.ctypes.data for one in stored], dtype=np.uint64)
        params.kernelParams = pointers.ctypes.data
        yield params

    def node(self, graph: Any, after: list[Any], handle: int, kind: str, size: int = 1) -> list[Any]:
        """Add a conditional node; the node and its bodies."""
        params = self.params(handle, kind, size)
        node = self.cuda.cuGraphAddNode(graph, after, None, len(after), params)
        return [node, *params.conditional.phGraph_out]

    def params(self, handle: int, kind: str, size: int) -> Any:
        params = self.cuda.driver.CUgraphNodeParams()
        params.type = self.cuda.driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        params.conditional.handle = handle
        params.conditional.type = getattr(
            self.cuda.driver.CUgraphConditionalNodeType, f"CU_GRAPH_COND_TYPE_{kind}"
        )
        params.conditional.size = size
        params.conditional.ctx = self.cuda.cuCtxGetCurrent()
        return params

    def condition(self, graph: Any, initial: int = 0, flags: int = 0) -> int:
        return int(
            self.cuda.cuGraphConditionalHandleCreate(graph, self.cuda.cuCtxGetCurrent(), initial, flags)
        )

    def run(self, graph: Any, *values: int) -> list[int]:
        """Launch it once on these words; what they are then."""
        self.set(*values)
        exec_ = self.cuda.cuGraphInstantiate(graph, 0)
        self.cuda.cuGraphLaunch(exec_, 0)
        self.cuda.cuCtxSynchronize()
        self.cuda.cuGraphExecDestroy(exec_)
        return self.get()


@pytest.fixture
def words(cuda: Cuda) -> Iterator[Words]:
    made = Words(cuda)
    yield made
    cuda.cuMemFree(made.place)
    cuda.cuModuleUnload(made.module)


@pytest.fixture
def graph(cuda: Cuda) -> Iterator[Any]:
    made = cuda.cuGraphCreate(0)
    yield made
    cuda.cuGraphDestroy(made)


def test_if_runs_its_body_when_the_condition_holds(words: Words, graph: Any) -> None:
    handle = words.condition(graph)
    first = words.kernel(graph, [], "say", handle, words.place, 1)
    node, body = words.node(graph, [first], handle, "IF")
    words.kernel(body, [], "add", words.place + 4, 10)
    words.kernel(graph, [node], "add", words.place + 8, 100)
    assert words.run(graph, 5)[:3] == [6, 10, 100]
    assert words.run(graph, 2**32 - 1)[:3] == [0, 0, 100]


def test_each_launch_decides_anew(cuda: Cuda, words: Words, graph: Any) -> None:
    handle = words.condition(graph)
    first = words.kernel(graph, [], "say", handle, words.place, 0)
    _, then, otherwise = words.node(graph, [first], handle, "IF", 2)
    words.kernel(then, [], "add", words.place + 4, 10)
    words.kernel(otherwise, [], "add", words.place + 8, 20)
    exec_ = cuda.cuGraphInstantiate(graph, 0)
    words.set(0)
    for value in (0, 1, 0, 1):
        cuda.cuMemsetD32(words.place, value, 1)
        cuda.cuGraphLaunch(exec_, 0)
        cuda.cuCtxSynchronize()
    assert words.get()[:3] == [1, 20, 40]
    for value in (1, 1, 0):  # the host goes on
        cuda.cuMemsetD32Async(words.place, value, 1, 0)
        cuda.cuGraphLaunch(exec_, 0)
    cuda.cuCtxSynchronize()
    assert words.get()[:3] == [0, 40, 60]
    cuda.cuGraphExecDestroy(exec_)


def test_an_instantiated_graph_that_decides_is_changed(cuda: Cuda, words: Words, graph: Any) -> None:
    handle = words.condition(graph, 1, ASSIGN)
    node, body = words.node(graph, [], handle, "IF")
    inside = words.kernel(body, [], "add", words.place, 1)
    behind = words.kernel(graph, [node], "add", words.place + 4, 1)
    exec_ = cuda.cuGraphInstantiate(graph, 0)

    def launched() -> list[int]:
        cuda.cuGraphLaunch(exec_, 0)
        cuda.cuCtxSynchronize()
        return words.get()[:2]

    assert launched() == [1, 1]
    for changed, place in ((inside, words.place), (behind, words.place + 4)):
        with words.work("add", place, 10) as params:
            cuda.cuGraphExecKernelNodeSetParams(exec_, changed, params)
    assert launched() == [11, 11]
    cuda.cuGraphNodeSetEnabled(exec_, behind, 0)
    assert launched() == [21, 11]
    with words.work("add", words.place, 100) as params:
        cuda.cuGraphKernelNodeSetParams(inside, params)
    cuda.cuGraphExecUpdate(exec_, graph)
    assert launched() == [121, 11]
    for _ in range(2):  # also while it runs
        cuda.cuGraphLaunch(exec_, 0)
        cuda.cuGraphNodeSetEnabled(exec_, behind, 1)
    assert launched() == [421, 13]
    cuda.cuGraphExecDestroy(exec_)


def test_a_change_is_one_of_later_launches(cuda: Cuda, words: Words, graph: Any) -> None:
    _, body = words.node(graph, [], words.condition(graph, 1, ASSIGN), "IF")
    inside = words.kernel(body, [], "add", words.place, 1)
    exec_ = cuda.cuGraphInstantiate(graph, 0)
    cuda.launch("spin", 20_000_000)
    for step in (10, 100):
        cuda.cuGraphLaunch(exec_, 0)
        with words.work("add", words.place, step) as params:
            cuda.cuGraphExecKernelNodeSetParams(exec_, inside, params)
    cuda.cuCtxSynchronize()
    assert words.get()[0] == 11
    cuda.cuGraphExecDestroy(exec_)


def test_a_change_while_an_earlier_launch_waits(cuda: Cuda, words: Words, graph: Any) -> None:
    _, body = words.node(graph, [], words.condition(graph, 1, ASSIGN), "IF")
    inside = words.kernel(body, [], "add", words.place, 1)
    exec_ = cuda.cuGraphInstantiate(graph, 0)
    address, word = cuda.pinned_words()
    stream = cuda.stream()
    cuda.cuStreamWaitValue32(stream, address, 1, 0)
    cuda.cuGraphLaunch(exec_, stream)
    with words.work("add", words.place, 10) as params:
        cuda.cuGraphExecKernelNodeSetParams(exec_, inside, params)
    end = threading.Timer(0.1, word.fill, [1])
    end.start()
    cuda.cuGraphLaunch(exec_, stream)
    end.join()
    cuda.cuStreamSynchronize(stream)
    assert words.get()[0] == 11
    cuda.cuGraphExecDestroy(exec_)
    cuda.cuStreamDestroy(stream)
    cuda.cuMemFreeHost(address)


def test_a_graph_with_conditions_of_its_own_updates_another(cuda: Cuda, words: Words) -> None:
    graphs = []
    for number in range(3):
        graph = cuda.cuGraphCreate(0)
        chosen, said = words.condition(graph, number, ASSIGN), words.condition(graph)
        node, *bodies = words.node(graph, [], chosen, "SWITCH", 3)
        for power, body in enumerate(bodies):
            words.kernel(body, [], "add", words.place, 10**power)
        say = words.kernel(graph, [node], "say", said, words.place + 4, number)
        _, body = words.node(graph, [say], said, "IF")
        words.kernel(body, [], "add", words.place + 8, 1)
        graphs.append(graph)
    exec_ = cuda.cuGraphInstantiate(graphs[0], 0)
    for graph, expected in (
        (graphs[0], [1, 0, 0]),
        (graphs[1], [11, 1, 1]),
        (graphs[2], [111, 3, 2]),
        (graphs[0], [112, 3, 3]),
    ):
        cuda.cuGraphExecUpdate(exec_, graph)
        cuda.cuGraphLaunch(exec_, 0)
        cuda.cuCtxSynchronize()
        assert words.get()[:3] == expected
    for graph in graphs:  # what is instantiated has the conditions, too
        cuda.cuGraphDestroy(graph)
    cuda.cuGraphLaunch(exec_, 0)
    cuda.cuCtxSynchronize()
    assert words.get()[:3] == [113, 3, 4]
    cuda.cuGraphExecDestroy(exec_)


def test_a_graph_that_decides_begins_and_ends_on_the_host(cuda: Cuda, words: Words, graph: Any) -> None:
    """Its copies from there come before all else, those to there and the event behind it."""
    address, host = cuda.pinned_words(8)
    event = cuda.cuEventCreate(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)
    given = cuda.cuGraphAddMemcpyNode(graph, None, 0, line(cuda, words.place, address), cuda.context)
    joined = cuda.cuGraphAddEmptyNode(graph, [given], 1)
    handle = words.condition(graph)
    say = words.kernel(graph, [joined], "say", handle, words.place, 0)
    node, body = words.node(graph, [say], handle, "WHILE")
    add = words.kernel(body, [], "add", words.place + 4, 3)
    words.kernel(body, [add], "say", handle, words.place, 2**32 - 1)
    back = cuda.cuGraphAddMemcpyNode(graph, [node], 1, line(cuda, address + 16, words.place), cuda.context)
    cuda.cuGraphAddEventRecordNode(graph, [back], 1, event)
    exec_ = cuda.cuGraphInstantiate(graph, 0)
    for turns in (4, 0, 7):
        host[:] = [turns, 1, 0, 0, 9, 9, 9, 9]
        cuda.cuGraphLaunch(exec_, 0)
        cuda.cuEventSynchronize(event)
        assert host[4:6].tolist() == [0, 1 + 3 * turns]
    cuda.cuGraphNodeSetEnabled(exec_, back, 0)
    cuda.cuGraphLaunch(exec_, 0)
    cuda.cuCtxSynchronize()
    assert words.get()[:2] == [0, 1 + 3 * 7]
    cuda.cuGraphExecDestroy(exec_)
    cuda.cuEventDestroy(event)
    cuda.cuMemFreeHost(address)


def line(cuda: Cuda, to: int, given: int) -> Any:
    """A copy of four words between host and device."""
    copy = cuda.CUDA_MEMCPY3D()
    copy.srcMemoryType = copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_UNIFIED
    copy.srcDevice, copy.dstDevice = given, to
    copy.WidthInBytes, copy.Height, copy.Depth = 16, 1, 1
    return copy


def test_else_is_the_second_body(words: Words, graph: Any) -> None:
    handle = words.condition(graph)
    first = words.kernel(graph, [], "say", handle, words.place, 1)
    _, then, otherwise = words.node(graph, [first], handle, "IF", 2)
    words.kernel(then, [], "add", words.place + 4, 10)
    words.kernel(otherwise, [], "add", words.place + 8, 20)
    assert words.run(graph, 1)[:3] == [2, 10, 0]
    assert words.run(graph, 2**32 - 1)[:3] == [0, 0, 20]


def test_while_runs_its_body_until_the_condition_is_zero(words: Words, graph: Any) -> None:
    handle = words.condition(graph, 1, ASSIGN)
    node, body = words.node(graph, [], handle, "WHILE")
    add = words.kernel(body, [], "add", words.place + 4, 3)
    words.kernel(body, [add], "say", handle, words.place, 2**32 - 1)
    words.kernel(graph, [node], "add", words.place + 8, 1)
    assert words.run(graph, 7)[:3] == [0, 21, 1]
    assert words.run(graph, 1)[:3] == [0, 3, 1]


def test_a_default_is_assigned_at_each_launch(words: Words, cuda: Cuda, graph: Any) -> None:
    handle = words.condition(graph, 2, ASSIGN)
    _, *bodies = words.node(graph, [], handle, "SWITCH", 3)
    for number, body in enumerate(bodies):
        words.kernel(body, [], "add", words.place, 10**number)
    words.kernel(bodies[2], [], "say", handle, words.place + 4, 0)
    exec_ = cuda.cuGraphInstantiate(graph, 0)
    for _ in range(3):
        cuda.cuGraphLaunch(exec_, 0)
    cuda.cuCtxSynchronize()
    assert words.get()[0] == 300
    cuda.cuGraphExecDestroy(exec_)


def test_switch_runs_the_body_of_that_number_or_none(words: Words, graph: Any) -> None:
    handle = words.condition(graph)
    first = words.kernel(graph, [], "say", handle, words.place, 1)
    _, *bodies = words.node(graph, [first], handle, "SWITCH", 3)
    for number, body in enumerate(bodies):
        words.kernel(body, [], "add", words.place + 4, 10**number)
    assert [words.run(graph, value)[1] for value in (0, 1, 4, 2**32 - 1)] == [10, 100, 0, 1]


def test_conditions_inside_conditions(words: Words, graph: Any) -> None:
    outer = words.condition(graph, 1, ASSIGN)
    _, body = words.node(graph, [], outer, "WHILE")
    inner = words.condition(body)
    say = words.kernel(body, [], "say", inner, words.place, 2**32 - 1)
    node, deep = words.node(body, [say], inner, "IF")
    words.kernel(deep, [], "add", words.place + 4, 1)
    words.kernel(body, [node], "say", outer, words.place, 0)
    assert words.run(graph, 5)[:2] == [0, 4]


def test_a_body_is_filled_by_capture(words: Words, cuda: Cuda, graph: Any) -> None:
    handle = words.condition(graph, 1, ASSIGN)
    _, body = words.node(graph, [], handle, "IF")
    stream = cuda.cuStreamCreate(1)
    mode = cuda.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    cuda.cuStreamBeginCaptureToGraph(stream, body, None, None, 0, mode)
    cuda.cuMemsetD32Async(words.place, 42, 2, stream)
    cuda.cuStreamEndCapture(stream)
    cuda.cuStreamDestroy(stream)
    assert words.run(graph)[:3] == [42, 42, 0]


def test_what_is_refused(words: Words, cuda: Cuda, graph: Any) -> None:
    handle = words.condition(graph)
    for kind, size in (("IF", 0), ("IF", 3), ("WHILE", 2), ("SWITCH", 0)):
        params = words.params(handle, kind, size)
        assert cuda.result("cuGraphAddNode", graph, None, None, 0, params) == "ERROR_INVALID_VALUE"
    result = cuda.result("cuGraphAddNode", graph, None, None, 0, words.params(handle + 1000, "IF", 1))
    assert result == "ERROR_INVALID_VALUE"
    current = cuda.cuCtxGetCurrent()
    assert cuda.result("cuGraphConditionalHandleCreate", graph, current, 0, 2) == "ERROR_INVALID_VALUE"


def test_a_graph_that_decides_is_not_copied(words: Words, cuda: Cuda, graph: Any) -> None:
    _, body = words.node(graph, [], words.condition(graph), "IF")
    words.node(body, [], words.condition(body), "IF")
    other = cuda.cuGraphCreate(0)
    for each in (graph, body):
        assert cuda.result("cuGraphClone", each).startswith("ERROR")
        assert cuda.result("cuGraphAddChildGraphNode", other, None, 0, each).startswith("ERROR")
    cuda.cuGraphDestroy(other)


def test_a_condition_without_a_node_is_refused(words: Words, cuda: Cuda, graph: Any) -> None:
    words.condition(graph)
    assert cuda.result("cuGraphInstantiate", graph, 0) == "ERROR_INVALID_VALUE"
