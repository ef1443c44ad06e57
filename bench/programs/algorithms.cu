// C++ with Thrust, CUB and cuRAND's device functions: sorting, scans, reductions by key, histograms, own operators.
#include <cuda_runtime.h>
#include <curand_kernel.h>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/tuple.h>
#include <thrust/unique.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <map>
#include <numeric>
#include <vector>

#include "checked.hpp"

constexpr int count = 100003;

struct Hash {
    __host__ __device__ unsigned operator()(unsigned i) const {
        i = (i ^ i >> 15) * 0x2c1b3c6du;
        return (i ^ i >> 12) % 5000;
    }
};
struct Odd {
    __host__ __device__ bool operator()(unsigned x) const { return x % 2 == 1; }
};
struct Weighted {
    __host__ __device__ long long operator()(const thrust::tuple<unsigned, unsigned>& pair) const {
        return static_cast<long long>(thrust::get<0>(pair)) * thrust::get<1>(pair) % 1000;
    }
};
// Maps x -> a x + b, modulo 2^32; one after the other is no matter of taste.
struct Map {
    unsigned a, b;
    __host__ __device__ bool operator==(const Map& other) const { return a == other.a && b == other.b; }
};
struct Made {
    __host__ __device__ Map operator()(unsigned x) const { return {2 * x + 1, x}; }
};
struct Then {
    __host__ __device__ Map operator()(const Map& one, const Map& next) const {
        return {next.a * one.a, next.a * one.b + next.b};
    }
};

// Each block says at how many places of its part the sum so far is odd.
__global__ void parts(const unsigned* values, unsigned* counts) {
    using Scan = cub::BlockScan<unsigned, 128>;
    using Sum = cub::BlockReduce<unsigned, 128>;
    __shared__ union {
        Scan::TempStorage scan;
        Sum::TempStorage sum;
    } storage;
    unsigned so_far = 0;
    Scan(storage.scan).InclusiveSum(values[blockIdx.x * 128 + threadIdx.x], so_far);
    __syncthreads();
    const unsigned sum = Sum(storage.sum).Sum(so_far % 2);
    if (threadIdx.x == 0) counts[blockIdx.x] = sum;
}

__global__ void draw(unsigned long long seed, int* inside, double* sums, unsigned* first) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    curandStatePhilox4_32_10_t state;
    curand_init(seed, i, 2, &state);
    if (i < 4) first[i] = curand(&state);
    for (int turn = 0; turn < 16; ++turn) {
        const float4 at = curand_uniform4(&state);
        const int hits = (at.x * at.x + at.y * at.y < 1) + (at.z * at.z + at.w * at.w < 1);
        atomicAdd(inside, hits);
    }
    const float2 normal = curand_normal2(&state);
    sums[i] = normal.x + 100.0 * normal.y * normal.y + 10000.0 * curand_poisson(&state, 3.0);
}

template <typename Got, typename Wanted>
void report(const char* name, const Got& got, const Wanted& expected) {
    CHECK(cudaGetLastError());
    std::vector<typename Got::value_type> values(got.size());
    thrust::copy(got.begin(), got.end(), values.begin());
    std::printf("%s: %zu %s\n", name, values.size(), values == expected ? "right" : "WRONG");
}

// CUB's way: asked without memory, a call says how much it wants.
template <typename Call>
void with_memory(cudaStream_t stream, Call call) {
    void* memory = nullptr;
    size_t bytes = 0;
    CHECK(call(memory, bytes));
    CHECK(cudaMallocAsync(&memory, bytes, stream));
    CHECK(call(memory, bytes));
    CHECK(cudaFreeAsync(memory, stream));
}

int main() {
    std::vector<unsigned> places(count), values(count), keys, totals, odd, bins(50), halves(count / 128);
    std::vector<Map> maps(count);
    std::iota(places.begin(), places.end(), 0u);
    std::transform(places.begin(), places.end(), values.begin(), Hash());
    std::map<unsigned, unsigned> sums;
    unsigned so_far = 0;
    long long most = 0;
    for (unsigned i = 0; i < count; ++i) {
        sums[values[i]] += i;
        ++bins[values[i] / 100];
        so_far = (i % 128 ? so_far : 0) + values[i];
        if (i / 128 < halves.size()) halves[i / 128] += so_far % 2;
        maps[i] = i ? Then()(maps[i - 1], Made()(values[i])) : Made()(values[i]);
        most = std::max(most, Weighted()({values[i], i}));
    }
    for (const auto& [key, sum] : sums) keys.push_back(key), totals.push_back(sum);
    std::copy_if(values.begin(), values.end(), std::back_inserter(odd), Odd());

    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const auto policy = thrust::cuda::par.on(stream);
    const thrust::counting_iterator<unsigned> from(0);
    thrust::device_vector<unsigned> in(count), a, b(count), c(count), d(count);
    thrust::transform(from, from + count, in.begin(), Hash());
    report("transform", in, values);
    a = in;
    b = places;
    thrust::sort_by_key(policy, a.begin(), a.end(), b.begin());
    const auto ends = thrust::reduce_by_key(policy, a.begin(), a.end(), b.begin(), c.begin(), d.begin());
    c.erase(ends.first, c.end());
    d.erase(ends.second, d.end());
    report("reduce_by_key, keys", c, keys);
    report("reduce_by_key, sums", d, totals);
    a.erase(thrust::unique(policy, a.begin(), a.end()), a.end());
    report("unique", a, keys);
    const auto pairs = thrust::make_zip_iterator(thrust::make_tuple(in.begin(), from));
    const long long got =
        thrust::transform_reduce(policy, pairs, pairs + count, Weighted(), 0ll, thrust::maximum<long long>());
    std::printf("transform_reduce: %lld, expected %lld\n", got, most);

    // CUB's functions say first how much memory they want.
    const unsigned* raw = thrust::raw_pointer_cast(in.data());
    thrust::device_vector<unsigned> counts(50), selected(count), number(1);
    with_memory(stream, [&](void* memory, size_t& bytes) {
        return cub::DeviceHistogram::HistogramEven(memory, bytes, raw, counts.data().get(), 51, 0u, 5000u, count,
                                                  stream);
    });
    with_memory(stream, [&](void* memory, size_t& bytes) {
        return cub::DeviceSelect::If(memory, bytes, raw, selected.data().get(), number.data().get(), count, Odd(),
                                     stream);
    });
    thrust::device_vector<Map> made(count);
    thrust::transform(in.begin(), in.end(), made.begin(), Made());
    with_memory(stream, [&](void* memory, size_t& bytes) {
        return cub::DeviceScan::InclusiveScan(memory, bytes, made.data().get(), made.data().get(), Then(), count,
                                              stream);
    });
    CHECK(cudaStreamSynchronize(stream));
    selected.resize(number[0]);
    report("DeviceHistogram", counts, bins);
    report("DeviceSelect", selected, odd);
    report("DeviceScan", made, maps);
    thrust::device_vector<unsigned> of_blocks(halves.size());
    parts<<<static_cast<unsigned>(halves.size()), 128>>>(raw, of_blocks.data().get());
    report("BlockScan, BlockReduce", of_blocks, halves);

    constexpr int draws = 1 << 14;
    thrust::device_vector<int> inside(1);
    thrust::device_vector<unsigned> first(4);
    thrust::device_vector<double> results(draws);
    draw<<<draws / 128, 128>>>(1234, inside.data().get(), results.data().get(), first.data().get());
    CHECK(cudaGetLastError());
    const int hits = inside[0];
    const double pi = 4.0 * hits / (32.0 * draws), mean = thrust::reduce(results.begin(), results.end()) / draws;
    std::printf("cuRAND:");
    for (const unsigned each : first) std::printf(" %u", each);
    std::printf("\n");
    std::printf("%d %d, %.3f %d\n", hits, std::abs(pi - 3.14159) < 0.01, mean, std::abs(mean - 30100) < 1000);
    CHECK(cudaStreamDestroy(stream));
    std::puts("done");
}
