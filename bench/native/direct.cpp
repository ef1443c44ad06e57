// libcuda, loaded by name, with the device's primary context and one stream.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "libcuda.hpp"
#include "target.hpp"

namespace fikit::bench {
namespace {

#define FIKIT_BENCH_FUNCTIONS(X) \
    X(cuInit)                    \
    X(cuDeviceGet)               \
    X(cuDevicePrimaryCtxRetain)  \
    X(cuCtxSetCurrent)           \
    X(cuStreamCreate)            \
    X(cuStreamSynchronize)       \
    X(cuModuleLoadData)          \
    X(cuModuleGetFunction)       \
    X(cuLaunchKernel)            \
    X(cuMemAlloc)                \
    X(cuMemFree)                 \
    X(cuMemHostAlloc)            \
    X(cuMemcpyHtoD)              \
    X(cuMemcpyDtoH)              \
    X(cuMemcpyHtoDAsync)         \
    X(cuMemcpyDtoHAsync)

class Direct final : public Target {
  public:
    Direct(const std::string& path, int ordinal) {
        find_libcuda(path);
        CUdevice device = 0;
        CUcontext context = nullptr;
        CUmodule module = nullptr;
        check("cuInit", cuInit_(0));
        check("cuDeviceGet", cuDeviceGet_(&device, ordinal));
        check("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain_(&context, device));
        check("cuCtxSetCurrent", cuCtxSetCurrent_(context));
        check("cuStreamCreate", cuStreamCreate_(&stream_, CU_STREAM_NON_BLOCKING));
        check("cuModuleLoadData", cuModuleLoadData_(&module, kernels().c_str()));
        for (const Kernel each : {empty, nanoseconds, cycles})
            check("cuModuleGetFunction", cuModuleGetFunction_(&functions_[each], module, kernel_names[each]));
    }

    void launch(Kernel kernel, uint64_t length) override {
        uint64_t second = 2;
        void* parameters[] = {&length, &second};
        check("cuLaunchKernel",
              cuLaunchKernel_(functions_[kernel], 1, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr));
    }
    void synchronize() override { check("cuStreamSynchronize", cuStreamSynchronize_(stream_)); }
    uint64_t allocate(uint64_t bytes) override {
        CUdeviceptr address = 0;
        check("cuMemAlloc", cuMemAlloc_(&address, bytes));
        return address;
    }
    void free(uint64_t address) override { check("cuMemFree", cuMemFree_(address)); }
    void* allocate_pinned(uint64_t bytes) override {
        void* memory = nullptr;
        check("cuMemHostAlloc", cuMemHostAlloc_(&memory, bytes, 0));
        return memory;
    }
    void copy_to_device(uint64_t to, const void* from, uint64_t bytes, bool pinned) override {
        check("cuMemcpyHtoD",
              pinned ? cuMemcpyHtoDAsync_(to, from, bytes, stream_) : cuMemcpyHtoD_(to, from, bytes));
    }
    void copy_to_host(void* to, uint64_t from, uint64_t bytes, bool pinned) override {
        check("cuMemcpyDtoH",
              pinned ? cuMemcpyDtoHAsync_(to, from, bytes, stream_) : cuMemcpyDtoH_(to, from, bytes));
    }

  private:
    static void check(const char* what, CUresult result) {
        if (result != CUDA_SUCCESS) give_up(what, static_cast<int>(result));
    }

    FIKIT_LIBCUDA(FIKIT_BENCH_FUNCTIONS)
    CUstream stream_ = nullptr;
    CUfunction functions_[std::size(kernel_names)] = {};
};

}  // namespace

std::unique_ptr<Target> direct(const std::string& library, int ordinal) {
    return std::make_unique<Direct>(library, ordinal);
}

void give_up(const std::string& what, int status) {
    std::fprintf(stderr, "bench: %s failed (%d)\n", what.c_str(), status);
    std::exit(1);
}

}  // namespace fikit::bench
