// Limits of a context, and what of it the device does not heed. The executor's context is shared, so a
// program's wishes are remembered for it alone; only a stack that is to be larger is so for all.
#include "capture.hpp"
#include "entry.hpp"
#include "objects.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

CUresult grow_stack(size_t bytes) {
    fikit_reply_stack_grow answer{};
    Reply reply = {&answer, sizeof answer, 0};
    const fikit_request_stack_grow request = {bytes};
    return result_of(current_producer().call(fikit_call_stack_grow, {&request, sizeof request}, reply));
}

CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;

}  // namespace

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
    const Context* const context = thread.current();
    if (context == nullptr) return no_context();
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = may_get_limit(limit);
    if (result == CUDA_SUCCESS) *value = load_relaxed(context->limits[limit]);
    return result;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    Context* const context = thread.current();
    if (context == nullptr) return no_context();
    CUresult result = captures.unsafe();
    if (result == CUDA_SUCCESS) result = may_set_limit(limit, value);
    if (result == CUDA_SUCCESS && limit == CU_LIMIT_STACK_SIZE) result = grow_stack(value);
    if (result == CUDA_SUCCESS) store_relaxed(context->limits[limit], value);
    return result;
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
