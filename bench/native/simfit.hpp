// What the parts of bench_simfit share: libcuda by name, a clock, the kernels, the results.
#pragma once

#include <cuda.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace fikit::bench {

#define FIKIT_SIMFIT_FUNCTIONS(X)  \
    X(cuInit)                      \
    X(cuGetErrorName)              \
    X(cuDevicePrimaryCtxRetain)    \
    X(cuCtxSetCurrent)             \
    X(cuCtxSynchronize)            \
    X(cuCtxCreate_v4)              \
    X(cuCtxDestroy)                \
    X(cuModuleLoadData)            \
    X(cuModuleGetFunction)         \
    X(cuFuncSetAttribute)          \
    X(cuLaunchKernel)              \
    X(cuStreamCreateWithPriority)  \
    X(cuStreamDestroy)             \
    X(cuStreamSynchronize)         \
    X(cuStreamQuery)               \
    X(cuStreamWaitEvent)           \
    X(cuStreamWriteValue32)        \
    X(cuLaunchHostFunc)            \
    X(cuEventCreate)               \
    X(cuEventRecord)               \
    X(cuEventQuery)                \
    X(cuEventElapsedTime)          \
    X(cuEventDestroy)              \
    X(cuMemAlloc)                  \
    X(cuMemFree)                   \
    X(cuMemHostAlloc)              \
    X(cuMemFreeHost)               \
    X(cuMemHostRegister)           \
    X(cuMemHostUnregister)         \
    X(cuMemcpyHtoDAsync)           \
    X(cuMemcpyDtoHAsync)           \
    X(cuMemcpyDtoDAsync)           \
    X(cuMemcpyHtoD)                \
    X(cuMemcpyDtoH)                \
    X(cuMemAddressReserve)         \
    X(cuMemAddressFree)            \
    X(cuMemCreate)                 \
    X(cuMemRelease)                \
    X(cuMemMap)                    \
    X(cuMemUnmap)                  \
    X(cuMemSetAccess)              \
    X(cuDeviceGetDevResource)      \
    X(cuDevSmResourceSplitByCount) \
    X(cuDevResourceGenerateDesc)   \
    X(cuGreenCtxCreate)            \
    X(cuGreenCtxStreamCreate)      \
    X(cuGreenCtxDestroy)           \
    X(cuStreamBeginCapture)        \
    X(cuStreamEndCapture)          \
    X(cuGraphInstantiate)          \
    X(cuGraphLaunch)

#define FIKIT_SIMFIT_TEXT_OF(name) #name
#define FIKIT_SIMFIT_TEXT(name) FIKIT_SIMFIT_TEXT_OF(name)

// libcuda by name, so that one program runs on either.
struct Cuda {
#define FIKIT_SIMFIT_MEMBER(name) decltype(&::name) call_##name = nullptr;
    FIKIT_SIMFIT_FUNCTIONS(FIKIT_SIMFIT_MEMBER)
#undef FIKIT_SIMFIT_MEMBER
    std::uint64_t (*simulated_now)() = nullptr;
    void (*simulated_host_time)(std::uint64_t) = nullptr;
};
inline Cuda cuda;

[[noreturn]] inline void give_up(const char* what, const char* why) {
    std::fprintf(stderr, "bench_simfit: %s: %s\n", what, why);
    std::exit(1);
}

inline void check(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    const char* name = nullptr;
    cuda.call_cuGetErrorName(result, &name);
    give_up(what, name != nullptr ? name : "unknown");
}
#define RUN(name, ...) check(cuda.call_##name(__VA_ARGS__), #name)

inline double now() {  // microseconds
    if (cuda.simulated_now != nullptr) return static_cast<double>(cuda.simulated_now()) / 1000;
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// The host has something else to do for so long. It spins: a sleep would end when the machine likes.
inline void work(double microseconds) {
    if (cuda.simulated_host_time != nullptr) {
        cuda.simulated_host_time(static_cast<std::uint64_t>(microseconds * 1000));
        return;
    }
    for (const double end = now() + microseconds; now() < end;) __builtin_ia32_pause();
}

inline double percentile(std::vector<double> values, double share) {
    std::sort(values.begin(), values.end());
    return values[std::min(values.size() - 1,
                           static_cast<std::size_t>(static_cast<double>(values.size()) * share))];
}
inline double median(std::vector<double> values) { return percentile(std::move(values), 0.5); }

inline constexpr const char* kernels = R"(.version 7.8
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry spin(.param .u64 a)
{
  .reg .b64 %rd<6>; .reg .pred %p1;
  ld.param.u64 %rd1, [a];
  mov.u64 %rd2, %globaltimer;
L:
  mov.u64 %rd3, %globaltimer;
  sub.s64 %rd4, %rd3, %rd2;
  setp.lt.s64 %p1, %rd4, %rd1;
  @%p1 bra L;
  ret;
}
)";

class Results {
  public:
    void add(const std::string& name, double value) { values_.emplace_back(name, value); }
    void print() {
        std::printf("{");
        for (std::size_t index = 0; index < values_.size(); ++index) {
            std::printf("%s\"%s\": %.6g", index > 0 ? ", " : "", values_[index].first.c_str(),
                        values_[index].second);
        }
        std::printf("}\n");
        std::fflush(stdout);
        values_.clear();
    }

  private:
    std::vector<std::pair<std::string, double>> values_;
};

// One context with two streams, and the kernels.
struct Bench {
    Results results;
    CUcontext context = nullptr;
    CUfunction nothing = nullptr, spin = nullptr;
    CUstream high = nullptr, low = nullptr;

    Bench() {
        RUN(cuInit, 0);
        RUN(cuDevicePrimaryCtxRetain, &context, 0);
        RUN(cuCtxSetCurrent, context);
        load(nothing, spin);
        RUN(cuStreamCreateWithPriority, &high, CU_STREAM_NON_BLOCKING, -5);
        RUN(cuStreamCreateWithPriority, &low, CU_STREAM_NON_BLOCKING, 0);
        for (int index = 0; index < 1000; ++index) launch(nothing, high, 1, 32, 0);
        RUN(cuStreamSynchronize, high);
    }
    static void load(CUfunction& first, CUfunction& second) {
        CUmodule module = nullptr;
        RUN(cuModuleLoadData, &module, kernels);
        RUN(cuModuleGetFunction, &first, module, "nothing");
        RUN(cuModuleGetFunction, &second, module, "spin");
    }
    static void launch(CUfunction function, CUstream stream, unsigned grid, unsigned block,
                       double microseconds) {
        auto nanoseconds = static_cast<std::uint64_t>(microseconds * 1000);
        void* parameters[] = {&nanoseconds};
        RUN(cuLaunchKernel, function, grid, 1, 1, block, 1, 1, 0, stream, parameters, nullptr);
    }
    double round_trip(unsigned grid, unsigned block) {
        const double start = now();
        launch(nothing, high, grid, block, 0);
        RUN(cuStreamSynchronize, high);
        return now() - start;
    }
    // Microseconds of each of `count` calls.
    template <typename Body>
    double each(int count, Body body) {
        const double start = now();
        for (int index = 0; index < count; ++index) body(index);
        return (now() - start) / count;
    }
};

// Parts that have a file of their own.
void copies(Bench& bench);
void memory(Bench& bench);

}  // namespace fikit::bench
