"""Arguments that are nothing: a value that no enumeration has, a device or a kernel that is not there."""

import ctypes

import pytest
from cuda_calls import KERNELS, Check, Cuda

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
