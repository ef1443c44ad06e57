// C++ that does wrong and goes on: refused launches, copies, memory and devices, limits, a reset, a sticky error.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "checked.hpp"

__device__ int kept = 41;

__global__ void add(int* values, int amount) {
    values[blockIdx.x * blockDim.x + threadIdx.x] += amount;
    if (blockIdx.x == 0 && threadIdx.x == 0) kept += amount;
}

__global__ void __launch_bounds__(64) few(int* values) { values[threadIdx.x] = static_cast<int>(threadIdx.x); }

__global__ void dynamic(int* out) {
    extern __shared__ int words[];
    words[threadIdx.x] = static_cast<int>(threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = words[blockDim.x - 1 - threadIdx.x];
}

// How much shared memory a block of `dynamic` needs.
struct Words {
    __host__ __device__ size_t operator()(int threads) const { return static_cast<size_t>(threads) * sizeof(int); }
};

__global__ void fixed(float* out) {
    __shared__ float tile[32][33];
    tile[threadIdx.y][threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

// What a call gave; the error that it left is taken away.
void tell(const char* what, cudaError_t error) {
    std::printf("%s: %s", what, cudaGetErrorName(error));
    std::printf(" %s\n", cudaGetErrorName(cudaGetLastError()));
}

// What a launch left.
void launched(const char* what) {
    const cudaError_t first = cudaPeekAtLastError(), second = cudaPeekAtLastError(), taken = cudaGetLastError();
    std::printf("%s: %s %d %s\n", what, cudaGetErrorName(first), first == second && second == taken,
                cudaGetErrorName(cudaGetLastError()));
}

void works(int* values) {
    int word = 0;
    CHECK(cudaMemset(values, 0, 1024 * sizeof(int)));
    add<<<4, 256>>>(values, 3);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&word, values + 1023, sizeof word, cudaMemcpyDeviceToHost));
    if (word != 3) std::printf("wrong: %d\n", word);
}

void launches(int* values) {
    add<<<0, 32>>>(values, 1);
    launched("no blocks");
    add<<<1, 0>>>(values, 1);
    launched("no threads");
    add<<<1, 2048>>>(values, 1);
    launched("2048 threads");
    add<<<1, dim3(1, 1, 128)>>>(values, 1);
    launched("128 threads deep");
    add<<<dim3(1, 70000), 1>>>(values, 1);
    launched("70000 blocks high");
    few<<<1, 128>>>(values);
    launched("more threads than bounds");
    dynamic<<<1, 64, 100 << 10>>>(values);
    launched("much shared memory");
    constexpr auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    tell("too much shared memory", cudaFuncSetAttribute(dynamic, most, 300 << 10));
    CHECK(cudaFuncSetAttribute(dynamic, most, 100 << 10));
    dynamic<<<1, 64, 100 << 10>>>(values);
    launched("shared memory asked for");
    tell("no kernel", cudaLaunchKernel(static_cast<const void*>("words"), dim3(1), dim3(1), nullptr, 0, nullptr));
    // An error of one call is not the next one's; it stays the last one until it is taken.
    add<<<1, 2048>>>(values, 1);
    const cudaError_t next = cudaStreamSynchronize(nullptr);
    std::printf("next: %s, last: %s\n", cudaGetErrorName(next), cudaGetErrorName(cudaGetLastError()));
    works(values);
}

void calls(int* values) {
    int words[16] = {};
    cudaEvent_t untimed, never;
    cudaStream_t stream;
    cudaGraph_t graph;
    float elapsed = 0;
    CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    CHECK(cudaEventCreate(&never));
    CHECK(cudaStreamCreate(&stream));
    tell("kind", cudaMemcpy(words, values, sizeof words, static_cast<cudaMemcpyKind>(9)));
    tell("from nowhere", cudaMemcpy(values, nullptr, sizeof words, cudaMemcpyHostToDevice));
    tell("to nowhere", cudaMemcpy(nullptr, words, sizeof words, cudaMemcpyHostToDevice));
    tell("nothing", cudaMemcpy(values, words, 0, cudaMemcpyHostToDevice));
    tell("too far", cudaMemcpy(values, values, size_t{1} << 40, cudaMemcpyDeviceToDevice));
    tell("pitch", cudaMemcpy2D(values, 8, words, 16, 16, 2, cudaMemcpyHostToDevice));
    tell("fill", cudaMemset(nullptr, 0, 16));
    tell("symbol", cudaMemcpyToSymbol(kept, words, sizeof words));
    tell("free", cudaFree(words));
    tell("free of the host", cudaFreeHost(words));
    tell("free nothing", cudaFree(nullptr));
    tell("unregister", cudaHostUnregister(words));
    CHECK(cudaEventRecord(untimed));
    CHECK(cudaEventSynchronize(untimed));
    tell("untimed", cudaEventElapsedTime(&elapsed, untimed, untimed));
    tell("never recorded", cudaEventElapsedTime(&elapsed, never, never));
    tell("query", cudaEventQuery(never));
    tell("no capture", cudaStreamEndCapture(stream, &graph));
    tell("wait flags", cudaStreamWaitEvent(stream, never, 77));
    std::printf("%s, %s\n", cudaGetErrorName(static_cast<cudaError_t>(12345)),
                cudaGetErrorString(cudaErrorInvalidValue));
    CHECK(cudaEventDestroy(untimed));
    CHECK(cudaEventDestroy(never));
    CHECK(cudaStreamDestroy(stream));
    works(values);
}

void memory_and_devices() {
    int* values = nullptr;
    int device = -1, ignored = 0;
    cudaDeviceProp properties{};
    tell("too much memory", cudaMalloc(&values, size_t{1} << 50));
    tell("too much in a stream", cudaMallocAsync(&values, size_t{1} << 50, nullptr));
    CHECK(cudaMalloc(&values, 1 << 20));
    works(values);
    CHECK(cudaFree(values));
    tell("freed twice", cudaFree(values));
    tell("device 99", cudaSetDevice(99));
    tell("device -1", cudaSetDevice(-1));
    tell("properties", cudaGetDeviceProperties(&properties, 99));
    tell("attribute", cudaDeviceGetAttribute(&ignored, cudaDevAttrWarpSize, 99));
    tell("bad attribute", cudaDeviceGetAttribute(&ignored, static_cast<cudaDeviceAttr>(9999), 0));
    tell("peer", cudaDeviceCanAccessPeer(&ignored, 0, 99));
    CHECK(cudaGetDevice(&device));
    std::printf("device %d\n", device);
}

void questions() {
    cudaFuncAttributes kernel{};
    int blocks = 0, most = 0, best = 0;
    size_t left = 0, stack = 0, heap = 0;
    CHECK(cudaFuncGetAttributes(&kernel, few));
    std::printf("few: %d threads, %zu bytes\n", kernel.maxThreadsPerBlock, kernel.sharedSizeBytes);
    CHECK(cudaFuncGetAttributes(&kernel, fixed));
    std::printf("fixed: %zu bytes, up to %d, local %zu, code %d\n", kernel.sharedSizeBytes,
                kernel.maxDynamicSharedSizeBytes, kernel.localSizeBytes, kernel.binaryVersion);
    CHECK(cudaFuncGetAttributes(&kernel, dynamic));
    std::printf("dynamic: up to %d\n", kernel.maxDynamicSharedSizeBytes);
    tell("no function", cudaFuncGetAttributes(&kernel, "words"));
    for (const int threads : {32, 256, 1024}) {
        CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fixed, threads, 0));
        CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, dynamic, threads, 50 << 10));
        std::printf("%d threads: %d and %d blocks\n", threads, blocks, most);
    }
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, few, 128, 0));
    std::printf("few: %d\n", blocks);
    tell("occupancy of 0", cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, few, 0, 0));
    CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&left, dynamic, 2, 256));
    CHECK(cudaOccupancyMaxPotentialBlockSizeVariableSMem(&most, &best, dynamic, Words{}));
    std::printf("left %zu, best %d of %d\n", left, most, best);

    CHECK(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, stack + 4096));
    CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20));
    const size_t before = stack;
    CHECK(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
    CHECK(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
    std::printf("limits %d %d\n", stack >= before + 4096, heap >= 32 << 20);
    tell("huge stack", cudaDeviceSetLimit(cudaLimitStackSize, size_t{1} << 40));
    tell("no such limit", cudaDeviceSetLimit(static_cast<cudaLimit>(77), 1));
}

// Everything is gone, and the device is as new.
void reset(int* old) {
    int word = 0;
    CHECK(cudaMemcpyFromSymbol(&word, kept, sizeof word));
    std::printf("before %d, expected %d\n", word, 41 + 4 * 3);
    CHECK(cudaDeviceReset());
    tell("after the reset", cudaGetLastError());
    tell("freed by it", cudaFree(old));
    CHECK(cudaMemcpyFromSymbol(&word, kept, sizeof word));
    std::printf("afterwards %d, expected 41\n", word);
    int* values = nullptr;
    CHECK(cudaMalloc(&values, 1 << 20));
    works(values);
    CHECK(cudaMemcpyFromSymbol(&word, kept, sizeof word));
    std::printf("used %d, expected 44\n", word);
    CHECK(cudaDeviceReset());
}

// A process of its own: nothing works in it any more.
int damage() {
    int* values = nullptr;
    int word = 0;
    cudaStream_t stream, another;
    CHECK(cudaMalloc(&values, 1 << 20));
    CHECK(cudaStreamCreate(&stream));
    works(values);
    add<<<1, 32>>>(nullptr, 1);
    std::printf("synchronise: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    std::printf("last: %s", cudaGetErrorName(cudaGetLastError()));
    std::printf(" %s\n", cudaGetErrorName(cudaGetLastError()));
    tell("synchronise", cudaDeviceSynchronize());
    tell("query", cudaStreamQuery(stream));
    add<<<1, 32>>>(values, 1);
    launched("launch");
    tell("copy", cudaMemcpy(&word, values, sizeof word, cudaMemcpyDeviceToHost));
    tell("fill", cudaMemset(values, 0, 16));
    tell("memory", cudaMalloc(&values, 1 << 20));
    tell("stream", cudaStreamCreate(&another));
    std::fflush(stdout);
    _exit(0);
}

int main(int argc, char** argv) {
    if (argc == 2 && std::strcmp(argv[1], "damage") == 0) return damage();
    int* values = nullptr;
    CHECK(cudaMalloc(&values, 1 << 20));
    works(values);
    launches(values);
    calls(values);
    memory_and_devices();
    questions();
    reset(values);
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", argv[0], "damage", nullptr);
        _exit(6);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child) return 4;
    std::printf("child: exited %d with %d\ndone\n", WIFEXITED(status), WEXITSTATUS(status));
}
