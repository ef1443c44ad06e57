// What an eager framework calls in each step, one function for each call, for callgrind
// (bench/instruction_counts.py): a plain program of the driver API that finds the shim like any other.
//
//   shim_calls COUNT
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "libcuda.hpp"

namespace {

[[noreturn]] void give_up(const char* what, int code) {
    fprintf(stderr, "%s: %d\n", what, code);
    exit(1);
}

#define FIKIT_SHIM_CALLS(X)       \
    X(cuInit)                     \
    X(cuDeviceGet)                \
    X(cuDevicePrimaryCtxRetain)   \
    X(cuDevicePrimaryCtxGetState) \
    X(cuCtxSetCurrent)            \
    X(cuCtxGetCurrent)            \
    X(cuCtxGetDevice)             \
    X(cuCtxSynchronize)           \
    X(cuStreamCreate)             \
    X(cuStreamSynchronize)        \
    X(cuStreamIsCapturing)        \
    X(cuStreamQuery)              \
    X(cuStreamWaitEvent)          \
    X(cuEventCreate)              \
    X(cuEventRecord)              \
    X(cuEventQuery)               \
    X(cuModuleLoadData)           \
    X(cuModuleGetFunction)        \
    X(cuFuncGetAttribute)         \
    X(cuLaunchKernel)             \
    X(cuLaunchKernelEx)           \
    X(cuMemAlloc)                 \
    X(cuMemHostAlloc)             \
    X(cuMemsetD8Async)            \
    X(cuMemcpyDtoDAsync)          \
    X(cuMemcpyHtoDAsync)          \
    X(cuPointerGetAttribute)

// The parameters of an elementwise kernel of PyTorch's are much like these: 4, 8 and 24 bytes.
constexpr char image[] = R"(
.version 7.8
.target sm_80
.address_size 64
.visible .entry eight(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,
                      .param .u64 e, .param .u64 f, .param .u32 g, .param .u32 h) { ret; }
.visible .entry structs(.param .u32 count, .param .align 1 .b8 operation[1], .param .align 8 .b8 data[24],
                        .param .align 4 .b8 sizes[416]) { ret; }
)";

struct Calls {
    FIKIT_LIBCUDA(FIKIT_SHIM_CALLS)

    CUdevice device = 0;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CUfunction eight = nullptr, structs = nullptr;
    CUdeviceptr memory = 0;
    void* pinned = nullptr;
    uint64_t values[64] = {};
    void* parameters[8] = {};
};

void check(int result) {
    if (result != CUDA_SUCCESS) give_up("a call", result);
}

}  // namespace

#define COUNTED(name, call)                                                         \
    extern "C" [[gnu::noinline]] void fikit_bench_##name(Calls& calls, int count) { \
        for (int number = 0; number < count; ++number) check(call);                 \
    }

COUNTED(launch,
        calls.cuLaunchKernel_(calls.eight, 4, 1, 1, 128, 1, 1, 0, calls.stream, calls.parameters, nullptr))
COUNTED(launch_default,
        calls.cuLaunchKernel_(calls.eight, 4, 1, 1, 128, 1, 1, 0, nullptr, calls.parameters, nullptr))
COUNTED(launch_structs,
        calls.cuLaunchKernel_(calls.structs, 4, 1, 1, 128, 1, 1, 0, nullptr, calls.parameters, nullptr))

extern "C" [[gnu::noinline]] void fikit_bench_launch_ex(Calls& calls, int count) {
    CUlaunchConfig config = {};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 128;
    config.blockDimY = config.blockDimZ = 1;
    for (int number = 0; number < count; ++number)
        check(calls.cuLaunchKernelEx_(&config, calls.eight, calls.parameters, nullptr));
}

extern "C" [[gnu::noinline]] void fikit_bench_context_state(Calls& calls, int count) {
    unsigned flags = 0;
    int active = 0;
    for (int number = 0; number < count; ++number)
        check(calls.cuDevicePrimaryCtxGetState_(calls.device, &flags, &active));
}
extern "C" [[gnu::noinline]] void fikit_bench_capturing(Calls& calls, int count) {
    CUstreamCaptureStatus status;
    for (int number = 0; number < count; ++number) check(calls.cuStreamIsCapturing_(nullptr, &status));
}
extern "C" [[gnu::noinline]] void fikit_bench_attribute(Calls& calls, int count) {
    int value = 0;
    for (int number = 0; number < count; ++number)
        check(calls.cuFuncGetAttribute_(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, calls.eight));
}
extern "C" [[gnu::noinline]] void fikit_bench_pointer_attribute(Calls& calls, int count) {
    unsigned kind = 0;
    for (int number = 0; number < count; ++number)
        check(calls.cuPointerGetAttribute_(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, calls.memory));
}

COUNTED(get_device, calls.cuCtxGetDevice_(&calls.device))
COUNTED(get_current, calls.cuCtxGetCurrent_(&calls.context))
COUNTED(event_record, calls.cuEventRecord_(calls.event, calls.stream))
COUNTED(event_query_done, calls.cuEventQuery_(calls.event))
COUNTED(wait_event_done, calls.cuStreamWaitEvent_(calls.stream, calls.event, 0))
COUNTED(stream_query_idle, calls.cuStreamQuery_(calls.stream))
COUNTED(stream_synchronize_idle, calls.cuStreamSynchronize_(calls.stream))
COUNTED(synchronize_idle, calls.cuCtxSynchronize_())
COUNTED(fill, calls.cuMemsetD8Async_(calls.memory, 0, 4096, nullptr))
COUNTED(copy_on_device, calls.cuMemcpyDtoDAsync_(calls.memory, calls.memory + 65536, 4096, nullptr))
COUNTED(copy_pinned, calls.cuMemcpyHtoDAsync_(calls.memory, calls.pinned, 4096, nullptr))
COUNTED(copy_pageable, calls.cuMemcpyHtoDAsync_(calls.memory, calls.values, 64, nullptr))

int main(int argument_count, char** arguments) {
    const int count = argument_count > 1 ? atoi(arguments[1]) : 100;
    static Calls calls;
    calls.find_libcuda("libcuda.so.1");
    check(calls.cuInit_(0));
    check(calls.cuDeviceGet_(&calls.device, 0));
    check(calls.cuDevicePrimaryCtxRetain_(&calls.context, calls.device));
    check(calls.cuCtxSetCurrent_(calls.context));
    check(calls.cuStreamCreate_(&calls.stream, CU_STREAM_NON_BLOCKING));
    check(calls.cuEventCreate_(&calls.event, CU_EVENT_DISABLE_TIMING));
    CUmodule module = nullptr;
    check(calls.cuModuleLoadData_(&module, image));
    check(calls.cuModuleGetFunction_(&calls.eight, module, "eight"));
    check(calls.cuModuleGetFunction_(&calls.structs, module, "structs"));
    check(calls.cuMemAlloc_(&calls.memory, 1 << 20));
    check(calls.cuMemHostAlloc_(&calls.pinned, 1 << 16, 0));
    for (void*& parameter : calls.parameters) parameter = calls.values;

    using Counted = void (*)(Calls&, int);
    constexpr Counted all[] = {fikit_bench_launch,
                               fikit_bench_launch_default,
                               fikit_bench_launch_structs,
                               fikit_bench_launch_ex,
                               fikit_bench_context_state,
                               fikit_bench_capturing,
                               fikit_bench_attribute,
                               fikit_bench_pointer_attribute,
                               fikit_bench_get_device,
                               fikit_bench_get_current,
                               fikit_bench_event_record,
                               fikit_bench_event_query_done,
                               fikit_bench_wait_event_done,
                               fikit_bench_stream_query_idle,
                               fikit_bench_stream_synchronize_idle,
                               fikit_bench_fill,
                               fikit_bench_copy_on_device,
                               fikit_bench_copy_pinned,
                               fikit_bench_copy_pageable,
                               fikit_bench_synchronize_idle};
    for (const Counted each : all) {
        each(calls, count);
        check(calls.cuCtxSynchronize_());
    }
}
