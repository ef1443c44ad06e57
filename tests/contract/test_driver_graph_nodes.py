"""What nodes of graphs tell of what they were made of."""

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from cuda_calls import KERNELS, Cuda


@pytest.fixture
def graph(cuda: Cuda) -> Iterator[Any]:
    handle = cuda.cuGraphCreate(0)
    yield handle
    cuda.cuGraphDestroy(handle)


@pytest.fixture
def other(cuda: Cuda) -> Iterator[Any]:
    """Another context, which is not current."""
    context = cuda.cuCtxCreate(None, 0, cuda.device)
    cuda.cuCtxSetCurrent(cuda.context)
    yield context
    cuda.cuCtxDestroy(context)


def work(cuda: Cuda, context: Any, **what: Any) -> Any:
    params = cuda.CUDA_KERNEL_NODE_PARAMS()
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    params.ctx = context
    for name, handle in what.items():
        setattr(params, name, handle)
    return params


def test_in_which_context_kernels_run(cuda: Cuda, graph: Any, other: Any) -> None:
    def told(params: Any) -> int:
        node = cuda.cuGraphAddKernelNode(graph, None, 0, params)
        return int(cuda.cuGraphKernelNodeGetParams(node).ctx)

    here = cuda.context
    cuda.cuCtxSetCurrent(other)
    module = cuda.cuModuleLoadData(KERNELS)
    there = cuda.cuModuleGetFunction(module, b"nothing")
    library = cuda.cuLibraryLoadData(KERNELS, [], [], 0, [], [], 0)
    kernel = cuda.cuLibraryGetKernel(library, b"nothing")
    cuda.cuCtxSetCurrent(here)
    # A function's own, whichever is given; a kernel's is the given or the current one.
    assert told(work(cuda, None, func=there)) == int(other)
    assert told(work(cuda, here, func=there)) == int(other)
    assert told(work(cuda, None, kern=kernel)) == int(here)
    assert told(work(cuda, other, kern=kernel)) == int(other)
    cuda.cuGraphExecDestroy(cuda.cuGraphInstantiate(graph, 0))
    cuda.cuLibraryUnload(library)


def test_in_which_context_words_are_written(cuda: Cuda, graph: Any, other: Any) -> None:
    place = cuda.device_words()
    word = cuda.driver.CUstreamBatchMemOpParams()
    word.operation = cuda.driver.CUstreamBatchMemOpType.CU_STREAM_MEM_OP_WRITE_VALUE_32
    word.writeValue.operation = word.operation
    word.writeValue.address, word.writeValue.value = place, 5
    params = cuda.driver.CUDA_BATCH_MEM_OP_NODE_PARAMS()
    params.count, params.paramArray = 1, [word]
    for context in (cuda.context, other):
        params.ctx = context
        node = cuda.cuGraphAddBatchMemOpNode(graph, None, 0, params)
        assert int(cuda.cuGraphBatchMemOpNodeGetParams(node).ctx) == int(context)
        cuda.cuGraphBatchMemOpNodeSetParams(node, params)
    clone = cuda.cuGraphClone(graph)
    copied = cuda.cuGraphNodeFindInClone(node, clone)
    assert int(cuda.cuGraphBatchMemOpNodeGetParams(copied).ctx) == int(other)
    cuda.cuGraphDestroy(clone)
    cuda.cuMemFree(place)


def test_who_may_use_memory_that_a_graph_allocates(cuda: Cuda, graph: Any) -> None:
    params = cuda.driver.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = cuda.properties().type
    params.poolProps.location = cuda.properties().location
    params.bytesize = 100
    access = cuda.driver.CUmemAccessDesc()
    access.location = params.poolProps.location
    access.flags = cuda.driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    params.accessDescs, params.accessDescCount = [access], 1
    node = cuda.cuGraphAddMemAllocNode(graph, None, 0, params)
    told = cuda.cuGraphMemAllocNodeGetParams(node)
    assert told.accessDescCount == 1
    # cuda.bindings gives of a list only what it was given: the pointer to it is behind poolProps.
    place = ctypes.c_void_p.from_address(int(told.getPtr()) + ctypes.sizeof(ctypes.c_uint64) * 11).value
    entry = (ctypes.c_int * 3).from_address(place or 0)
    assert list(entry) == [access.location.type, access.location.id, access.flags]
