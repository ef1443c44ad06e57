"""How the nodes of a graph and of an instantiated one that it updates find each other."""

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest
from cuda_calls import Check, Cuda

# What an H100 (580.159) said, of graphs of fills (m) and empty nodes (e), nodes by their place in the order
# in which they were made: the nodes and edges of the instantiated graph, those of the other one, the result,
# the node that it is about, and what that depends on; -1: none.
UPDATES = json.loads((Path(__file__).parents[1] / "data/h100-graph-updates.json").read_text())


def fill(cuda: Cuda, place: int, value: int, words: int = 1) -> Any:
    params = cuda.CUDA_MEMSET_NODE_PARAMS()
    params.dst, params.value, params.elementSize = place, value, 4
    params.width, params.height = words, 1
    return params


class Made:
    """A graph with nodes and edges in the order in which they are given."""

    def __init__(self, cuda: Cuda, kinds: str, edges: str, place: int) -> None:
        self.handle = cuda.cuGraphCreate(0)
        self.nodes = []
        for kind in kinds:
            add, work = cuda.cuGraphAddEmptyNode, []
            if kind == "m":
                add, work = cuda.cuGraphAddMemsetNode, [fill(cuda, place, 1), cuda.context]
            self.nodes.append(add(self.handle, None, 0, *work))
        for edge in edges.split():
            before, after = (self.nodes[int(end)] for end in edge.split(">"))
            cuda.cuGraphAddDependencies(self.handle, [before], [after], None, 1)

    def index(self, node: int) -> int:
        return [int(each) for each in self.nodes].index(node) if node else -1


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: "{}:{}-{}:{}".format(*case).replace(" ", ","))
def test_whether_a_graph_updates_another_and_why_not(cuda: Cuda, case: list[Any]) -> None:
    place = cuda.device_words()
    old, new = (Made(cuda, *case[at : at + 2], place) for at in (0, 2))
    executable = cuda.cuGraphInstantiate(old.handle, 0)
    info = (ctypes.c_uint64 * 3)()
    given = [ctypes.c_void_p(int(each)) for each in (executable, new.handle)]
    result = ctypes.CDLL("libcuda.so.1").cuGraphExecUpdate_v2(*given, info)
    assert [info[0], new.index(info[1]), new.index(info[2])] == case[4:]
    failed = cuda.errors.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
    assert result == (cuda.errors.CUDA_SUCCESS if info[0] == 0 else failed)
    for graph in (old, new):
        cuda.cuGraphDestroy(graph.handle)
    cuda.cuGraphExecDestroy(executable)
    cuda.cuMemFree(place)


def steps(cuda: Cuda, place: int, values: list[int], *, backwards: bool) -> tuple[Any, list[Any]]:
    """A graph that fills three words, then the last two, then the last; and its nodes in that order."""
    graph = cuda.cuGraphCreate(0)
    nodes: dict[int, Any] = {}
    for step in (2, 1, 0) if backwards else (0, 1, 2):
        work = fill(cuda, place + 4 * step, values[step], 3 - step)
        nodes[step] = cuda.cuGraphAddMemsetNode(graph, None, 0, work, cuda.context)
    for step in (0, 1):
        cuda.cuGraphAddDependencies(graph, [nodes[step]], [nodes[step + 1]], None, 1)
    return graph, [nodes[step] for step in range(3)]


def launched(cuda: Cuda, executable: Any, place: int) -> list[int]:
    cuda.cuMemsetD32(place, 0, 3)
    cuda.cuGraphLaunch(executable, 0)
    values: list[int] = cuda.read(place, 3).tolist()
    return values


def test_a_graph_made_in_another_order_updates_what_each_node_does(cuda: Cuda) -> None:
    place = cuda.device_words(3)
    graph, nodes = steps(cuda, place, [1, 2, 3], backwards=False)
    other, _ = steps(cuda, place, [4, 5, 6], backwards=True)
    executable = cuda.cuGraphInstantiate(graph, 0)
    assert launched(cuda, executable, place) == [1, 2, 3]
    cuda.cuGraphExecUpdate(executable, other)
    cuda.cuGraphDestroy(other)
    assert launched(cuda, executable, place) == [4, 5, 6]
    # Its nodes are still those of the graph that it was made from.
    cuda.cuGraphExecMemsetNodeSetParams(executable, nodes[1], fill(cuda, place + 4, 7, 2), cuda.context)
    cuda.cuGraphNodeSetEnabled(executable, nodes[2], 0)
    assert launched(cuda, executable, place) == [4, 7, 7]
    cuda.cuGraphExecUpdate(executable, graph)
    assert launched(cuda, executable, place)[:2] == [1, 2]
    cuda.cuGraphDestroy(graph)
    cuda.cuGraphExecDestroy(executable)
    cuda.cuMemFree(place)


def test_so_does_a_child_made_in_another_order_unless_it_is_given_alone(cuda: Cuda, fails: Check) -> None:
    place = cuda.device_words(3)
    graph, other = (cuda.cuGraphCreate(0) for _ in range(2))
    parts = [steps(cuda, place, [base, base + 1, base + 2], backwards=base > 1)[0] for base in (1, 4, 7)]
    node = cuda.cuGraphAddChildGraphNode(graph, None, 0, parts[0])
    cuda.cuGraphAddChildGraphNode(other, None, 0, parts[1])
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphExecUpdate(executable, other)
    assert launched(cuda, executable, place) == [4, 5, 6]
    fails("GRAPH_EXEC_UPDATE_FAILURE", cuda.cuGraphExecChildGraphNodeSetParams, executable, node, parts[2])
    assert launched(cuda, executable, place) == [4, 5, 6]
    any_kind = cuda.CUgraphNodeParams()
    any_kind.type = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH
    child = any_kind.graph
    child.graph = parts[0]
    any_kind.graph = child
    cuda.cuGraphExecNodeSetParams(executable, node, any_kind)
    assert launched(cuda, executable, place) == [1, 2, 3]
    for each in (graph, other, *parts):
        cuda.cuGraphDestroy(each)
    cuda.cuGraphExecDestroy(executable)
    cuda.cuMemFree(place)
