// The runtime API's everyday calls, printed so that two runs can be compared.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#include "checked.hpp"

__constant__ float factor;
__device__ unsigned counter;

__global__ void scale(float* values, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = values[i] * factor + static_cast<float>(i % 7);
    if (i == 0) atomicAdd(&counter, 1u);
}

__global__ void total(const float* values, int count, float* sum) {
    extern __shared__ float part[];
    float own = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) own += values[i];
    part[threadIdx.x] = own;
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    }
    if (threadIdx.x == 0) *sum = part[0];
}

int main() {
    constexpr int count = 1 << 16;
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    cudaDeviceProp properties{};
    CHECK(cudaGetDeviceProperties(&properties, 0));
    std::printf("%s %d.%d %d\n", properties.name, properties.major, properties.minor,
                properties.multiProcessorCount);
    CHECK(cudaFree(nullptr));

    float* pinned = nullptr;
    float *device = nullptr, *sum = nullptr;
    CHECK(cudaMallocHost(&pinned, count * sizeof(float)));
    CHECK(cudaMalloc(&device, count * sizeof(float)));
    CHECK(cudaMalloc(&sum, sizeof(float)));
    for (int i = 0; i < count; ++i) pinned[i] = static_cast<float>(i % 100);
    const float two = 2;
    CHECK(cudaMemcpyToSymbol(factor, &two, sizeof two));
    cudaStream_t stream;
    cudaEvent_t before, after;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&before));
    CHECK(cudaEventCreate(&after));
    CHECK(cudaMemcpyAsync(device, pinned, count * sizeof(float), cudaMemcpyHostToDevice, stream));
    CHECK(cudaEventRecord(before, stream));
    for (int turn = 0; turn < 3; ++turn) scale<<<count / 256, 256, 0, stream>>>(device, count);
    total<<<1, 256, 256 * sizeof(float), stream>>>(device, count, sum);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(after, stream));
    CHECK(cudaStreamSynchronize(stream));
    float elapsed = 0, result = 0;
    CHECK(cudaEventElapsedTime(&elapsed, before, after));
    CHECK(cudaMemcpy(&result, sum, sizeof result, cudaMemcpyDeviceToHost));
    unsigned launches = 0;
    CHECK(cudaMemcpyFromSymbol(&launches, counter, sizeof launches));
    std::printf("%.1f %u %d\n", static_cast<double>(result), launches, elapsed >= 0);

    std::vector<float> pageable(count);
    CHECK(cudaMemset(device, 0, count * sizeof(float)));
    scale<<<count / 256, 256>>>(device, count);
    CHECK(cudaMemcpy(pageable.data(), device, count * sizeof(float), cudaMemcpyDefault));
    std::printf("%.1f %.1f\n", static_cast<double>(pageable[6]), static_cast<double>(pageable[count - 1]));

    float* mapped = nullptr;
    CHECK(cudaHostAlloc(&mapped, 4096, cudaHostAllocMapped));
    mapped[0] = 5;
    scale<<<1, 1>>>(mapped, 1);
    CHECK(cudaDeviceSynchronize());
    std::printf("%.1f\n", static_cast<double>(mapped[0]));

    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, device));
    std::printf("%d ", attributes.type);
    CHECK(cudaPointerGetAttributes(&attributes, pageable.data()));
    std::printf("%d ", attributes.type);
    CHECK(cudaPointerGetAttributes(&attributes, pinned));
    std::printf("%d\n", attributes.type);

    int blocks = 0, least = 0, best = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 256, 0));
    CHECK(cudaOccupancyMaxPotentialBlockSize(&least, &best, scale));
    cudaFuncAttributes kernel{};
    CHECK(cudaFuncGetAttributes(&kernel, total));
    std::printf("%d %d %d %d %d\n", blocks, least, best, kernel.maxThreadsPerBlock, kernel.numRegs);

    float* pitched = nullptr;
    size_t pitch = 0;
    CHECK(cudaMallocPitch(&pitched, &pitch, 100, 10));
    CHECK(cudaMemset2D(pitched, pitch, 7, 100, 10));
    std::vector<unsigned char> rows(1000);
    CHECK(cudaMemcpy2D(rows.data(), 100, pitched, pitch, 100, 10, cudaMemcpyDeviceToHost));
    std::printf("%d %d\n", rows[0], rows[999]);

    float* ordered = nullptr;
    CHECK(cudaMallocAsync(&ordered, 1 << 20, stream));
    CHECK(cudaMemsetAsync(ordered, 0, 1 << 20, stream));
    CHECK(cudaFreeAsync(ordered, stream));
    CHECK(cudaLaunchHostFunc(stream, [](void* word) { *static_cast<int*>(word) = 11; }, &best));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("%d\n", best);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(pinned));
    std::puts("done");
}
