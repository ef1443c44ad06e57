"""Graphs: nodes, edges, copies, launches and updates."""

import ctypes
from pathlib import Path
from typing import Any

import pytest
from cuda_calls import Check, Cuda, Edge, replay


@pytest.fixture
def graph(cuda: Cuda) -> Any:
    made = cuda.cuGraphCreate(0)
    yield made
    cuda.result("cuGraphDestroy", made)


def store(cuda: Cuda, place: int, value: int) -> Any:
    """Parameters of a node that stores a word; they keep what they point at alive."""
    values = [ctypes.c_uint64(place), ctypes.c_uint32(value)]
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(v) for v in values))
    params = cuda.CUDA_KERNEL_NODE_PARAMS()
    params.func = cuda.function("store")
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    params.kernelParams = ctypes.addressof(pointers)
    return params, (values, pointers)


def fill(cuda: Cuda, place: int, value: int, count: int = 1) -> Any:
    params = cuda.CUDA_MEMSET_NODE_PARAMS()
    params.dst, params.value, params.elementSize = place, value, 4
    params.width, params.height = count, 1
    return params


def run(cuda: Cuda, graph: Any) -> None:
    executable = cuda.cuGraphInstantiate(graph, 0)
    stream = cuda.stream()
    cuda.cuGraphLaunch(executable, stream)
    cuda.cuStreamSynchronize(stream)
    cuda.cuGraphExecDestroy(executable)
    cuda.cuStreamDestroy(stream)


def test_nodes_run_in_the_order_of_their_edges(cuda: Cuda, graph: Any) -> None:
    place = cuda.device_words(2)
    first = cuda.cuGraphAddMemsetNode(graph, None, 0, fill(cuda, place, 3, 2), cuda.context)
    params, kept = store(cuda, place, 5)
    second = cuda.cuGraphAddKernelNode(graph, [first], 1, params)
    third = cuda.cuGraphAddMemsetNode(graph, [second], 1, fill(cuda, place + 4, 7), cuda.context)
    del kept
    run(cuda, graph)
    assert cuda.read(place, 2).tolist() == [5, 7]
    assert [int(n) for n in cuda.cuGraphNodeGetDependencies(third, 1)[0]] == [int(second)]
    assert [int(n) for n in cuda.cuGraphNodeGetDependentNodes(first, 1)[0]] == [int(second)]


def count(cuda: Cuda, graph: Any, place: int) -> Any:
    """A node whose 64 threads count."""
    values = [ctypes.c_uint64(place)]
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(values[0]))
    params = cuda.CUDA_KERNEL_NODE_PARAMS()
    params.func = cuda.function("count")
    params.gridDimX, params.gridDimY, params.gridDimZ = 2, 1, 1
    params.blockDimX, params.blockDimY, params.blockDimZ = 32, 1, 1
    params.kernelParams = ctypes.addressof(pointers)
    return cuda.cuGraphAddKernelNode(graph, None, 0, params)


def test_an_edge_may_let_a_kernel_begin_early(cuda: Cuda, graph: Any) -> None:
    library = ctypes.CDLL("libcuda.so.1")
    programmatic = cuda.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.value
    place = cuda.device_words()
    start = int(cuda.cuGraphAddMemsetNode(graph, None, 0, fill(cuda, place, 3), cuda.context))
    one, two = (int(count(cuda, graph, place)) for _ in range(2))
    of = ctypes.c_void_p(int(graph))

    # One edge a call: driver 580 gives all edges of a call the data of the first.
    def change(call: str, before: int, after: int, port: int, kind: int) -> str:
        first, second = (ctypes.byref(ctypes.c_void_p(node)) for node in (before, after))
        edge = Edge(from_port=port, type=kind)
        answer = getattr(library, call)(of, first, second, ctypes.byref(edge), ctypes.c_size_t(1))
        return str(cuda.CUresult(answer).name)

    def told(call: Any, node: int) -> tuple[int, int, int]:
        other, edge, number = ctypes.c_void_p(), Edge(), ctypes.c_size_t(1)
        result = call(ctypes.c_void_p(node), ctypes.byref(other), ctypes.byref(edge), ctypes.byref(number))
        assert result == 0
        return other.value or 0, edge.from_port, edge.type

    def told_less(node: int) -> str:
        other, number = ctypes.c_void_p(), ctypes.c_size_t(1)
        result = library.cuGraphNodeGetDependencies(
            ctypes.c_void_p(node), ctypes.byref(other), ctypes.byref(number)
        )
        return str(cuda.CUresult(result).name)

    add, remove = "cuGraphAddDependencies_v2", "cuGraphRemoveDependencies_v2"
    assert change(add, start, one, 1, programmatic) == "CUDA_ERROR_INVALID_VALUE"  # not of a kernel's end
    assert change(add, start, one, 0, 0) == "CUDA_SUCCESS"
    for port, kind in ((0, programmatic), (1, 0)):
        assert change(add, one, two, port, kind) == "CUDA_ERROR_INVALID_VALUE"
    # Whatever data is given removes an edge, also such as no edge can have.
    for port, kind, data in (
        (2, 0, (2, 0)),
        (2, programmatic, (0, 0)),
        (1, programmatic, (2, 0)),
        (2, 0, (9, 9)),
    ):
        assert change(add, one, two, port, kind) == "CUDA_SUCCESS"
        assert told(library.cuGraphNodeGetDependencies_v2, two) == (one, port, kind)
        assert told_less(two) == "CUDA_ERROR_LOSSY_QUERY"
        assert change(remove, one, two, *data) == "CUDA_SUCCESS"
        assert change(remove, one, two, *data) == "CUDA_ERROR_INVALID_VALUE"  # no more
    assert change(add, one, two, 1, programmatic) == "CUDA_SUCCESS"
    ends = [ctypes.byref(ctypes.c_void_p(node)) for node in (one, two)]
    assert library.cuGraphRemoveDependencies(of, *ends, ctypes.c_size_t(1)) == 0
    assert change(add, one, two, 1, programmatic) == "CUDA_SUCCESS"
    assert told(library.cuGraphNodeGetDependentNodes_v2, start) == (one, 0, 0)
    run(cuda, cuda.cuGraphClone(graph))
    assert cuda.read(place)[0] == 3 + 2 * 64


def test_a_graph_can_be_launched_again_and_again(cuda: Cuda, graph: Any) -> None:
    place = cuda.device_words()
    count(cuda, graph, place)
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphDestroy(graph)  # the executable one lives on
    for _ in range(5):
        cuda.cuGraphLaunch(executable, 0)
    assert cuda.read(place)[0] == 5 * 64
    cuda.cuGraphExecDestroy(executable)


def test_copies_and_host_functions(cuda: Cuda, graph: Any) -> None:
    source, words = cuda.pinned_words(2)
    place = cuda.device_words()
    words[0] = 11
    up = cuda.CUDA_MEMCPY3D()
    kinds = cuda.CUmemorytype
    up.srcMemoryType, up.srcHost = kinds.CU_MEMORYTYPE_HOST, source
    up.dstMemoryType, up.dstDevice = kinds.CU_MEMORYTYPE_DEVICE, place
    up.WidthInBytes, up.Height, up.Depth = 4, 1, 1
    down = cuda.CUDA_MEMCPY3D()
    down.srcMemoryType, down.srcDevice = kinds.CU_MEMORYTYPE_DEVICE, place
    down.dstMemoryType, down.dstHost = kinds.CU_MEMORYTYPE_HOST, source + 4
    down.WidthInBytes, down.Height, down.Depth = 4, 1, 1
    seen: list[int] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(int(words[1])))
    host = cuda.CUDA_HOST_NODE_PARAMS()
    host.fn, host.userData = ctypes.cast(function, ctypes.c_void_p).value, 0
    one = cuda.cuGraphAddMemcpyNode(graph, None, 0, up, cuda.context)
    two = cuda.cuGraphAddMemcpyNode(graph, [one], 1, down, cuda.context)
    cuda.cuGraphAddHostNode(graph, [two], 1, host)
    run(cuda, graph)
    assert seen == [11]


def test_what_a_graph_says_of_itself(cuda: Cuda, graph: Any, fails: Check) -> None:
    one = cuda.cuGraphAddEmptyNode(graph, None, 0)
    two = cuda.cuGraphAddEmptyNode(graph, [one], 1)
    assert cuda.cuGraphGetNodes(graph)[1] == 2
    assert [int(n) for n in cuda.cuGraphGetRootNodes(graph, 1)[0]] == [int(one)]
    assert cuda.cuGraphNodeGetType(two) == cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_EMPTY
    fails("INVALID_VALUE", cuda.cuGraphAddDependencies, graph, [one], [two], None, 1)
    cuda.cuGraphRemoveDependencies(graph, [one], [two], None, 1)
    assert cuda.cuGraphGetRootNodes(graph)[1] == 2
    fails("INVALID_VALUE", cuda.cuGraphRemoveDependencies, graph, [one], [two], None, 1)
    cuda.cuGraphDestroyNode(one)
    assert cuda.cuGraphGetNodes(graph)[1] == 1
    fails("INVALID_VALUE", cuda.cuGraphInstantiate, 0, 0)


def test_a_kernel_s_node_has_a_cluster_only_if_it_was_given_one(cuda: Cuda, graph: Any) -> None:
    params, kept = store(cuda, cuda.device_words(), 5)
    node = cuda.cuGraphAddKernelNode(graph, None, 0, params)
    del kept
    kind = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    assert sizes(cuda.cuGraphKernelNodeGetAttribute(node, kind).clusterDim) == (0, 0, 0)
    wanted = cuda.CUkernelNodeAttrValue()
    dimension = wanted.clusterDim
    dimension.x = dimension.y = dimension.z = 1
    wanted.clusterDim = dimension
    cuda.cuGraphKernelNodeSetAttribute(node, kind, wanted)
    assert sizes(cuda.cuGraphKernelNodeGetAttribute(node, kind).clusterDim) == (1, 1, 1)


TOLD = b"""
.version 8.0
.target sm_90
.address_size 64
// How many blocks a cluster has, and whether the grid has a workspace for its barrier.
.visible .entry told(.param .u64 place)
{
    .reg .pred %p<2>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [place];
    mov.u32 %r1, %cluster_nctarank;
    mov.u32 %r2, %envreg1;
    mov.u32 %r3, %envreg2;
    or.b32 %r2, %r2, %r3;
    setp.ne.u32 %p1, %r2, 0;
    selp.u32 %r4, 1, 0, %p1;
    st.global.v2.u32 [%rd1], {%r1, %r4};
    ret;
}
"""


def test_attributes_of_a_kernel_s_node_hold_when_it_runs(cuda: Cuda, graph: Any) -> None:
    module, place = cuda.cuModuleLoadData(TOLD), cuda.device_words(2)
    params, kept = store(cuda, place, 0)
    params.func, params.gridDimX = cuda.cuModuleGetFunction(module, b"told"), 4
    node = cuda.cuGraphAddKernelNode(graph, None, 0, params)
    kinds = cuda.CUlaunchAttributeID
    value = cuda.CUkernelNodeAttrValue()
    dimension = value.clusterDim
    dimension.x, dimension.y, dimension.z = 2, 1, 1
    value.clusterDim = dimension
    cuda.cuGraphKernelNodeSetAttribute(node, kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value)
    value = cuda.CUkernelNodeAttrValue()
    value.cooperative = 1
    cuda.cuGraphKernelNodeSetAttribute(node, kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value)
    run(cuda, graph)
    assert cuda.read(place, 2).tolist() == [2, 1]
    cuda.cuMemsetD32(place, 0, 2)
    cuda.cuGraphKernelNodeSetParams(node, params)
    del kept
    run(cuda, graph)
    assert cuda.read(place, 2).tolist() == [2, 1]
    cuda.cuModuleUnload(module)


def sizes(dimension: Any) -> tuple[int, int, int]:
    return dimension.x, dimension.y, dimension.z


def test_a_graph_is_drawn(cuda: Cuda, graph: Any, tmp_path: Path, fails: Check) -> None:
    place = cuda.device_words()
    first = cuda.cuGraphAddMemsetNode(graph, None, 0, fill(cuda, place, 3), cuda.context)
    params, kept = store(cuda, place, 5)
    second = cuda.cuGraphAddKernelNode(graph, [first], 1, params)
    del kept
    inner = cuda.cuGraphCreate(0)
    ends = [cuda.cuGraphAddEmptyNode(inner, None, 0) for _ in range(2)]
    cuda.cuGraphAddEmptyNode(inner, ends, 2)
    cuda.cuGraphAddChildGraphNode(graph, [first, second], 2, inner)
    cuda.cuGraphDestroy(inner)
    verbose = cuda.CUgraphDebugDot_flags.CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE.value
    cuda.cuGraphDebugDotPrint(graph, bytes(tmp_path / "graph.dot"), verbose)
    drawn = (tmp_path / "graph.dot").read_text()
    assert drawn.lstrip().startswith("digraph")
    assert drawn.count("->") == 1 + 2 + 2
    assert "store" in drawn
    cuda.cuGraphDebugDotPrint(graph, bytes(tmp_path / "brief.dot"), 0)
    brief = (tmp_path / "brief.dot").read_text()
    assert "store" in brief
    assert len(brief) < len(drawn)  # without what nodes are given
    fails("INVALID_VALUE", cuda.cuGraphDebugDotPrint, 0, bytes(tmp_path / "none.dot"), verbose)
    fails("OPERATING_SYSTEM", cuda.cuGraphDebugDotPrint, graph, bytes(tmp_path / "no" / "graph.dot"), verbose)


def test_a_circle_cannot_be_instantiated(cuda: Cuda, graph: Any, fails: Check) -> None:
    one = cuda.cuGraphAddEmptyNode(graph, None, 0)
    two = cuda.cuGraphAddEmptyNode(graph, [one], 1)
    if cuda.result("cuGraphAddDependencies", graph, [two], [one], None, 1) == "SUCCESS":
        fails("INVALID_VALUE", cuda.cuGraphInstantiate, graph, 0)


def test_a_clone_has_nodes_of_its_own(cuda: Cuda, graph: Any) -> None:
    place = cuda.device_words()
    node = cuda.cuGraphAddMemsetNode(graph, None, 0, fill(cuda, place, 1), cuda.context)
    clone = cuda.cuGraphClone(graph)
    twin = cuda.cuGraphNodeFindInClone(node, clone)
    assert int(twin) != int(node)
    cuda.cuGraphMemsetNodeSetParams(twin, fill(cuda, place, 2))
    assert int(cuda.cuGraphMemsetNodeGetParams(node).value) == 1
    run(cuda, clone)
    assert cuda.read(place)[0] == 2
    cuda.cuGraphDestroy(clone)


def test_a_child_is_copied(cuda: Cuda, graph: Any) -> None:
    place = cuda.device_words()
    child = cuda.cuGraphCreate(0)
    cuda.cuGraphAddMemsetNode(child, None, 0, fill(cuda, place, 9), cuda.context)
    cuda.cuGraphAddChildGraphNode(graph, None, 0, child)
    cuda.cuGraphDestroy(child)
    run(cuda, graph)
    assert cuda.read(place)[0] == 9


def test_an_executable_graph_changes_node_by_node(cuda: Cuda, graph: Any) -> None:
    place = cuda.device_words()
    params, kept = store(cuda, place, 1)
    node = cuda.cuGraphAddKernelNode(graph, None, 0, params)
    executable = cuda.cuGraphInstantiate(graph, 0)
    changed, kept_too = store(cuda, place, 2)
    cuda.cuGraphExecKernelNodeSetParams(executable, node, changed)
    del kept, kept_too
    cuda.cuGraphLaunch(executable, 0)
    assert cuda.read(place)[0] == 2
    cuda.cuGraphNodeSetEnabled(executable, node, 0)
    assert cuda.cuGraphNodeGetEnabled(executable, node) == 0
    cuda.cuMemsetD32(place, 8, 1)
    cuda.cuGraphLaunch(executable, 0)
    assert cuda.read(place)[0] == 8
    cuda.cuGraphNodeSetEnabled(executable, node, 2)  # anything but 0
    assert cuda.cuGraphNodeGetEnabled(executable, node) == 1
    cuda.cuGraphExecDestroy(executable)


def test_of_an_executable_graph_only_copies_of_lines_change(cuda: Cuda, graph: Any, fails: Check) -> None:
    """Not those of rows, whether they were such or are to be."""
    place, kinds = cuda.device_words(64), cuda.CUmemorytype
    source, words = cuda.pinned_words(64)
    words[:] = range(64)
    shape = cuda.CUDA_ARRAY_DESCRIPTOR()
    shape.Width, shape.Height, shape.NumChannels = 8, 8, 1
    shape.Format = cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32
    array = cuda.cuArrayCreate(shape)

    def copy(at: int, height: int) -> Any:
        wanted = cuda.CUDA_MEMCPY3D()
        wanted.srcMemoryType, wanted.srcHost, wanted.srcPitch = kinds.CU_MEMORYTYPE_HOST, at, 32
        if height > 1:
            wanted.dstMemoryType, wanted.dstArray = kinds.CU_MEMORYTYPE_ARRAY, array
        else:
            wanted.dstMemoryType, wanted.dstDevice = kinds.CU_MEMORYTYPE_DEVICE, place
        wanted.WidthInBytes, wanted.Height, wanted.Depth = 32, height, 1
        return wanted

    rows = cuda.cuGraphAddMemcpyNode(graph, None, 0, copy(source, 8), cuda.context)
    line = cuda.cuGraphAddMemcpyNode(graph, None, 0, copy(source, 1), cuda.context)
    executable = cuda.cuGraphInstantiate(graph, 0)
    change = cuda.cuGraphExecMemcpyNodeSetParams
    for node, given in ((rows, copy(source + 32, 4)), (line, copy(source, 8))):
        fails("INVALID_VALUE", change, executable, node, given, cuda.context)
    change(executable, rows, copy(source, 8), cuda.context)  # what it is
    change(executable, line, copy(source + 32, 1), cuda.context)
    cuda.cuGraphLaunch(executable, 0)
    assert cuda.read(place, 8).tolist() == list(range(8, 16))
    cuda.cuGraphExecUpdate(executable, graph)
    cuda.cuGraphMemcpyNodeSetParams(rows, copy(source + 32, 4))
    fails("GRAPH_EXEC_UPDATE_FAILURE", cuda.cuGraphExecUpdate, executable, graph)
    cuda.cuGraphExecDestroy(executable)
    cuda.cuArrayDestroy(array)
    cuda.cuMemFreeHost(source)
    cuda.cuMemFree(place)


def test_an_executable_graph_is_updated_as_a_whole(cuda: Cuda, graph: Any, fails: Check) -> None:
    place = cuda.device_words()
    cuda.cuGraphAddMemsetNode(graph, None, 0, fill(cuda, place, 1), cuda.context)
    executable = cuda.cuGraphInstantiate(graph, 0)
    other = cuda.cuGraphCreate(0)
    cuda.cuGraphAddMemsetNode(other, None, 0, fill(cuda, place, 6), cuda.context)
    info = cuda.cuGraphExecUpdate(executable, other)
    assert info.result == cuda.CUgraphExecUpdateResult.CU_GRAPH_EXEC_UPDATE_SUCCESS
    cuda.cuGraphLaunch(executable, 0)
    assert cuda.read(place)[0] == 6
    cuda.cuGraphAddEmptyNode(other, None, 0)
    fails("GRAPH_EXEC_UPDATE_FAILURE", cuda.cuGraphExecUpdate, executable, other)
    cuda.cuGraphDestroy(other)
    cuda.cuGraphExecDestroy(executable)


def test_why_a_graph_is_not_instantiated_is_told(cuda: Cuda, graph: Any) -> None:
    nodes = [cuda.cuGraphAddEmptyNode(graph, None, 0) for _ in range(2)]
    cuda.cuGraphAddDependencies(graph, nodes, nodes[::-1], None, 2)
    params = cuda.CUDA_GRAPH_INSTANTIATE_PARAMS()
    (result, _) = cuda.driver.cuGraphInstantiateWithParams(graph, params)
    assert result == cuda.errors.CUDA_ERROR_INVALID_VALUE
    assert params.result_out == cuda.CUgraphInstantiateResult.CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE


def test_events_in_graphs(cuda: Cuda, graph: Any) -> None:
    event = cuda.cuEventCreate(0)
    node = cuda.cuGraphAddEventRecordNode(graph, None, 0, event)
    assert int(cuda.cuGraphEventRecordNodeGetEvent(node)) == int(event)
    run(cuda, graph)
    cuda.cuEventSynchronize(event)
    assert cuda.result("cuEventQuery", event) == "SUCCESS"


class Keeper:
    """A user object that a graph alone keeps alive."""

    def __init__(self, cuda: Cuda, graph: Any) -> None:
        self.cuda, self.ended = cuda, list[int]()
        self.function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: self.ended.append(1))
        address = ctypes.cast(self.function, ctypes.c_void_p).value
        flags = cuda.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC.value
        item = cuda.cuUserObjectCreate(0, cuda.CUhostFn(address), 1, flags)
        move = cuda.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE.value
        cuda.cuGraphRetainUserObject(graph, item, 1, move)

    def ends(self) -> list[int]:
        """Its ends, once there is one or none came in time."""
        for _ in range(2000):
            if self.ended:
                break
            self.cuda.launch("nothing")
            self.cuda.cuCtxSynchronize()
        return self.ended


def test_a_graph_s_objects_outlive_the_stream_of_its_launch(cuda: Cuda) -> None:
    graph, stream = cuda.cuGraphCreate(0), cuda.stream()
    keeper = Keeper(cuda, graph)
    (pinned, words), place = cuda.pinned_words(), cuda.device_words()
    cuda.cuGraphAddMemsetNode(graph, None, 0, fill(cuda, cuda.device_words(), 1), cuda.context)
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphDestroy(graph)
    cuda.cuStreamWaitValue32(stream, pinned, 1, 0)
    cuda.cuGraphLaunch(executable, stream)
    cuda.cuMemsetD32Async(place, 7, 1, stream)
    cuda.cuStreamDestroy(stream)
    cuda.cuGraphExecDestroy(executable)
    early = bool(keeper.ended)
    words[0] = 1
    assert keeper.ends() == [1]
    assert not early
    assert cuda.read(place)[0] == 7


@pytest.mark.parametrize("last", ["executable", "graph"])
def test_a_launch_s_objects_outlive_all_that_kept_them(cuda: Cuda, last: str) -> None:
    graph, stream = cuda.cuGraphCreate(0), cuda.stream()
    keeper = Keeper(cuda, graph)
    pinned, words = cuda.pinned_words()
    cuda.cuGraphAddMemsetNode(graph, None, 0, fill(cuda, cuda.device_words(), 1), cuda.context)
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuStreamWaitValue32(stream, pinned, 1, 0)
    cuda.cuGraphLaunch(executable, stream)
    ends = [lambda: cuda.cuGraphDestroy(graph), lambda: cuda.cuGraphExecDestroy(executable)]
    for end in ends if last == "executable" else reversed(ends):
        end()
    other = cuda.stream()
    cuda.launch("nothing", stream=other)
    cuda.cuStreamSynchronize(other)
    early = bool(keeper.ended)
    words[0] = 1
    assert keeper.ends() == [1]
    assert not early


def test_user_objects_end_with_the_last_reference(cuda: Cuda) -> None:
    graph = cuda.cuGraphCreate(0)
    keeper = Keeper(cuda, graph)
    assert not keeper.ended
    cuda.cuGraphDestroy(graph)
    assert keeper.ends() == [1]


def test_times_of_events_that_a_graph_records(cuda: Cuda) -> None:
    place = cuda.device_words(16)
    start, end = (cuda.cuEventCreate(0) for _ in range(2))
    graph = cuda.cuGraphCreate(0)
    fill = cuda.CUDA_MEMSET_NODE_PARAMS()
    fill.dst, fill.elementSize, fill.width, fill.height = place, 4, 16, 1
    first = cuda.cuGraphAddEventRecordNode(graph, None, 0, start)
    between = cuda.cuGraphAddMemsetNode(graph, [first], 1, fill, cuda.cuCtxGetCurrent())
    cuda.cuGraphAddEventRecordNode(graph, [between], 1, end)
    replay(cuda, graph)
    assert cuda.cuEventElapsedTime(start, end) >= 0
    for event in (start, end):
        cuda.cuEventDestroy(event)
    cuda.cuMemFree(place)
