// C++ with cooperative groups: tiles, coalesced groups, a barrier of the whole grid, clusters.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#include "checked.hpp"

namespace groups = cooperative_groups;

__global__ void tiles(const int* in, int* out) {
    const auto tile = groups::tiled_partition<8>(groups::this_thread_block());
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int sum = groups::reduce(tile, in[i], groups::plus<int>());
    if (tile.thread_rank() == 0) out[i / 8] = sum;
    if (in[i] % 3 == 0) {
        const auto together = groups::coalesced_threads();
        if (together.thread_rank() == 0) atomicAdd(&out[0], static_cast<int>(together.size()));
    }
}

__global__ void around(int* values, int count, int turns) {
    const auto grid = groups::this_grid();
    const int i = static_cast<int>(grid.thread_rank());
    for (int turn = 0; turn < turns; ++turn) {
        const int next = values[(i + 1) % count];
        grid.sync();
        values[i] = next + 1;
        grid.sync();
    }
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__global__ void __cluster_dims__(4, 1, 1) neighbours(int* out) {
    __shared__ int own;
    const auto cluster = groups::this_cluster();
    if (threadIdx.x == 0) own = static_cast<int>(blockIdx.x) * 10;
    cluster.sync();
    const int next = *cluster.map_shared_rank(&own, (cluster.block_rank() + 1) % 4);
    cluster.sync();
    if (threadIdx.x == 0) out[blockIdx.x] = next;
}
#else
__global__ void neighbours(int*) {}
#endif

int main() {
    constexpr int count = 2048;
    std::vector<int> values(count);
    for (int i = 0; i < count; ++i) values[i] = i;
    int *in = nullptr, *out = nullptr;
    CHECK(cudaMalloc(&in, count * sizeof(int)));
    CHECK(cudaMalloc(&out, count * sizeof(int)));
    CHECK(cudaMemcpy(in, values.data(), count * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(out, 0, count * sizeof(int)));
    tiles<<<count / 256, 256>>>(in, out);
    CHECK(cudaMemcpy(values.data(), out, count * sizeof(int), cudaMemcpyDeviceToHost));
    std::printf("%d %d\n", values[1], values[count / 8 - 1]);

    int cooperative = 0, blocks = 0, processors = 0;
    CHECK(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0));
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, around, 128, 0));
    std::printf("%d %d\n", cooperative, blocks > 0);
    int whole = count, turns = 100;
    void* arguments[] = {&in, &whole, &turns};
    CHECK(cudaLaunchCooperativeKernel(around, dim3(count / 128), dim3(128), arguments, 0, nullptr));
    CHECK(cudaMemcpy(values.data(), in, count * sizeof(int), cudaMemcpyDeviceToHost));
    std::printf("%d %d\n", values[0], values[count - 1]);
    const cudaError_t much = cudaLaunchCooperativeKernel(
        around, dim3(static_cast<unsigned>(blocks * processors + 1)), dim3(128), arguments, 0, nullptr);
    std::printf("%s\n", cudaGetErrorName(much));
    (void)cudaGetLastError();

    neighbours<<<8, 32>>>(out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(values.data(), out, 8 * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; ++i) std::printf("%d ", values[i]);
    std::printf("\n");
    int clusters = 0;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(8);
    config.blockDim = dim3(32);
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {4, 1, 1};
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaOccupancyMaxActiveClusters(&clusters, neighbours, &config));
    std::printf("%d\n", clusters > 0);
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    std::puts("done");
}
