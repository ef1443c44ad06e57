// Contexts live here wholly: names for the one session, and each thread's stack of them.
#include "capture.hpp"
#include "entry.hpp"
#include "printed.hpp"
#include "ranges.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

// The context, or the current one for 0. nullptr: there is none such.
Context* context_or_current(CUcontext handle) {
    return handle == nullptr ? thread.current() : process.find(handle);
}

// What the context has goes with it.
void end(Context& context) {
    discard_storage(context.handle);
    if (!producer().channel().forked()) free_memory_of(context);
}

// At most one way to wait, and nothing unknown.
bool are_flags(unsigned flags) {
    const unsigned ways = flags & CU_CTX_SCHED_MASK;
    return (flags & ~unsigned{CU_CTX_FLAGS_MASK}) == 0 && (ways & (ways - 1)) == 0;
}

CUresult create(CUcontext* handle, unsigned flags, CUdevice device) {
    if (handle == nullptr || !are_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (thread.depth == Thread::most) return CUDA_ERROR_OUT_OF_MEMORY;
    Context* const context = process.create(flags);
    if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    thread.stack[thread.depth++] = context;
    *handle = context->handle;
    return CUDA_SUCCESS;
}

}  // namespace

// --- the primary context ---

CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice device) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    __atomic_fetch_add(&process.primary().references, 1u, __ATOMIC_RELAXED);
    *handle = process.primary().handle;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    unsigned& references = process.primary().references;
    unsigned before = load_relaxed(references);
    do {
        if (before == 0) return CUDA_ERROR_INVALID_CONTEXT;
    } while (!__atomic_compare_exchange_n(&references, &before, before - 1, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    if (before == 1 && !process_is_exiting()) end(process.primary());
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return fikit::shim::cuDevicePrimaryCtxRelease(device);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (!are_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    process.primary().flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
    return fikit::shim::cuDevicePrimaryCtxSetFlags(device, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    *flags = process.primary().flags;
    *active = load_relaxed(process.primary().references) != 0 ? 1 : 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    end(process.primary());
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { return fikit::shim::cuDevicePrimaryCtxReset(device); }

// --- contexts of the program's own ---

CUresult cuCtxCreate_v2(CUcontext* handle, unsigned int flags, CUdevice device) {
    return create(handle, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext* handle, CUexecAffinityParam* affinity, int count, unsigned int flags,
                        CUdevice device) {
    if (affinity != nullptr && count != 0) return CUDA_ERROR_NOT_SUPPORTED;
    return create(handle, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext* handle, CUctxCreateParams* parameters, unsigned int flags,
                        CUdevice device) {
    if (parameters != nullptr && (parameters->numExecAffinityParams != 0 || parameters->cigParams != nullptr))
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(handle, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
    Context* const context = process.find(handle);
    if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (thread.current() == context) --thread.depth;
    end(*context);
    process.destroy(*context);
    return CUDA_SUCCESS;
}

CUresult cuCtxAttach(CUcontext* handle, unsigned int flags) {
    if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Context* const context = thread.current();
    if (context == nullptr) return no_context();
    ++context->references;
    *handle = context->handle;
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle) {
    Context* const context = process.find(handle);
    if (context == nullptr || context->references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    return --context->references == 0 && !context->primary ? fikit::shim::cuCtxDestroy_v2(handle)
                                                           : CUDA_SUCCESS;
}

// --- the thread's stack ---

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
    Context* const context = process.find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (thread.depth == Thread::most) return CUDA_ERROR_OUT_OF_MEMORY;
    thread.stack[thread.depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* handle) {
    if (thread.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
    const Context* const context = thread.current();
    if (handle != nullptr) *handle = context != nullptr ? context->handle : nullptr;
    --thread.depth;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
    if (handle == nullptr) {
        if (thread.depth != 0) --thread.depth;
        return CUDA_SUCCESS;
    }
    Context* const context = process.find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (thread.depth == 0) thread.depth = 1;
    thread.stack[thread.depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Context* const context = thread.current();
    *handle = context != nullptr ? context->handle : nullptr;
    return CUDA_SUCCESS;
}

// --- what one may ask of a context ---

CUresult cuCtxGetDevice(CUdevice* device) { return fikit::shim::cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (context_or_current(handle) == nullptr) return no_context();
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (context_or_current(handle) == nullptr) return no_context();
    *version = 3020;  // what driver 580 says
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* number) {
    if (number == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Context* const context = context_or_current(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *number = static_cast<unsigned long long>(context - &process.primary()) + 1;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Context* const context = thread.current();
    if (context == nullptr) return no_context();
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
    Context* const context = thread.current();
    if (context == nullptr) return no_context();
    if ((flags & ~unsigned{CU_CTX_FLAGS_MASK}) != 0) return CUDA_ERROR_INVALID_VALUE;
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Context* const context = thread.current();
    if (context == nullptr) return no_context();
    *config = context->cache;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    Context* const context = thread.current();
    if (context == nullptr) return no_context();
    context->cache = config;  // a preference, which the H200 does not heed
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    if (thread.current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = process.device().greatest_priority;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache() { return CUDA_SUCCESS; }  // nothing is kept there for a tenant

CUresult cuCtxSynchronize() {
    const CUresult result = captures.forbid_all();
    return result == CUDA_SUCCESS ? synchronised(producer().synchronize()) : result;
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
    if (context_or_current(handle) == nullptr) return no_context();
    return fikit::shim::cuCtxSynchronize();
}

}  // namespace fikit::shim
