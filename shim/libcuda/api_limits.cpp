// Limits of a context. The executor's context is shared, so a program's wishes are remembered for it alone.
#include "entry.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

// What driver 580 sets for an H200; 0: it has none such.
uint64_t limits[CU_LIMIT_MAX] = {
    1024,     // stack of a thread
    7340032,  // printf
    8388608,  // heap
    0,        // depth of synchronisation on the device
    2048,     // pending launches of the device
    128,      // fetch granularity of L2
    0,        // persisting L2
};

}  // namespace

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = load_relaxed(limits[limit]);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    store_relaxed(limits[limit], uint64_t{value});
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
