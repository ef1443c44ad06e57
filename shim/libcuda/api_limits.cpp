// Limits of a context, and what of it the device does not heed. The executor's context is shared, so a
// program's wishes are remembered for it alone.
#include "entry.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

// What driver 580 sets for an H200; 0: it has none such.
uint64_t limits[CU_LIMIT_SHMEM_SIZE] = {
    1024,     // stack of a thread
    7340032,  // printf
    8388608,  // heap
    0,        // depth of synchronisation on the device
    2048,     // pending launches of the device
    64,       // fetch granularity of L2
    0,        // persisting L2
};

CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;

}  // namespace

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (limit < 0 || limit >= CU_LIMIT_SHMEM_SIZE) return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = load_relaxed(limits[limit]);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    if (limit < 0 || limit >= CU_LIMIT_SHMEM_SIZE) return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    store_relaxed(limits[limit], uint64_t{value});
    return CUDA_SUCCESS;
}

// Banks of shared memory have one size since Maxwell.
CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *config = load_relaxed(shared_config);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    if (config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) return CUDA_ERROR_INVALID_VALUE;
    store_relaxed(shared_config, config);
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction, CUsharedconfig config) {
    return config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// No profiler is attached to the process that runs the kernels.
CUresult cuProfilerStart() { return CUDA_SUCCESS; }
CUresult cuProfilerStop() { return CUDA_SUCCESS; }

}  // namespace fikit::shim
