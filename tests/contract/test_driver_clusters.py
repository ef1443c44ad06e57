"""Clusters: shared memory of other blocks, the barrier of a cluster, and what launches them."""

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_calls import Cuda, CudaError

THREADS = 32
SOURCE = b"""
.version 8.0
.target sm_90
.address_size 64

// out[block][thread] = what the next block of the cluster has in its place; the first block's first thread
// then adds how many threads the cluster counted in its memory, times 1000.
.visible .entry neighbours(.param .u64 in, .param .u64 out)
{
    .reg .pred %p<3>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<10>;
    .shared .align 4 .b8 place[128];
    .shared .align 4 .u32 count;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %ctaid.y;
    mov.u32 %r2, %nctaid.x;
    mov.u32 %r3, %ctaid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r1, 32, %r2;
    mul.wide.u32 %rd3, %r3, 4;
    add.u64 %rd1, %rd1, %rd3;
    add.u64 %rd2, %rd2, %rd3;
    ld.global.u32 %r4, [%rd1];
    mov.u32 %r5, place;
    shl.b32 %r6, %r2, 2;
    add.u32 %r5, %r5, %r6;
    st.shared.u32 [%r5], %r4;
    st.shared.u32 [count], 0;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mov.u32 %r7, %cluster_ctarank;
    mov.u32 %r8, %cluster_nctarank;
    add.u32 %r9, %r7, 1;
    rem.u32 %r9, %r9, %r8;
    mapa.shared::cluster.u32 %r10, %r5, %r9;
    ld.shared::cluster.u32 %r11, [%r10];
    getctarank.shared::cluster.u32 %r12, %r10;
    setp.ne.u32 %p1, %r12, %r9;
    @%p1 trap;
    mov.u32 %r13, count;
    cvt.u64.u32 %rd4, %r13;
    cvta.shared.u64 %rd4, %rd4;
    mapa.u64 %rd5, %rd4, 0;
    atom.add.u32 %r14, [%rd5], 1;
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    or.b32 %r12, %r7, %r2;
    setp.ne.u32 %p2, %r12, 0;
    @%p2 bra WRITE;
    ld.shared.u32 %r14, [count];
    mad.lo.u32 %r11, %r14, 1000, %r11;
WRITE:
    st.global.u32 [%rd2], %r11;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ret;
}

// As long as one block of a cluster waits, all others have ended.
.visible .entry leave(.param .u64 out)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    mov.u32 %r1, %cluster_ctarank;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 exit;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ld.param.u64 %rd1, [out];
    red.global.add.u32 [%rd1], 1;
    ret;
}

.visible .entry of_two() .explicitcluster .reqnctapercluster 2, 1, 1 { ret; }
"""


@pytest.fixture(name="module")
def load_kernels(cuda: Cuda) -> Iterator[Any]:
    module = cuda.cuModuleLoadData(SOURCE)
    yield module
    cuda.cuCtxSynchronize()
    cuda.cuModuleUnload(module)


def cluster_attribute(cuda: Cuda, cluster: tuple[int, int]) -> Any:
    attribute = cuda.CUlaunchAttribute()
    attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    dimension = attribute.value.clusterDim
    dimension.x, dimension.y, dimension.z = *cluster, 1
    attribute.value.clusterDim = dimension
    return attribute


def launch(
    cuda: Cuda, function: Any, grid: tuple[int, int], cluster: tuple[int, int] | None, *values: int
) -> None:
    """Launch blocks of THREADS threads; without `cluster` as the function itself wants it."""
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = *grid, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = THREADS, 1, 1
    if cluster is not None:
        config.attrs = [cluster_attribute(cuda, cluster)]
        config.numAttrs = 1
    stored = [ctypes.c_uint64(value) for value in values]
    pointers = (ctypes.c_void_p * max(len(stored), 1))(*(ctypes.addressof(value) for value in stored))
    cuda.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0)


def test_a_cluster_of_zeros_is_none(cuda: Cuda, module: Any) -> None:
    zeros = cuda.CUlaunchAttribute()
    zeros.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    config = cuda.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.attrs, config.numAttrs = [zeros], 1
    place = cuda.device_words()
    stored = ctypes.c_uint64(place)
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(stored))
    cuda.cuLaunchKernelEx(config, cuda.function("count"), ctypes.addressof(pointers), 0)
    cuda.cuCtxSynchronize()
    assert cuda.read(place)[0] == 1


def test_the_node_of_a_kernel_with_clusters_tells_their_size(cuda: Cuda, module: Any) -> None:
    stream = cuda.stream()
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    cuda.cuLaunchKernel(cuda.cuModuleGetFunction(module, b"of_two"), 2, 1, 1, 1, 1, 1, 0, stream, 0, 0)
    graph = cuda.cuStreamEndCapture(stream)
    (node,), _ = cuda.cuGraphGetNodes(graph, 1)
    kind = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    size = cuda.cuGraphKernelNodeGetAttribute(node, kind).clusterDim
    assert (size.x, size.y, size.z) == (2, 1, 1)
    cuda.cuGraphDestroy(graph)


@pytest.mark.parametrize(("grid", "cluster"), [((8, 1), (4, 1)), ((4, 4), (2, 2)), ((6, 2), (1, 2))])
def test_blocks_read_and_count_in_each_other(
    cuda: Cuda, module: Any, grid: tuple[int, int], cluster: tuple[int, int]
) -> None:
    blocks = grid[0] * grid[1]
    values = np.arange(blocks * THREADS, dtype=np.uint32)
    given, out = cuda.device_words(values.size), cuda.device_words(values.size)
    cuda.cuMemcpyHtoD(given, values.ctypes.data, values.nbytes)
    launch(cuda, cuda.cuModuleGetFunction(module, b"neighbours"), grid, cluster, given, out)
    per_cluster = cluster[0] * cluster[1]
    expected = np.zeros((blocks, THREADS), dtype=np.uint32)
    for y in range(grid[1]):
        for x in range(grid[0]):
            rank = x % cluster[0] + cluster[0] * (y % cluster[1])
            following = (rank + 1) % per_cluster
            there_x = x - x % cluster[0] + following % cluster[0]
            there_y = y - y % cluster[1] + following // cluster[0]
            expected[y * grid[0] + x] = values.reshape(blocks, THREADS)[there_y * grid[0] + there_x]
            if rank == 0:
                expected[y * grid[0] + x, 0] += 1000 * per_cluster * THREADS
    assert cuda.read(out, values.size).tolist() == expected.ravel().tolist()


def test_who_has_ended_is_not_waited_for(cuda: Cuda, module: Any) -> None:
    out = cuda.device_words()
    launch(cuda, cuda.cuModuleGetFunction(module, b"leave"), (8, 1), (4, 1), out)
    assert cuda.read(out)[0] == 2 * THREADS


def test_a_function_says_its_clusters(cuda: Cuda, module: Any) -> None:
    function = cuda.cuModuleGetFunction(module, b"of_two")
    wide = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
    assert cuda.cuFuncGetAttribute(wide, function) == 2
    launch(cuda, function, (4, 1), None)
    cuda.cuCtxSynchronize()


@pytest.mark.parametrize("cluster", [1, 4])
def test_a_launch_may_not_want_other_clusters_than_the_function(
    cuda: Cuda, module: Any, cluster: int
) -> None:
    function = cuda.cuModuleGetFunction(module, b"of_two")
    with pytest.raises(CudaError, match="INVALID_CLUSTER_SIZE"):
        launch(cuda, function, (64, 1), (cluster, 1))
    launch(cuda, function, (64, 1), (2, 1))
    cuda.cuCtxSynchronize()


def test_a_launch_of_parts_of_the_function_s_clusters(cuda: Cuda, module: Any) -> None:
    function = cuda.cuModuleGetFunction(module, b"of_two")
    with pytest.raises(CudaError):
        launch(cuda, function, (3, 1), None)
    launch(cuda, function, (4, 1), None)
    cuda.cuCtxSynchronize()


@pytest.mark.parametrize(("grid", "cluster"), [((6, 1), (4, 1)), ((32, 1), (16, 1))])
def test_clusters_that_do_not_fit(
    cuda: Cuda, module: Any, grid: tuple[int, int], cluster: tuple[int, int]
) -> None:
    with pytest.raises(CudaError):
        launch(cuda, cuda.cuModuleGetFunction(module, b"leave"), grid, cluster, 0)


def occupancy(cuda: Cuda, function: Any, blocks: int, cluster: int | None) -> tuple[str, int, str, int]:
    """What both questions about clusters are answered."""
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 128, 1, 1
    if cluster is not None:
        config.attrs = [cluster_attribute(cuda, (cluster, 1))]
        config.numAttrs = 1
    active, count = cuda.driver.cuOccupancyMaxActiveClusters(function, config)
    potential, size = cuda.driver.cuOccupancyMaxPotentialClusterSize(function, config)
    return active.name[5:], count or 0, potential.name[5:], size or 0


@pytest.mark.parametrize(
    ("name", "blocks", "cluster", "most"),
    [
        ("leave", 1, None, 0),  # it says nothing of clusters
        ("leave", 1, 1, 1056),
        ("leave", 64, 2, 528),
        ("leave", 1, 2, None),
        ("leave", 64, 16, None),
        ("of_two", 64, None, 528),
        ("of_two", 64, 2, 528),
        ("of_two", 64, 1, None),
        ("of_two", 64, 4, None),
        ("of_two", 1, None, None),
    ],
)
def test_occupancy_of_clusters(
    cuda: Cuda, module: Any, name: str, blocks: int, cluster: int | None, most: int | None
) -> None:
    function = cuda.cuModuleGetFunction(module, name.encode())
    refused = "ERROR_INVALID_CLUSTER_SIZE"
    answer = (refused, 0, refused, 0) if most is None else ("SUCCESS", most, "SUCCESS", 8)
    assert occupancy(cuda, function, blocks, cluster) == answer


@pytest.mark.parametrize("cluster", [4, 8])
def test_larger_clusters_find_fewer_multiprocessors(cuda: Cuda, module: Any, cluster: int) -> None:
    function = cuda.cuModuleGetFunction(module, b"leave")
    result, count, _, _ = occupancy(cuda, function, 64, cluster)
    assert result == "SUCCESS"
    assert 0.8 * 1056 < count * cluster <= 1056
