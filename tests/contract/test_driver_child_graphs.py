"""Graphs that become a part of another one themselves, in place of a copy."""

import os
from typing import Any

import pytest
from cuda_calls import Check, Cuda


def moved(cuda: Cuda, graph: Any) -> Any:
    """What makes the graph itself the child."""
    parameters = cuda.CUgraphNodeParams()
    parameters.type = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH
    child = cuda.CUDA_CHILD_GRAPH_NODE_PARAMS()
    child.graph = graph
    child.ownership = cuda.CUgraphChildGraphNodeOwnership.CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
    parameters.graph = child
    return parameters


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
