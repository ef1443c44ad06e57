"""Graphs that become a part of another one themselves, in place of a copy."""

import os
from typing import Any

import pytest
from cuda_calls import Check, Cuda
from test_driver_graphs import fill, run


def moved(cuda: Cuda, graph: Any) -> Any:
    """What makes the graph itself the child."""
    parameters = cuda.CUgraphNodeParams()
    parameters.type = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH
    child = cuda.CUDA_CHILD_GRAPH_NODE_PARAMS()
    child.graph = graph
    child.ownership = cuda.CUgraphChildGraphNodeOwnership.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
    parameters.graph = child
    return parameters


def test_another_child_takes_the_place_of_one(cuda: Cuda) -> None:
    """A copy of it, as on an H200."""
    outer, one, two = (cuda.cuGraphCreate(0) for _ in range(3))
    place = cuda.device_words()
    for graph, values in ((one, (1,)), (two, (2, 3))):
        after: list[Any] = []
        for value in values:
            node = cuda.cuGraphAddMemsetNode(graph, after, len(after), fill(cuda, place, value), cuda.context)
            after = [node]
    node = cuda.cuGraphAddChildGraphNode(outer, None, 0, one)
    parameters = moved(cuda, two)
    child = parameters.graph
    child.ownership = cuda.CUgraphChildGraphNodeOwnership.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE
    parameters.graph = child
    cuda.cuGraphNodeSetParams(node, parameters)
    now = cuda.cuGraphChildGraphNodeGetGraph(node)
    assert cuda.cuGraphGetNodes(now)[1] == 2
    assert int(now) != int(two)
    run(cuda, outer)
    assert cuda.read(place)[0] == 3
    for graph in (outer, one, two):
        cuda.cuGraphDestroy(graph)


@pytest.mark.skipif(os.environ.get("FIKIT_TEST_DEVICE") == "real", reason="an H200's driver takes it")
def test_a_graph_is_no_part_of_itself(cuda: Cuda, fails: Check) -> None:
    """It would have no beginning."""
    outer, middle, inner = (cuda.cuGraphCreate(0) for _ in range(3))
    cuda.cuGraphAddNode(middle, None, None, 0, moved(cuda, inner))
    cuda.cuGraphAddNode(outer, None, None, 0, moved(cuda, middle))
    for graph in (outer, middle, inner):
        fails("INVALID_VALUE", cuda.cuGraphAddNode, graph, None, None, 0, moved(cuda, outer))
        fails("INVALID_VALUE", cuda.cuGraphAddNode, graph, None, None, 0, moved(cuda, inner))
        assert cuda.cuGraphGetNodes(graph)[1] == (graph is not inner)
    executable = cuda.cuGraphInstantiate(outer, 0)
    cuda.cuGraphLaunch(executable, 0)
    cuda.cuCtxSynchronize()
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(outer)
