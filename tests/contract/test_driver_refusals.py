"""Arguments that are nothing: a value that no enumeration has, a device or a kernel that is not there."""

import ctypes

import pytest
from cuda_calls import KERNELS, SHIM, Check, Cuda, replay

INVALID_VALUE = 1


def test_values_that_no_enumeration_has(cuda: Cuda) -> None:
    if not cuda.simulated:
        pytest.skip("an H200 was not asked")
    library = ctypes.CDLL("libcuda.so.1")
    function = ctypes.c_void_p(int(cuda.function("nothing")))
    bytes_, properties = ctypes.c_size_t(), (ctypes.c_uint64 * 8)(1, 1)
    for value in (-1, -(2**31), 1000):
        answers = [
            library.cuMemGetAllocationGranularity(ctypes.byref(bytes_), properties, value),
            library.cuCtxSetSharedMemConfig(value),
            library.cuFuncSetSharedMemConfig(function, value),
            library.cuFuncSetCacheConfig(function, value),
        ]
        assert answers == [INVALID_VALUE] * len(answers)


def test_preferences_of_what_is_not_there(cuda: Cuda, fails: Check) -> None:
    preference = cuda.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED
    library = cuda.cuLibraryLoadData(KERNELS, [], [], 0, [], [], 0)
    kernel = cuda.cuLibraryGetKernel(library, b"nothing")
    cuda.cuKernelSetCacheConfig(kernel, preference, cuda.device)
    fails("INVALID_DEVICE", cuda.cuKernelSetCacheConfig, kernel, preference, 99)
    banks = cuda.CUsharedconfig.CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE
    fails("INVALID_HANDLE", cuda.cuFuncSetSharedMemConfig, None, banks)
    cuda.cuLibraryUnload(library)


def test_clusters_of_a_launch_without_the_attributes_that_it_counts(cuda: Cuda, fails: Check) -> None:
    if not cuda.simulated:
        pytest.skip("an H200 was not asked")
    config = cuda.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.numAttrs = 1
    for question in (cuda.cuOccupancyMaxActiveClusters, cuda.cuOccupancyMaxPotentialClusterSize):
        fails("INVALID_VALUE", question, cuda.function("nothing"), config)


def test_behind_a_graph_s_edges_there_is_nothing(cuda: Cuda) -> None:
    graph = cuda.cuGraphCreate(0)
    one = cuda.cuGraphAddEmptyNode(graph, None, 0)
    two = cuda.cuGraphAddEmptyNode(graph, [one], 1)
    ends = [(ctypes.c_void_p * 3)(1, 1, 1) for _ in range(2)]
    count = ctypes.c_size_t(3)
    asked = (ctypes.c_void_p(int(graph)), *ends, ctypes.byref(count))
    assert ctypes.CDLL("libcuda.so.1").cuGraphGetEdges(*asked) == 0
    assert (*ends[0], *ends[1]) == (int(one), None, None, int(two), None, None)
    assert count.value == 1
    cuda.cuGraphDestroy(graph)


def test_nothing_is_no_list_of_attributes(cuda: Cuda) -> None:
    context = ctypes.c_int(int(cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT))
    places = (ctypes.c_void_p * 1)()
    ask = ctypes.CDLL("libcuda.so.1").cuPointerGetAttributes
    assert ask(0, ctypes.byref(context), places, ctypes.c_uint64(0)) == INVALID_VALUE


def test_what_captures_nothing_tells_nothing_else(cuda: Cuda) -> None:
    stream = cuda.stream()
    state, number, count = ctypes.c_int(9), ctypes.c_uint64(9), ctypes.c_size_t(9)
    places = [ctypes.c_void_p(9) for _ in range(3)]
    ask = ctypes.CDLL("libcuda.so.1").cuStreamGetCaptureInfo_v3
    into = [ctypes.byref(each) for each in (state, number, *places, count)]
    assert ask(ctypes.c_void_p(int(stream)), *into) == 0
    assert (state.value, number.value, count.value) == (0, 9, 9)
    assert [place.value for place in places] == [9] * 3
    cuda.cuStreamDestroy(stream)


def test_an_empty_node_has_no_parameters(cuda: Cuda, fails: Check) -> None:
    graph = cuda.cuGraphCreate(0)
    node = cuda.cuGraphAddEmptyNode(graph, None, 0)
    executable = cuda.cuGraphInstantiate(graph, 0)
    parameters = cuda.CUgraphNodeParams()
    parameters.type = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_EMPTY
    cuda.cuGraphNodeSetParams(node, parameters)
    cuda.cuGraphExecNodeSetParams(executable, node, parameters)
    parameters.type = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET
    fails("INVALID_VALUE", cuda.cuGraphNodeSetParams, node, parameters)
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(graph)


def test_values_written_by_a_node_are_some_context_s(cuda: Cuda, fails: Check) -> None:
    graph = cuda.cuGraphCreate(0)
    none = cuda.CUDA_BATCH_MEM_OP_NODE_PARAMS()
    fails("INVALID_VALUE", cuda.cuGraphAddBatchMemOpNode, graph, None, 0, none)
    none.ctx = cuda.cuCtxGetCurrent()
    cuda.cuGraphAddBatchMemOpNode(graph, None, 0, none)
    cuda.cuGraphDestroy(graph)


def test_a_node_s_parameters_are_there_still_after_it_took_them(cuda: Cuda) -> None:
    if cuda.simulated and not SHIM:
        pytest.skip("CUDA leaves open what becomes of them: an H200 keeps them, the simulator does not")
    place = cuda.device_words(2)
    graph = cuda.cuGraphCreate(0)
    store = cuda.CUDA_KERNEL_NODE_PARAMS()
    store.func = cuda.function("store")
    store.gridDimX = store.gridDimY = store.gridDimZ = 1
    store.blockDimX = store.blockDimY = store.blockDimZ = 1
    store.kernelParams = ((place, 7), (ctypes.c_void_p, ctypes.c_uint32))
    node = cuda.cuGraphAddKernelNode(graph, None, 0, store)
    its_own = cuda.cuGraphKernelNodeGetParams(node)
    for _ in range(3):
        cuda.cuGraphKernelNodeSetParams(node, its_own)
    cuda.cuGraphAddKernelNode(graph, [node], 1, its_own)
    replay(cuda, graph)
    assert cuda.read(place).tolist() == [7]
    cuda.cuMemFree(place)


@pytest.mark.parametrize("name", ["cuStreamGetId", "cuStreamGetDevice", "cuStreamGetFlags"])
def test_what_spoils_a_capture_though_it_only_asks(cuda: Cuda, fails: Check, name: str) -> None:
    stream = cuda.stream()
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    fails("STREAM_CAPTURE_UNSUPPORTED", getattr(cuda, name), stream)
    fails("STREAM_CAPTURE_INVALIDATED", cuda.cuStreamEndCapture, stream)
    cuda.cuStreamDestroy(stream)


def test_beside_a_capture_an_array_is_refused_whatever_it_is(cuda: Cuda, fails: Check) -> None:
    stream = cuda.stream()
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    fails("STREAM_CAPTURE_UNSUPPORTED", cuda.cuArrayCreate, cuda.CUDA_ARRAY_DESCRIPTOR())
    fails("STREAM_CAPTURE_INVALIDATED", cuda.cuStreamEndCapture, stream)
    cuda.cuStreamDestroy(stream)


def test_policies_and_domains_of_a_stream(cuda: Cuda, fails: Check) -> None:
    stream = cuda.stream()
    library, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(int(stream))
    ids = cuda.CUlaunchAttributeID
    for attribute, known in (
        (ids.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, (1, 2, 3, 4)),
        (ids.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, (0, 1)),
    ):
        for value in range(-1, 7):
            given = (ctypes.c_int32 * 16)(value)
            answer = library.cuStreamSetAttribute(handle, int(attribute), given)
            assert answer == (0 if value in known else INVALID_VALUE)
    cuda.cuStreamDestroy(stream)


def test_parameters_of_another_length(cuda: Cuda) -> None:
    """Fewer are taken, but not none; more are too many."""
    function = ctypes.c_void_p(int(cuda.function("store")))
    place = cuda.device_words()
    packed = ctypes.create_string_buffer(bytes(ctypes.c_uint64(place)) + bytes(ctypes.c_uint32(7)), 32)
    launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    answers = []
    for length in (0, 12, 13, 32):
        size = ctypes.c_size_t(length)
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), 0)
        answers.append(launch(function, 1, 1, 1, 1, 1, 1, 0, None, None, extra))
    assert answers == [INVALID_VALUE, 0, 701, 701]
    cuda.cuCtxSynchronize()
    assert cuda.read(place).tolist() == [7]
    cuda.cuMemFree(place)


def test_times_of_events_of_which_there_are_none(cuda: Cuda, fails: Check) -> None:
    untimed = cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING
    stream = cuda.stream()
    never, timed, captured, quiet = (cuda.cuEventCreate(flags) for flags in (0, 0, untimed, untimed))
    for event in (timed, quiet):
        cuda.cuEventRecord(event, stream)
    cuda.cuStreamSynchronize(stream)
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    cuda.cuEventRecord(captured, stream)
    graph = cuda.cuStreamEndCapture(stream)
    fails("INVALID_VALUE", cuda.cuEventElapsedTime, captured, never)
    fails("INVALID_HANDLE", cuda.cuEventElapsedTime, never, captured)
    fails("INVALID_VALUE", cuda.cuEventElapsedTime, timed, captured)
    fails("INVALID_HANDLE", cuda.cuEventElapsedTime, timed, quiet)
    for event in (never, timed, captured, quiet):
        cuda.cuEventDestroy(event)
    cuda.cuGraphDestroy(graph)
    cuda.cuStreamDestroy(stream)


def test_rows_a_fraction_of_an_element_apart(cuda: Cuda, fails: Check) -> None:
    place, context = cuda.device_words(8), cuda.cuCtxGetCurrent()
    graph = cuda.cuGraphCreate(0)
    fill = cuda.CUDA_MEMSET_NODE_PARAMS()
    fill.dst, fill.elementSize, fill.width, fill.height, fill.pitch = place, 4, 2, 2, 18
    fails("INVALID_VALUE", cuda.cuGraphAddMemsetNode, graph, None, 0, fill, context)
    cuda.cuGraphDestroy(graph)
    cuda.cuMemFree(place)


@pytest.mark.parametrize(("width", "height"), [(9, 1), (2, 4)])
def test_nodes_that_fill_beyond_an_allocation(cuda: Cuda, fails: Check, width: int, height: int) -> None:
    place, context = cuda.device_words(8), cuda.cuCtxGetCurrent()
    graph = cuda.cuGraphCreate(0)
    fill = cuda.CUDA_MEMSET_NODE_PARAMS()
    fill.dst, fill.elementSize, fill.width, fill.height, fill.pitch = place, 4, 2, 3, 12
    node = cuda.cuGraphAddMemsetNode(graph, None, 0, fill, context)
    fill.width, fill.height = width, height
    fails("INVALID_VALUE", cuda.cuGraphAddMemsetNode, graph, None, 0, fill, context)
    fails("INVALID_VALUE", cuda.cuGraphMemsetNodeSetParams, node, fill)
    cuda.cuGraphDestroy(graph)
    cuda.cuMemFree(place)
