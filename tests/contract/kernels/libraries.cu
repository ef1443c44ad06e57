// Kernels written with CUB, cooperative groups and libcu++.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_run_length_decode.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/std/array>
#include <cuda/std/complex>
#include <cuda/std/optional>
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
namespace cg = cooperative_groups;

// @launch grid=2 block=64 in=u32:512 out=u32:512
extern "C" __global__ void cub_sort(const unsigned* in, unsigned* out, unsigned n) {
    using Load = cub::BlockLoad<unsigned, 64, 4, cub::BLOCK_LOAD_TRANSPOSE>;
    using Sort = cub::BlockRadixSort<unsigned, 64, 4>;
    __shared__ union { typename Load::TempStorage load; typename Sort::TempStorage sort; } space;
    unsigned items[4];
    Load(space.load).Load(in + blockIdx.x * 256, items);
    __syncthreads();
    Sort(space.sort).Sort(items);
    for (int k = 0; k < 4; ++k) out[blockIdx.x * 256 + threadIdx.x * 4 + k] = items[k];
}

// @launch grid=2 block=128 in=u32:1024 out=u32:1028
extern "C" __global__ void cub_scan(const unsigned* in, unsigned* out, unsigned n) {
    using Scan = cub::BlockScan<unsigned, 128>;
    using Reduce = cub::BlockReduce<unsigned, 128>;
    __shared__ typename Scan::TempStorage scan;
    __shared__ typename Reduce::TempStorage reduce;
    unsigned items[4], all, first = (blockIdx.x * 128 + threadIdx.x) * 4;
    for (int k = 0; k < 4; ++k) items[k] = in[first + k];
    unsigned most = Reduce(reduce).Reduce(items, [](unsigned a, unsigned b) { return a > b ? a : b; });
    Scan(scan).InclusiveSum(items, items, all);
    for (int k = 0; k < 4; ++k) out[first + k] = items[k];
    if (threadIdx.x == 0) out[1024 + blockIdx.x * 2] = all, out[1025 + blockIdx.x * 2] = most;
}

// @launch grid=1 block=128 in=u32:512 out=u32:64
extern "C" __global__ void cub_histogram(const unsigned* in, unsigned* out, unsigned n) {
    using Histogram = cub::BlockHistogram<unsigned char, 128, 4, 64, cub::BLOCK_HISTO_SORT>;
    __shared__ typename Histogram::TempStorage space;
    __shared__ unsigned bins[64];
    unsigned char items[4];
    for (int k = 0; k < 4; ++k) items[k] = in[threadIdx.x * 4 + k] % 64;
    Histogram(space).Histogram(items, bins);
    __syncthreads();
    if (threadIdx.x < 64) out[threadIdx.x] = bins[threadIdx.x];
}

// @launch grid=1 block=64 in=u32:256 out=u32:256
extern "C" __global__ void cub_merge_sort(const unsigned* in, unsigned* out, unsigned n) {
    using Sort = cub::WarpMergeSort<unsigned, 4, 32>;
    __shared__ typename Sort::TempStorage space[2];
    unsigned items[4], first = threadIdx.x * 4;
    for (int k = 0; k < 4; ++k) items[k] = in[first + k];
    Sort(space[threadIdx.x / 32]).Sort(items, [](unsigned a, unsigned b) { return a < b; });
    for (int k = 0; k < 4; ++k) out[first + k] = items[k];
}

// @launch grid=4 block=64 cooperative=1 in=u32:256 out=u32:1024
extern "C" __global__ void groups(const unsigned* in, unsigned* out, unsigned n) {
    auto grid = cg::this_grid();
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    unsigned v = in[grid.thread_rank()];
    unsigned sum = cg::reduce(tile, v, cg::plus<unsigned>());
    unsigned scan = cg::exclusive_scan(tile, v, cg::bit_xor<unsigned>());
    if (v & 1) {
        auto active = cg::coalesced_threads();
        sum += active.size() + cg::reduce(active, v, cg::greater<unsigned>());
    }
    auto odd = cg::binary_partition(tile, v % 3 == 0);
    out[256 + grid.thread_rank()] = odd.size() << 16 | odd.thread_rank();
    auto same = cg::labeled_partition(tile, v % 4);
    out[512 + grid.thread_rank()] = same.size();
    out[grid.thread_rank()] = sum ^ scan;
    grid.sync();
    if (grid.thread_rank() == 0)
        for (unsigned k = 0; k < 256; ++k) out[768] += out[k];
}

// @launch grid=8 block=64 in=u32:512 out=u32:1024
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_histogram(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ unsigned bins[32];
    auto cluster = cg::this_cluster();
    if (threadIdx.x < 32) bins[threadIdx.x] = 0;
    cluster.sync();
    unsigned v = in[INDEX] % 128;
    atomicAdd(cluster.map_shared_rank(bins, v / 32) + v % 32, 1u);
    cluster.sync();
    if (threadIdx.x < 32) out[blockIdx.x * 32 + threadIdx.x] = bins[threadIdx.x];
    out[256 + INDEX] = cluster.block_rank() << 8 | cluster.num_blocks();
}

// A pipeline of two stages, and a barrier that counts.
// @launch grid=2 block=64 in=u32:2048 out=u32:128
extern "C" __global__ void pipelines(const unsigned* in, unsigned* out, unsigned n) {
    __shared__ alignas(16) unsigned stage[2][256];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    unsigned sum = 0;
    for (int fetch = 0, use = 0; use < 4; ++use) {
        for (; fetch < 4 && fetch < use + 2; ++fetch) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, stage[fetch % 2], in + blockIdx.x * 1024 + fetch * 256, cuda::aligned_size_t<16>(1024), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        for (int k = 0; k < 4; ++k) sum = sum * 31 + stage[use % 2][(threadIdx.x * 7 + k * 64) % 256];
        pipe.consumer_release();
    }
    out[INDEX] = sum;
}

// @launch grid=2 block=96 in=u32:2048 out=u32:192
extern "C" __global__ void barriers(const unsigned* in, unsigned* out, unsigned n) {
    using Barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ alignas(128) unsigned data[1024];
    __shared__ Barrier full;
    if (threadIdx.x == 0) init(&full, blockDim.x);
    __syncthreads();
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(data, in + blockIdx.x * 1024, cuda::aligned_size_t<16>(4096), full);
        token = cuda::device::barrier_arrive_tx(full, 1, 4096);
    } else {
        token = full.arrive();
    }
    full.wait(cuda::std::move(token));
    unsigned sum = 0;
    for (unsigned k = threadIdx.x; k < 1024; k += 96) sum ^= data[k] + k;
    full.arrive_and_wait();
    data[threadIdx.x] = sum;
    full.arrive_and_wait();
    out[INDEX] = data[95 - threadIdx.x];
}

// @launch grid=4 block=64 in=u32:256 out=u64:16
extern "C" __global__ void atomic_refs(const unsigned* in, unsigned long long* out, unsigned n) {
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_device> sum(out[0]), most(out[1]), least(out[2]);
    sum.fetch_add(in[INDEX], cuda::memory_order_relaxed);
    most.fetch_max(in[INDEX]);
    cuda::atomic_ref<double, cuda::thread_scope_system> real(((double*)out)[3]);
    real.fetch_add(in[INDEX] & 0xff, cuda::memory_order_acq_rel);
    cuda::atomic_ref<unsigned char, cuda::thread_scope_device> bytes(((unsigned char*)out)[32 + INDEX % 16]);
    bytes.fetch_add(1);
    unsigned long long old = out[6];
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_device> swapped(out[6]);
    while (!swapped.compare_exchange_weak(old, old * 3 + 1, cuda::memory_order_release, cuda::memory_order_relaxed)) {
    }
    (void)least;
}

// @launch grid=1 block=64 in=f32:256 out=f32:128 approx=1e-4 absolute=1e-3
extern "C" __global__ void standard_library(const float* in, float* out, unsigned n) {
    cuda::std::complex<float> z(in[threadIdx.x], in[64 + threadIdx.x]), w(in[128 + threadIdx.x], 0.5f);
    z = z * w + cuda::std::conj(z) / (w + 5.0f);
    cuda::std::array<float, 4> parts{z.real(), z.imag(), cuda::std::abs(w), cuda::std::norm(z)};
    cuda::std::optional<float> most;
    for (float part : parts)
        if (!most || *most < part) most = part;
    out[threadIdx.x * 2] = *most;
    out[threadIdx.x * 2 + 1] = parts[threadIdx.x % 4];
}
