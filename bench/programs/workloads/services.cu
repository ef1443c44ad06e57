// Services as C++ programs are, on a CUDA runtime of their own: what one step of each does, for services.py.
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace {

using Clock = std::chrono::steady_clock;

void ok(cudaError_t result) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "%s\n", cudaGetErrorString(result));
    std::exit(1);
}

__global__ void work(float* values, int rounds) {
    float& value = values[blockIdx.x * blockDim.x + threadIdx.x];
    float x = value;
    for (int round = 0; round < rounds; ++round) x = x * 1.0001f + 0.5f;
    value = x;
}
__global__ void tell(volatile unsigned* word, unsigned value) {
    *word = value;
    __threadfence_system();
}

constexpr size_t input_bytes = 16 << 20;

struct Service {
    float* values = nullptr;
    unsigned *word = nullptr, *on_device = nullptr, *answer = nullptr;
    unsigned turn = 0;
    cudaStream_t stream = nullptr, others[2] = {};
    cudaEvent_t event = nullptr, ends[2] = {};
    void* inputs[2] = {};
    std::atomic<unsigned> called{0};
    std::mt19937 random{7};

    Service() {
        ok(cudaMalloc(&values, 1 << 24));
        ok(cudaMemset(values, 0, 1 << 24));
        ok(cudaHostAlloc(&word, 4096, cudaHostAllocMapped));
        *word = 0;
        ok(cudaHostGetDevicePointer(&on_device, word, 0));
        ok(cudaMallocHost(&answer, 4096));
        ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        for (int other = 0; other < 2; ++other) {
            ok(cudaStreamCreateWithFlags(&others[other], cudaStreamNonBlocking));
            ok(cudaEventCreateWithFlags(&ends[other], cudaEventDisableTiming));
        }
        ok(cudaMallocHost(&inputs[0], input_bytes));
        ok(cudaMalloc(&inputs[1], input_bytes));
    }
    void launch(int blocks, int rounds) { launch(stream, blocks, rounds); }
    void launch(cudaStream_t on, int blocks, int rounds) { work<<<blocks, 256, 0, on>>>(values, rounds); }
    void launch_group() {
        for (int kernel = 0; kernel < 8; ++kernel) launch(66, 2500);
    }
    void poll() {
        tell<<<1, 1, 0, stream>>>(on_device, ++turn);
        while (*static_cast<volatile unsigned*>(word) != turn) {
        }
    }
};

Service& service() {
    static Service made;
    return made;
}

void think(double microseconds) {
    const auto end = Clock::now() + std::chrono::nanoseconds(static_cast<long>(microseconds * 1000));
    while (Clock::now() < end) {
    }
}

void CUDART_CB note(void* called) { ++*static_cast<std::atomic<unsigned>*>(called); }

}  // namespace

extern "C" {

// Eight kernels and one that tells the host, which looks at memory and goes on at once; eight times.
void polling() {
    for (int group = 0; group < 8; ++group) {
        service().launch_group();
        service().poll();
    }
}

// The same with 20 to 150 us of the host's own after each answer.
void thinking() {
    std::uniform_real_distribution<double> pause(20, 150);
    for (int group = 0; group < 8; ++group) {
        service().launch_group();
        service().poll();
        think(pause(service().random));
    }
}

// One kernel at a time, 64 times: a control loop.
void controlling() {
    for (int loop = 0; loop < 64; ++loop) {
        service().launch(32, 1500);
        service().poll();
    }
}

// An event is asked for again and again.
void asking() {
    for (int group = 0; group < 8; ++group) {
        service().launch_group();
        ok(cudaEventRecord(service().event, service().stream));
        while (cudaEventQuery(service().event) == cudaErrorNotReady) {
        }
        think(40);
    }
}

// A host function tells of the end.
void called() {
    for (int group = 0; group < 8; ++group) {
        const unsigned before = service().called;
        service().launch_group();
        ok(cudaLaunchHostFunc(service().stream, note, &service().called));
        while (service().called == before) {
        }
        think(30);
    }
}

// 300 small kernels far ahead of the GPU, and four bytes that are waited for.
void decoding() {
    for (int kernel = 0; kernel < 300; ++kernel) service().launch(24 + kernel % 5 * 8, 600);
    ok(cudaMemcpyAsync(service().answer, service().values, 4, cudaMemcpyDeviceToHost, service().stream));
    ok(cudaStreamSynchronize(service().stream));
    think(60);
}

// Four layers, each on three streams that meet again behind it, and the host's 100 us; eight times.
void spreading() {
    Service& all = service();
    for (int layer = 0; layer < 32; ++layer) {
        ok(cudaEventRecord(all.event, all.stream));
        for (const cudaStream_t other : all.others) ok(cudaStreamWaitEvent(other, all.event, 0));
        for (int kernel = 0; kernel < 4; ++kernel) {
            all.launch(32, 2500);
            for (const cudaStream_t other : all.others) all.launch(other, 32, 2000);
        }
        for (int other = 0; other < 2; ++other) {
            ok(cudaEventRecord(all.ends[other], all.others[other]));
            ok(cudaStreamWaitEvent(all.stream, all.ends[other], 0));
        }
        if (layer % 4 < 3) continue;
        ok(cudaStreamSynchronize(all.stream));
        think(100);
    }
}

// 60 kernels while the next input, of 0.3 ms, is copied on a stream of its own, and 0.2 ms of the host's own.
void feeding() {
    Service& all = service();
    ok(cudaStreamWaitEvent(all.stream, all.ends[0], 0));
    ok(cudaMemcpyAsync(all.inputs[1], all.inputs[0], input_bytes, cudaMemcpyHostToDevice, all.others[0]));
    ok(cudaEventRecord(all.ends[0], all.others[0]));
    for (int kernel = 0; kernel < 60; ++kernel) all.launch(66, 2500);
    ok(cudaStreamSynchronize(all.stream));
    think(200);
}

// A kernel every 100 us, waited for after 40 of them.
void pacing() {
    auto at = Clock::now();
    for (int kernel = 0; kernel < 40; ++kernel) {
        service().launch(132, 2500);
        at += std::chrono::microseconds(100);
        while (Clock::now() < at) {
        }
    }
    ok(cudaStreamSynchronize(service().stream));
}

// 40 kernels of another size each time.
void batching() {
    const int blocks = 16 + static_cast<int>(service().random() % 200);
    for (int kernel = 0; kernel < 40; ++kernel)
        service().launch(blocks, 1000 + static_cast<int>(service().random() % 4) * 500);
    ok(cudaStreamSynchronize(service().stream));
    think(300);
}

}  // extern "C"
