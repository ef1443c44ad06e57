// Many host threads against the whole library: for the thread and address sanitizers.
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

std::atomic<int> failures{0};

void expect(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    ++failures;
    std::fprintf(stderr, "%s: %d\n", what, static_cast<int>(result));
}
#define RUN(call) expect(call, #call)

constexpr const char* text = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry count(.param .u64 a) { .reg .b64 %rd1; ld.param.u64 %rd1, [a]; red.global.add.u32 [%rd1], 1; ret; }
.visible .entry long(.param .u64 a) {
  .reg .b64 %rd1; .reg .b32 %r<3>; .reg .pred %p;
  ld.param.u64 %rd1, [a]; mov.u32 %r1, 0; mov.u32 %r2, %tid.x;
L: mad.lo.u32 %r2, %r2, 5, 1; add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 4000; @%p bra L;
  red.global.add.u32 [%rd1], 1; ret; }
)";

void note(void* data) { static_cast<std::atomic<int>*>(data)->fetch_add(1); }

struct Kernels {
    CUfunction count, takes_long;
};

void work(CUcontext context, Kernels kernels, CUdeviceptr place, std::atomic<int>* called) {
    RUN(cuCtxSetCurrent(context));
    CUstream stream = nullptr;
    CUevent event = nullptr;
    RUN(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    RUN(cuEventCreate(&event, CU_EVENT_DEFAULT));
    void* pinned = nullptr;
    RUN(cuMemHostAlloc(&pinned, 4096, 0));
    auto* flag = static_cast<std::uint32_t*>(pinned);
    __atomic_store_n(flag, 0U, __ATOMIC_SEQ_CST);
    const auto address = reinterpret_cast<CUdeviceptr>(pinned);
    void* parameters[] = {&place};
    for (std::uint32_t round = 1; round <= 20; ++round) {
        const CUfunction kernel = round % 5 == 0 ? kernels.takes_long : kernels.count;
        RUN(cuLaunchKernel(kernel, 3, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
        RUN(cuStreamWaitValue32(stream, address + 8, round, CU_STREAM_WAIT_VALUE_GEQ));
        RUN(cuLaunchHostFunc(stream, note, called));
        RUN(cuStreamWriteValue32(stream, address, round, 0));
        RUN(cuEventRecord(event, stream));
        __atomic_store_n(flag + 2, round, __ATOMIC_SEQ_CST);
        if (round % 2 == 0) RUN(cuEventSynchronize(event));
        CUdeviceptr scratch = 0;
        RUN(cuMemAlloc(&scratch, 10000));
        RUN(cuMemsetD32Async(scratch, round, 2500, stream));
        RUN(cuMemcpyDtoHAsync(flag + 100, scratch, 400, stream));
        RUN(cuStreamSynchronize(stream));
        if (__atomic_load_n(flag, __ATOMIC_SEQ_CST) != round || flag[100] != round) ++failures;
        RUN(cuMemFree(scratch));
    }
    RUN(cuEventDestroy(event));
    RUN(cuStreamDestroy(stream));
    RUN(cuMemFreeHost(pinned));
}

// A word that a stream wrote tells that the events before it have completed.
void events_before_a_word() {
    CUstream stream = nullptr;
    CUevent before = nullptr, after = nullptr;
    void* pinned = nullptr;
    CUdeviceptr address = 0;
    RUN(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    RUN(cuEventCreate(&before, CU_EVENT_DEFAULT));
    RUN(cuEventCreate(&after, CU_EVENT_DEFAULT));
    RUN(cuMemHostAlloc(&pinned, 4096, 0));
    RUN(cuMemHostGetDevicePointer(&address, pinned, 0));
    auto* const word = static_cast<std::uint32_t*>(pinned);
    __atomic_store_n(word, 0u, __ATOMIC_SEQ_CST);
    for (std::uint32_t round = 1; round <= 200; ++round) {
        RUN(cuEventRecord(before, stream));
        RUN(cuEventRecord(after, stream));
        RUN(cuStreamWriteValue32(stream, address, round, 0));
        while (__atomic_load_n(word, __ATOMIC_SEQ_CST) != round) std::this_thread::yield();
        float milliseconds = 0;
        RUN(cuEventElapsedTime(&milliseconds, before, after));
    }
    RUN(cuEventDestroy(before));
    RUN(cuEventDestroy(after));
    RUN(cuStreamDestroy(stream));
    RUN(cuMemFreeHost(pinned));
}

}  // namespace

int main() {
    setenv("FIKIT_SIM_SCALE", "50", 0);  // an order of microseconds is seen on any machine
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    Kernels kernels{};
    CUdeviceptr place = 0;
    RUN(cuInit(0));
    RUN(cuDevicePrimaryCtxRetain(&context, 0));
    RUN(cuCtxSetCurrent(context));
    RUN(cuModuleLoadData(&module, text));
    RUN(cuModuleGetFunction(&kernels.count, module, "count"));
    RUN(cuModuleGetFunction(&kernels.takes_long, module, "long"));
    RUN(cuMemAlloc(&place, 4));
    RUN(cuMemsetD32(place, 0, 1));
    RUN(cuCtxSynchronize());
    events_before_a_word();
    std::atomic<int> called{0};
    std::vector<std::thread> threads;
    for (int index = 0; index < 4; ++index) threads.emplace_back(work, context, kernels, place, &called);
    for (std::thread& thread : threads) thread.join();
    std::uint32_t counted = 0;
    RUN(cuMemcpyDtoH(&counted, place, 4));
    if (counted != 4 * 20 * 96 || called != 80) ++failures;
    std::printf("counted %u, called %d, failures %d\n", counted, called.load(), failures.load());
    return failures == 0 ? 0 : 1;
}
