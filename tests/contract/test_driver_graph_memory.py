"""Graphs whose nodes allocate and free."""

from typing import Any

from cuda_calls import Check, Cuda
from test_driver_graphs import fill, graph, run

__all__ = ["graph"]


def test_a_graph_with_memory_is_one(cuda: Cuda, fails: Check) -> None:
    stream = cuda.stream()
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    memory = cuda.cuMemAllocAsync(1024, stream)
    cuda.cuMemFreeAsync(memory, stream)
    graph = cuda.cuStreamEndCapture(stream)
    executable = cuda.cuGraphInstantiate(graph, 0)
    outer = cuda.cuGraphCreate(0)
    fails("NOT_SUPPORTED", cuda.cuGraphInstantiate, graph, 0)
    fails("NOT_SUPPORTED", cuda.cuGraphAddChildGraphNode, outer, None, 0, graph)
    fails("INVALID_HANDLE", cuda.cuGraphAddKernelNode, outer, None, 0, cuda.CUDA_KERNEL_NODE_PARAMS())
    cuda.cuGraphExecDestroy(executable)
    run(cuda, graph)
    cuda.cuGraphDestroy(graph)
    cuda.cuGraphDestroy(outer)


def allocation(cuda: Cuda, size: int) -> Any:
    """What a node needs that allocates so many bytes."""
    params = cuda.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    params.poolProps.location.id = int(cuda.device)
    params.bytesize = size
    return params


def test_memory_of_a_graph(cuda: Cuda, graph: Any) -> None:
    params = allocation(cuda, 1024)
    place = cuda.device_words()
    made = cuda.cuGraphAddMemAllocNode(graph, None, 0, params)
    filled = cuda.cuGraphAddMemsetNode(graph, [made], 1, fill(cuda, params.dptr, 4), cuda.context)
    copy = cuda.CUDA_MEMCPY3D()
    kinds = cuda.CUmemorytype
    copy.srcMemoryType, copy.srcDevice = kinds.CU_MEMORYTYPE_DEVICE, params.dptr
    copy.dstMemoryType, copy.dstDevice = kinds.CU_MEMORYTYPE_DEVICE, place
    copy.WidthInBytes, copy.Height, copy.Depth = 4, 1, 1
    copied = cuda.cuGraphAddMemcpyNode(graph, [filled], 1, copy, cuda.context)
    freed = cuda.cuGraphAddMemFreeNode(graph, [copied], 1, params.dptr)
    assert int(cuda.cuGraphMemFreeNodeGetParams(freed)) == int(params.dptr)
    run(cuda, graph)
    assert cuda.read(place)[0] == 4


def test_memory_of_a_graph_outlives_it(cuda: Cuda, fails: Check) -> None:
    """CUDA C++ Programming Guide, "Graph Memory Nodes": a graph's end frees no memory."""
    stream = cuda.stream()
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    memory = cuda.cuMemAllocAsync(1024, stream)
    cuda.cuMemsetD32Async(memory, 7, 256, stream)
    graph = cuda.cuStreamEndCapture(stream)
    run(cuda, graph)
    cuda.cuGraphDestroy(graph)
    assert cuda.read(memory)[0] == 7
    cuda.cuMemFreeAsync(memory, stream)
    cuda.cuCtxSynchronize()
    fails("INVALID_VALUE", cuda.cuMemFreeAsync, memory, stream)


def test_a_graph_that_gets_memory_after_it_was_instantiated(cuda: Cuda, graph: Any, fails: Check) -> None:
    """An H100 counts executable graphs with memory nodes alone, of which it allows one."""
    without = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphAddMemAllocNode(graph, None, 0, allocation(cuda, 1024))
    one = cuda.cuGraphInstantiate(graph, 0)
    fails("NOT_SUPPORTED", cuda.cuGraphInstantiate, graph, 0)
    cuda.cuGraphExecDestroy(one)
    for each in (cuda.cuGraphInstantiate(graph, 0), without):
        cuda.cuGraphExecDestroy(each)


def test_a_graph_takes_again_what_it_has_freed(cuda: Cuda, graph: Any) -> None:
    """Where that comes first in all orders of its nodes, as on an H200."""
    mib = 1 << 20
    params = [allocation(cuda, 2 * mib) for _ in range(5)]
    one = cuda.cuGraphAddMemAllocNode(graph, None, 0, params[0])
    freed = cuda.cuGraphAddMemFreeNode(graph, [one], 1, params[0].dptr)
    between = cuda.cuGraphAddEmptyNode(graph, [freed], 1)
    two = cuda.cuGraphAddMemAllocNode(graph, [between], 1, params[1])
    cuda.cuGraphAddMemAllocNode(graph, [two], 1, params[2])  # beside the second, not behind its end
    cuda.cuGraphAddMemAllocNode(graph, [one], 1, params[3])  # not behind the first one's end
    freed = cuda.cuGraphAddMemFreeNode(graph, [two], 1, params[1].dptr)
    cuda.cuGraphAddMemAllocNode(graph, [freed], 1, params[4])
    first, second, third, fourth, fifth = (int(each.dptr) for each in params)
    assert first == second == fifth
    assert len({first, third, fourth}) == 3
    executable = cuda.cuGraphInstantiate(graph, 0)
    for _ in range(2):
        cuda.cuGraphLaunch(executable, 0)
        for place in (third, fourth, fifth):
            cuda.cuMemFreeAsync(place, 0)
    cuda.cuCtxSynchronize()
    cuda.cuGraphExecDestroy(executable)


def test_memory_that_is_taken_again_keeps_the_order(cuda: Cuda) -> None:
    stream, place, millisecond = cuda.stream(), cuda.device_words(2), 1_000_000
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    taken = []
    for value in (1, 2):
        memory = cuda.cuMemAllocAsync(2 << 20, stream)
        taken.append(int(memory))
        cuda.launch("spin", millisecond, stream=stream)
        cuda.cuMemsetD32Async(memory, value, 1, stream)
        cuda.cuMemcpyDtoDAsync(place + 4 * (value - 1), memory, 4, stream)
        cuda.cuMemFreeAsync(memory, stream)
    graph = cuda.cuStreamEndCapture(stream)
    assert taken[0] == taken[1]
    run(cuda, graph)
    assert cuda.read(place, 2).tolist() == [1, 2]
    cuda.cuGraphDestroy(graph)
