// C++ whose kernels launch kernels: forgotten ones, tails, streams, events (the host, where device code is not linked).
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#include "checked.hpp"

// What launches is written once. It runs in a kernel, or, where there is no device runtime, on the host in one stream.
#ifdef __CUDACC_RDC__
#define LAUNCHER __device__
#define FORGET cudaStreamFireAndForget
#define TAIL cudaStreamTailLaunch
__device__ int failed;
#define NOTE(call) atomicMax(&failed, static_cast<int>(call))
#define LAUNCHED NOTE(cudaGetLastError())
#else
#define LAUNCHER
#define FORGET 0
#define TAIL 0
#define NOTE(call) CHECK(call)
#define LAUNCHED CHECK(cudaGetLastError())
#endif

constexpr int side = 512, least = 16;  // of squares
constexpr int across = 230, down = 270, radius = 200;

__host__ __device__ bool within(int x, int y) {
    return (x - across) * (x - across) + (y - down) * (y - down) <= radius * radius;
}

__global__ void fill(unsigned char* picture, int x, int y, int edge) {
    for (int i = threadIdx.x; i < edge * edge; i += blockDim.x) picture[(y + i / edge) * side + x + i % edge] += 1;
}

__global__ void test(unsigned char* picture, int x, int y, int edge) {
    for (int i = threadIdx.x; i < edge * edge; i += blockDim.x)
        if (within(x + i % edge, y + i / edge)) picture[(y + i / edge) * side + x + i % edge] += 1;
}

__global__ void sum(const unsigned char* picture, int* area) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (picture[i] == 1) atomicAdd(area, 1);
}

// A disc is drawn by squares: those inside it at once, those on its edge in quarters, the smallest by their pixels.
LAUNCHER void draw(unsigned char* picture, int x, int y, int edge);

#ifdef __CUDACC_RDC__
__global__ void quarters(unsigned char* picture, int x, int y, int edge) {
    draw(picture, x + static_cast<int>(threadIdx.x % 2) * edge, y + static_cast<int>(threadIdx.x / 2) * edge, edge);
}
#endif

LAUNCHER void draw(unsigned char* picture, int x, int y, int edge) {
    const int last = edge - 1;
    if (!within(min(max(across, x), x + last), min(max(down, y), y + last))) return;  // the pixel nearest to the middle
    const int corners = within(x, y) + within(x + last, y) + within(x, y + last) + within(x + last, y + last);
    if (corners == 4) {
        fill<<<1, 256, 0, FORGET>>>(picture, x, y, edge);
    } else if (edge == least) {
        test<<<1, 64, 0, FORGET>>>(picture, x, y, edge);
    } else {
#ifdef __CUDACC_RDC__
        quarters<<<1, 4, 0, FORGET>>>(picture, x, y, edge / 2);
#else
        for (int i = 0; i < 4; ++i) draw(picture, x + i % 2 * (edge / 2), y + i / 2 * (edge / 2), edge / 2);
#endif
    }
    LAUNCHED;
}

LAUNCHER void disc(unsigned char* picture, int* area) {
    draw(picture, 0, 0, side);
    sum<<<side * side / 256, 256, 0, TAIL>>>(picture, area);  // of all that the launches launched, too
    LAUNCHED;
}

constexpr int ring = 4096;

// Each turn needs the whole of the one before: the kernel launches itself as its own tail.
__global__ void blur(const int* from, int* to, int turns);

LAUNCHER void again(const int* from, int* to, int turns) {
    if (turns == 0) return;
    blur<<<ring / 128, 128, 0, TAIL>>>(from, to, turns);
    LAUNCHED;
}

__global__ void blur(const int* from, int* to, int turns) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = (from[(i + ring - 1) % ring] + from[i] + 2 * from[(i + 1) % ring]) % 10007;
#ifdef __CUDACC_RDC__
    if (i == 0) again(to, const_cast<int*>(from), turns - 1);
#endif
}

__global__ void times(int* value, int factor) { *value *= factor; }
__global__ void plus(int* value, int more) { *value += more; }

// The order within a stream, and that of two which an event joins: ((5 + 1) * 7 + 2) * 3.
LAUNCHER void ordered(int* value) {
    cudaStream_t one, other;
    cudaEvent_t event;
    NOTE(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    NOTE(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    NOTE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    NOTE(cudaMemsetAsync(value, 0, sizeof *value, one));
    plus<<<1, 1, 0, one>>>(value, 5);
    plus<<<1, 1, 0, one>>>(value, 1);
    times<<<1, 1, 0, one>>>(value, 7);
    NOTE(cudaEventRecord(event, one));
    NOTE(cudaStreamWaitEvent(other, event, 0));
    plus<<<1, 1, 0, other>>>(value, 2);
    NOTE(cudaMemcpyAsync(value + 1, value, sizeof *value, cudaMemcpyDeviceToDevice, other));
    times<<<1, 1, 0, other>>>(value, 3);
    LAUNCHED;
    NOTE(cudaEventDestroy(event));
    NOTE(cudaStreamDestroy(one));
    NOTE(cudaStreamDestroy(other));
}

#ifdef __CUDACC_RDC__
__global__ void start_disc(unsigned char* picture, int* area) { disc(picture, area); }
__global__ void start_again(const int* from, int* to, int turns) { again(from, to, turns); }
__global__ void start_ordered(int* value) { ordered(value); }
#define START(what, ...) start_##what<<<1, 1>>>(__VA_ARGS__)
#else
#define START(what, ...) what(__VA_ARGS__)
#endif

int main() {
    unsigned char* picture = nullptr;
    int* numbers = nullptr;
    CHECK(cudaMalloc(&picture, side * side));
    CHECK(cudaMalloc(&numbers, 2 * ring * sizeof(int)));

    CHECK(cudaMemset(picture, 0, side * side));
    CHECK(cudaMemset(numbers, 0, sizeof(int)));
    START(disc, picture, numbers);
    CHECK(cudaDeviceSynchronize());
    int area = 0, expected = 0;
    CHECK(cudaMemcpy(&area, numbers, sizeof area, cudaMemcpyDeviceToHost));
    for (int i = 0; i < side * side; ++i) expected += within(i % side, i / side);
    std::printf("disc: %d, expected %d\n", area, expected);

    constexpr int turns = 15;
    std::vector<int> now(ring), next(ring);
    for (int i = 0; i < ring; ++i) now[i] = i * 37 % 1000;
    CHECK(cudaMemcpy(numbers, now.data(), ring * sizeof(int), cudaMemcpyHostToDevice));
#ifdef __CUDACC_RDC__
    START(again, numbers, numbers + ring, turns);
#else
    for (int turn = 0; turn < turns; ++turn)
        START(again, numbers + turn % 2 * ring, numbers + (turn + 1) % 2 * ring, turns - turn);
#endif
    for (int turn = 0; turn < turns; ++turn, now.swap(next))
        for (int i = 0; i < ring; ++i)
            next[i] = (now[(i + ring - 1) % ring] + now[i] + 2 * now[(i + 1) % ring]) % 10007;
    CHECK(cudaMemcpy(next.data(), numbers + turns % 2 * ring, ring * sizeof(int), cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < ring; ++i) wrong += now[i] != next[i];
    std::printf("ring: %d wrong, %d %d\n", wrong, next[0], next[ring - 1]);

    int values[2] = {};
    START(ordered, numbers);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(values, numbers, sizeof values, cudaMemcpyDeviceToHost));
    std::printf("ordered: %d %d, expected 132 44\n", values[0], values[1]);

#ifdef __CUDACC_RDC__
    int first = 0;
    CHECK(cudaMemcpyFromSymbol(&first, failed, sizeof first));
    CHECK(static_cast<cudaError_t>(first));
#endif
    CHECK(cudaFree(picture));
    CHECK(cudaFree(numbers));
    std::puts("done");
}
