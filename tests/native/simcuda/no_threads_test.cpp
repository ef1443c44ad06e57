// A process that may have no more threads, as in a container: what the driver was asked for is done all the
// same.
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

std::atomic<int> left{1000};  // threads

void expect(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}
#define CHECK(condition) expect(condition, #condition)

constexpr const char* text = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry long(.param .u64 a) {
  .reg .b64 %rd1; .reg .b32 %r1; .reg .pred %p;
  ld.param.u64 %rd1, [a]; mov.u32 %r1, 0;
L: add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 20000; @%p bra L;
  red.global.add.u32 [%rd1], 1; ret; }
)";

}  // namespace

extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread,
                                                             const pthread_attr_t* attributes,
                                                             void* (*start)(void*), void* argument) noexcept {
    static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
    return left.fetch_sub(1) > 0 ? real(thread, attributes, start, argument) : EAGAIN;
}

int main() {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CHECK(cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS);
    // Some of the device's own threads are to be had, and the others later.
    left = 1;
    CHECK(cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS);
    left = 1000;
    CHECK(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
    CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    CHECK(cuModuleLoadData(&module, text) == CUDA_SUCCESS);
    CHECK(cuModuleGetFunction(&kernel, module, "long") == CUDA_SUCCESS);
    constexpr size_t bytes = size_t{64} << 20;
    CUdeviceptr count = 0, large = 0;
    CHECK(cuMemAlloc(&count, 4) == CUDA_SUCCESS && cuMemAlloc(&large, bytes) == CUDA_SUCCESS);
    CHECK(cuMemsetD32(count, 0, 1) == CUDA_SUCCESS);
    left = 0;
    std::vector<CUstream> streams(4);
    for (CUstream& stream : streams) {
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        void* parameters[] = {&count};
        CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr) == CUDA_SUCCESS);
        CHECK(cuMemsetD8Async(large, 7, bytes, stream) == CUDA_SUCCESS);
    }
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
    unsigned launched = 0;
    std::vector<unsigned char> filled(bytes);
    CHECK(cuMemcpyDtoH(&launched, count, 4) == CUDA_SUCCESS && launched == 4 * 32);
    CHECK(cuMemcpyDtoH(filled.data(), large, bytes) == CUDA_SUCCESS && filled.back() == 7);
    std::_Exit(0);
}
