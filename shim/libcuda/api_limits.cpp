// Limits of a context, and what of it the device does not heed. The executor's context is shared, so a
// program's wishes are remembered for it alone; only a stack or a heap that is to be larger is so for all.
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

CUresult grow_heap(size_t bytes) {
    fikit_reply_heap_grow answer{};
    Reply reply = {&answer, sizeof answer, 0};
    const fikit_request_heap_grow request = {bytes};
    return result_of(current_producer().call(fikit_call_heap_grow, {&request, sizeof request}, reply));
}

CUresult find_limiting(const Context& context, LimitedBy& device) {
    if (const CUresult result = process.describe(*context.device); result != CUDA_SUCCESS) return result;
    const int32_t* const attribute = context.device->attributes.attribute;
    const auto of = [attribute](CUdevice_attribute which) { return static_cast<size_t>(attribute[which]); };
    device = {of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), of(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
              of(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE),
              of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)};
    return CUDA_SUCCESS;
}

CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;

}  // namespace

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
    const Context& context = *thread.current();
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = may_get_limit(limit);
    LimitedBy device = {};
    if (result == CUDA_SUCCESS) result = find_limiting(context, device);
    if (result == CUDA_SUCCESS) *value = context.limits.get(limit, device);
    return result;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    Context* const context = thread.current();
    if (context == nullptr) return no_context();
    CUresult result = captures.unsafe();
    LimitedBy device = {};
    if (result == CUDA_SUCCESS) result = find_limiting(*context, device);
    if (result == CUDA_SUCCESS) result = may_set_limit(limit, device, value);
    if (result == CUDA_SUCCESS && limit == CU_LIMIT_STACK_SIZE) result = grow_stack(value);
    if (result == CUDA_SUCCESS && limit == CU_LIMIT_MALLOC_HEAP_SIZE) result = grow_heap(value);
    if (result == CUDA_SUCCESS) context->limits.set(limit, value);
    return result;
}

// Banks of shared memory have one size since Maxwell.
CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *config = load_relaxed(shared_config);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    if (!is_preference(config)) return CUDA_ERROR_INVALID_VALUE;
    store_relaxed(shared_config, config);
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
    if (function_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return is_preference(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// No profiler is attached to the process that runs the kernels.
CUresult cuProfilerStart() { return CUDA_SUCCESS; }
CUresult cuProfilerStop() { return CUDA_SUCCESS; }

}  // namespace fikit::shim
