// C++ that fills shared memory meanwhile: pipelines, barriers, tensor maps; and clusters with bins in each other's.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <utility>
#include <vector>

#include "checked.hpp"

namespace groups = cooperative_groups;
namespace ptx = cuda::ptx;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
#pragma nv_diag_suppress static_var_with_dynamic_init  // a barrier in shared memory is made by init()

constexpr int width = 512;  // ints of a stage

// Each thread adds up what others copied, of as many stages as there are, two in flight.
__global__ void staged(const int* in, int* out, int stages) {
    __shared__ alignas(16) int part[2][width];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    const auto block = groups::this_thread_block();
    auto pipeline = cuda::make_pipeline(block, &state);
    int sum = 0;
    for (int stage = 0, fetched = 0; stage < stages; ++stage) {
        for (; fetched < stages && fetched < stage + 2; ++fetched) {
            pipeline.producer_acquire();
            cuda::memcpy_async(block, part[fetched % 2], in + fetched * width,
                               cuda::aligned_size_t<16>(sizeof part[0]), pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        sum += part[stage % 2][(threadIdx.x * 3 + stage) % width];
        pipeline.consumer_release();
    }
    out[threadIdx.x] = sum;
}

__global__ void barred(const int* in, int* out, int stages) {
    __shared__ alignas(16) int part[2][width];
    __shared__ Barrier ready[2];
    const auto block = groups::this_thread_block();
    const auto bytes = cuda::aligned_size_t<16>(sizeof part[0]);
    if (threadIdx.x < 2) init(&ready[threadIdx.x], blockDim.x);
    block.sync();
    cuda::memcpy_async(block, part[0], in, bytes, ready[0]);
    int sum = 0;
    for (int stage = 0; stage < stages; ++stage) {
        const int next = stage + 1;
        if (next < stages) cuda::memcpy_async(block, part[next % 2], in + next * width, bytes, ready[next % 2]);
        ready[stage % 2].arrive_and_wait();
        sum += part[stage % 2][(threadIdx.x * 3 + stage) % width];
        block.sync();
    }
    out[threadIdx.x] = sum;
}

constexpr int bins = 1 << 14;  // of one block

// The bins are spread over the shared memory of a cluster's blocks, 64 KiB in each.
__global__ void histogram(const unsigned* keys, int count, int* out) {
    extern __shared__ int own[];
    const auto cluster = groups::this_cluster();
    for (int i = threadIdx.x; i < bins; i += blockDim.x) own[i] = 0;
    cluster.sync();
    for (int i = static_cast<int>(cluster.thread_rank()); i < count; i += static_cast<int>(cluster.num_threads())) {
        const unsigned bin = keys[i] % (bins * cluster.num_blocks());
        atomicAdd(cluster.map_shared_rank(own, bin / bins) + bin % bins, 1);
    }
    cluster.sync();
    for (int i = threadIdx.x; i < bins; i += blockDim.x) out[cluster.block_rank() * bins + i] = own[i];
}

// Tiles of 32 x 32 come in swizzled and go out transposed; what lies outside comes as zero and does not go out.
__global__ void transpose(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to,
                          int* zeros) {
    __shared__ alignas(1024) float in[32][32], out[32][32];
    __shared__ Barrier ready;
    if (threadIdx.x == 0) {
        init(&ready, blockDim.x);
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();
    const int x = static_cast<int>(blockIdx.x) * 32, y = static_cast<int>(blockIdx.y) * 32;
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
        const int place[] = {x, y};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, in, &from, place,
                                  cuda::device::barrier_native_handle(ready));
        token = cuda::device::barrier_arrive_tx(ready, 1, sizeof in);
    } else {
        token = ready.arrive();
    }
    ready.wait(std::move(token));
    for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) {
        const int row = i % 32, column = i / 32;
        out[column][row] = in[row][(column / 4 ^ row % 8) * 4 + column % 4];
        if (out[column][row] == 0) atomicAdd(zeros, 1);
    }
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        const int place[] = {y, x};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &to, place, out);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}

CUtensorMap tiles(float* matrix, cuuint64_t columns, cuuint64_t rows, CUtensorMapSwizzle swizzle) {
    static void* encode = nullptr;
    cudaDriverEntryPointQueryResult found{};
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found));
    const cuuint64_t extents[] = {columns, rows}, strides[] = {columns * sizeof(float)};
    const cuuint32_t box[] = {32, 32}, steps[] = {1, 1};
    CUtensorMap map{};
    const CUresult result = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(encode)(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, matrix, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    std::printf("tensor map: %d %d\n", static_cast<int>(found), static_cast<int>(result));
    if (result != CUDA_SUCCESS) std::exit(1);
    return map;
}

int main() {
    constexpr int stages = 9, threads = 128;
    std::vector<int> values(stages * width), sums(threads);
    for (int i = 0; i < stages * width; ++i) values[i] = i * 31 % 1009;
    for (int i = 0; i < threads * stages; ++i)
        sums[i % threads] += values[i / threads * width + (i % threads * 3 + i / threads) % width];
    for (const auto kernel : {staged, barred}) {
        int* got = upload(std::vector<int>(threads));
        kernel<<<1, threads>>>(upload(values), got, stages);
        report(kernel == staged ? "staged" : "barred", got, sums);
    }

    constexpr int count = 1 << 20, blocks = 4;
    std::vector<unsigned> keys(count);
    std::vector<int> expected(blocks * bins);
    for (unsigned i = 0; i < count; ++i) ++expected[(keys[i] = i * 2654435761u >> 7) % (blocks * bins)];
    int* counts = upload(std::vector<int>(blocks * bins));
    CHECK(cudaFuncSetAttribute(histogram, cudaFuncAttributeMaxDynamicSharedMemorySize, bins * sizeof(int)));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {blocks, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(256);
    config.dynamicSmemBytes = bins * sizeof(int);
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, histogram, static_cast<const unsigned*>(upload(keys)), int(count), counts));
    report("histogram", counts, expected);

    constexpr int columns = 100, rows = 60;
    std::vector<float> matrix(rows * columns), transposed(rows * columns);
    for (int i = 0; i < rows * columns; ++i)
        matrix[i] = transposed[i % columns * rows + i / columns] = static_cast<float>(i + 1);
    float* turned = upload(std::vector<float>(rows * columns));
    int* zeros = upload(std::vector<int>(1));
    const CUtensorMap from = tiles(upload(matrix), columns, rows, CU_TENSOR_MAP_SWIZZLE_128B);
    const CUtensorMap to = tiles(turned, rows, columns, CU_TENSOR_MAP_SWIZZLE_NONE);
    transpose<<<dim3((columns + 31) / 32, (rows + 31) / 32), 128>>>(from, to, zeros);
    report("transposed", turned, transposed);
    report("outside", zeros, {4 * 2 * 32 * 32 - rows * columns});
    std::puts("done");
}
