// Operations on libcuda itself, loaded by name, and on nothing.
#include <cuda.h>

#include "libcuda.hpp"
#include "play.hpp"

namespace fikit::bench {
namespace {

#define FIKIT_BENCH_FUNCTIONS(X)   \
    X(cuInit)                      \
    X(cuDeviceGet)                 \
    X(cuDevicePrimaryCtxRetain)    \
    X(cuCtxSetCurrent)             \
    X(cuCtxGetStreamPriorityRange) \
    X(cuStreamCreateWithPriority)  \
    X(cuStreamSynchronize)         \
    X(cuModuleLoadData)            \
    X(cuModuleGetFunction)         \
    X(cuFuncSetAttribute)          \
    X(cuLaunchKernel)              \
    X(cuMemAlloc)                  \
    X(cuMemHostAlloc)              \
    X(cuMemsetD8Async)             \
    X(cuMemcpyDtoDAsync)           \
    X(cuMemcpyHtoDAsync)           \
    X(cuMemcpyDtoHAsync)

class OnDriver final : public Gpu {
  public:
    OnDriver(const std::string& path, int ordinal, bool urgent) {
        find_libcuda(path);
        CUdevice device = 0;
        int least = 0, greatest = 0;
        check("cuInit", cuInit_(0));
        check("cuDeviceGet", cuDeviceGet_(&device, ordinal));
        check("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain_(&context_, device));
        check("cuCtxSetCurrent", cuCtxSetCurrent_(context_));
        check("cuCtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange_(&least, &greatest));
        check("cuStreamCreateWithPriority",
              cuStreamCreateWithPriority_(&stream_, CU_STREAM_NON_BLOCKING, urgent ? greatest : least));
    }

    void load(const std::string& image) override {
        check("cuModuleLoadData", cuModuleLoadData_(&module_, image.c_str()));
    }
    uint32_t function(const std::string& name, int shared_bytes) override {
        CUfunction found = nullptr;
        check("cuModuleGetFunction", cuModuleGetFunction_(&found, module_, name.c_str()));
        check("cuFuncSetAttribute",
              cuFuncSetAttribute_(found, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes));
        functions_.push_back(found);
        return static_cast<uint32_t>(functions_.size() - 1);
    }
    uint64_t allocate(uint64_t bytes) override {
        CUdeviceptr address = 0;
        check("cuMemAlloc", cuMemAlloc_(&address, bytes));
        return address;
    }
    void* allocate_pinned(uint64_t bytes) override {
        void* memory = nullptr;
        check("cuMemHostAlloc", cuMemHostAlloc_(&memory, bytes, 0));
        return memory;
    }
    void enqueue(const Operation& what) override {
        // Whoever made it is not always who plays: a context is current in one thread.
        if (thread_local bool current = false; !current) {
            check("cuCtxSetCurrent", cuCtxSetCurrent_(context_));
            current = true;
        }
        switch (what.kind) {
            case Operation::Kind::launch:
                return launch(what);
            case Operation::Kind::fill:
                return check("cuMemsetD8Async", cuMemsetD8Async_(what.to, 0, what.bytes, stream_));
            case Operation::Kind::on_device:
                return check("cuMemcpyDtoDAsync",
                             cuMemcpyDtoDAsync_(what.to, what.from, what.bytes, stream_));
            case Operation::Kind::to_device:
                return check("cuMemcpyHtoDAsync",
                             cuMemcpyHtoDAsync_(what.to, reinterpret_cast<const void*>(what.from), what.bytes,
                                                stream_));
            case Operation::Kind::to_host:
                return check("cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_(reinterpret_cast<void*>(what.to),
                                                                     what.from, what.bytes, stream_));
        }
    }
    void synchronize() override { check("cuStreamSynchronize", cuStreamSynchronize_(stream_)); }

  private:
    void launch(const Operation& what) {
        void* parameters[16];
        for (size_t i = 0; i < what.parameters.size() && i < std::size(parameters); ++i)
            parameters[i] = const_cast<uint64_t*>(&what.parameters[i]);
        check("cuLaunchKernel", cuLaunchKernel_(functions_[what.function], what.grid[0], what.grid[1],
                                                what.grid[2], what.block[0], what.block[1], what.block[2],
                                                what.shared_bytes, stream_, parameters, nullptr));
    }
    static void check(const char* what, CUresult result) {
        if (result != CUDA_SUCCESS) give_up(what, static_cast<int>(result));
    }

    FIKIT_LIBCUDA(FIKIT_BENCH_FUNCTIONS)
    CUcontext context_ = nullptr;
    CUstream stream_ = nullptr;
    CUmodule module_ = nullptr;
    std::vector<CUfunction> functions_;
};

class Nowhere final : public Gpu {
  public:
    void load(const std::string&) override {}
    uint32_t function(const std::string&, int) override { return 0; }
    uint64_t allocate(uint64_t) override { return 0; }
    void* allocate_pinned(uint64_t) override { return nullptr; }
    void enqueue(const Operation&) override {}
    void synchronize() override {}
};

}  // namespace

std::unique_ptr<Gpu> on_driver(const std::string& library, int ordinal, bool urgent) {
    return std::make_unique<OnDriver>(library, ordinal, urgent);
}

std::unique_ptr<Gpu> nowhere() { return std::make_unique<Nowhere>(); }

}  // namespace fikit::bench
