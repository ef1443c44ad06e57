// C++ of several processes and threads: CUDA IPC, children forked before and after CUDA is used, per-thread streams.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "checked.hpp"

constexpr int count = 1 << 19;  // whole 2 MiB: what lies beside small memory would be shared, too
constexpr size_t bytes = count * sizeof(int);

__global__ void number(int* values, int from) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    values[i] = from + i;
}

__global__ void change(int* values, int factor, int more) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    values[i] = values[i] * factor + more;
}

// What the parent gives, and what it gets back.
struct Given {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t ready;
};

template <class Word>
void tell(int pipe, const Word& word) {
    if (write(pipe, &word, sizeof word) != static_cast<ssize_t>(sizeof word)) std::exit(2);
}

template <class Word>
Word hear(int pipe) {
    Word word;
    if (read(pipe, &word, sizeof word) != static_cast<ssize_t>(sizeof word)) std::exit(3);
    return word;
}

cudaEvent_t shared_event() {
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    return event;
}

// How a child ended.
void await(const char* what, pid_t child) {
    int status = 0;
    if (waitpid(child, &status, 0) != child) std::exit(4);
    std::printf("%s: exited %d with %d\n", what, WIFEXITED(status), WEXITSTATUS(status));
}

// The process that the program starts of itself: works on the parent's memory when the parent's event says so.
int worker(int in, int out) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const auto given = hear<Given>(in);
    int* values = nullptr;
    cudaEvent_t ready;
    CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&values), given.memory, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenEventHandle(&ready, given.ready));
    CHECK(cudaStreamWaitEvent(stream, ready));
    for (int turn = 0; turn < 50; ++turn) change<<<count / 256, 256, 0, stream>>>(values, 1, 2);
    change<<<count / 256, 256, 0, stream>>>(values, 3, 0);
    const cudaEvent_t changed = shared_event();
    CHECK(cudaEventRecord(changed, stream));
    cudaIpcEventHandle_t handle;
    CHECK(cudaIpcGetEventHandle(&handle, changed));
    tell(out, handle);
    int last = 0;
    hear<char>(in);  // the parent has gone on
    CHECK(cudaMemcpyAsync(&last, values + count - 1, sizeof last, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("worker: %d\n", last);
    CHECK(cudaIpcCloseMemHandle(values));
    CHECK(cudaEventDestroy(ready));
    CHECK(cudaEventDestroy(changed));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}

// How many are not as they should be, after work of one's own.
int alone(int seed) {
    int* values = nullptr;
    std::vector<int> host(count);
    CHECK(cudaMalloc(&values, bytes));
    number<<<count / 256, 256>>>(values, seed);
    change<<<count / 256, 256>>>(values, 2, 1);
    CHECK(cudaMemcpy(host.data(), values, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(values));
    int wrong = 0;
    for (int i = 0; i < count; ++i) wrong += host[static_cast<size_t>(i)] != 2 * (seed + i) + 1;
    return wrong;
}

// Each thread's own stream has only what the thread put there; an event ties one to another.
int threads() {
    constexpr int several = 6;
    std::array<int, several> wrong{};
    std::vector<std::thread> running;
    int* values = nullptr;
    cudaEvent_t filled;
    CHECK(cudaMalloc(&values, several * bytes));
    CHECK(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
    for (int part = 0; part < several; ++part)
        number<<<count / 256, 256, 0, cudaStreamPerThread>>>(values + part * count, part);
    CHECK(cudaEventRecord(filled, cudaStreamPerThread));
    for (int part = 0; part < several; ++part)
        running.emplace_back([=, &wrong] {
            int *own = values + part * count, *host = nullptr;
            CHECK(cudaMallocHost(&host, bytes));
            CHECK(cudaStreamWaitEvent(cudaStreamPerThread, filled));
            for (int turn = 0; turn < 20; ++turn)
                change<<<count / 256, 256, 0, cudaStreamPerThread>>>(own, 1, part);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpyAsync(host, own, bytes, cudaMemcpyDeviceToHost, cudaStreamPerThread));
            CHECK(cudaStreamSynchronize(cudaStreamPerThread));
            for (int i = 0; i < count; ++i) wrong[static_cast<size_t>(part)] += host[i] != 21 * part + i;
            CHECK(cudaFreeHost(host));
        });
    for (auto& each : running) each.join();
    CHECK(cudaFree(values));
    CHECK(cudaEventDestroy(filled));
    int all = 0;
    for (const int each : wrong) all += each;
    return all;
}

int main(int argc, char** argv) {
    if (argc == 4 && std::strcmp(argv[1], "worker") == 0) return worker(std::atoi(argv[2]), std::atoi(argv[3]));
    // Nothing of CUDA was called yet, so a child may use it.
    const pid_t early = fork();
    if (early == 0) _exit(alone(5) == 0 ? 7 : 1);
    await("forked before", early);

    int there[2], back[2];
    if (pipe(there) != 0 || pipe(back) != 0) return 5;
    const pid_t child = fork();
    if (child == 0) {
        close(there[1]);
        close(back[0]);
        const std::string in = std::to_string(there[0]), out = std::to_string(back[1]);
        execl("/proc/self/exe", argv[0], "worker", in.c_str(), out.c_str(), nullptr);
        _exit(6);
    }
    close(there[0]);
    close(back[1]);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int* values = nullptr;
    CHECK(cudaMalloc(&values, bytes));
    const cudaEvent_t ready = shared_event();
    number<<<count / 256, 256, 0, stream>>>(values, 0);
    for (int turn = 0; turn < 50; ++turn) change<<<count / 256, 256, 0, stream>>>(values, 1, 1);
    CHECK(cudaEventRecord(ready, stream));
    Given given{};
    CHECK(cudaIpcGetMemHandle(&given.memory, values));
    CHECK(cudaIpcGetEventHandle(&given.ready, ready));
    tell(there[1], given);
    cudaEvent_t changed;
    CHECK(cudaIpcOpenEventHandle(&changed, hear<cudaIpcEventHandle_t>(back[0])));
    CHECK(cudaStreamWaitEvent(stream, changed));
    change<<<count / 256, 256, 0, stream>>>(values, 1, 7);
    std::vector<int> host(count);
    CHECK(cudaMemcpyAsync(host.data(), values, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    int wrong = 0;
    for (int i = 0; i < count; ++i) wrong += host[static_cast<size_t>(i)] != (i + 50 + 100) * 3 + 7;
    std::printf("shared: wrong %d, %d\n", wrong, host.back());
    CHECK(cudaEventDestroy(changed));
    std::fflush(stdout);
    tell(there[1], 'x');
    await("worker", child);

    // Children who use nothing of CUDA: neither their end nor what they run does the parent harm.
    std::fflush(stdout);
    for (int turn = 0; turn < 3; ++turn) {
        change<<<count / 256, 256, 0, stream>>>(values, 1, 1);
        const pid_t late = fork();
        if (late == 0 && turn == 0) _exit(8);
        if (late == 0 && turn == 1) std::exit(9);
        if (late == 0) {
            execl("/bin/sh", "sh", "-c", "exit 10", nullptr);
            _exit(6);
        }
        await("forked after", late);
        std::fflush(stdout);
    }
    CHECK(cudaMemcpyAsync(host.data(), values, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("afterwards: %d %d, wrong %d\n", host.front(), host.back(), alone(11));
    std::printf("threads: wrong %d\n", threads());
    CHECK(cudaEventDestroy(ready));
    CHECK(cudaFree(values));
    CHECK(cudaStreamDestroy(stream));
    std::puts("done");
}
