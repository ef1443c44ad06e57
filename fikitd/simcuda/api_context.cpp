// Contexts and the calling thread's stack of them.
#include <algorithm>

#include "capture.hpp"
#include "device_calls.hpp"
#include "pool.hpp"
#include "ptx/system.hpp"

using namespace fikit::sim;

namespace {

CUresult create(CUcontext* handle, unsigned flags, CUdevice device, unsigned api_version) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (handle == nullptr || !are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
        if (device < 0 || static_cast<std::size_t>(device) >= driver.devices.size())
            return CUDA_ERROR_INVALID_DEVICE;
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        driver.charge(model::call::context);
        Context* context = driver.make_context(device);
        context->flags = flags;
        context->api_version = api_version;
        context_stack().push_back(context);
        *handle = context->handle;
        return CUDA_SUCCESS;
    });
}

CUresult find_context(Driver& driver, CUcontext handle, Context*& context) {
    context = driver.contexts.find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// Of one that is named a fault changes nothing.
CUresult given_or_current(Driver& driver, CUcontext handle, Context*& context) {
    if (handle != nullptr) return find_context(driver, handle, context);
    const CUresult result = current_context(driver, context);
    return result == CUDA_SUCCESS ? driver.sticky() : result;
}

// One that has ended may become current all the same (as on an H100).
CUresult find_any_context(Driver& driver, CUcontext handle, Context*& context) {
    context = driver.contexts.find(handle);
    return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

// What is captured never ends, so nobody can wait for it.
CUresult synchronize(Driver& driver, Driver::Lock& lock, Context& context) {
    const CUresult result = refuse_in_capture(driver, context);
    return result != CUDA_SUCCESS ? result : end_wait(driver, driver.synchronize(lock, context));
}

}  // namespace

extern "C" {

CUresult cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
    return create(context, flags, device, 3010);
}
CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
    return create(context, flags, device, 3020);
}
CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int affinities, unsigned int flags,
                        CUdevice device) {
    if (affinities != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;  // without MPS
    return create(context, flags, device, 3030);
}
CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned int flags,
                        CUdevice device) {
    if (parameters != nullptr && parameters->numExecAffinityParams != 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (parameters != nullptr && parameters->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return create(context, flags, device, 3020);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        Context* context = nullptr;
        if (const CUresult result = find_context(driver, handle, context); result != CUDA_SUCCESS)
            return result;
        if (context->primary || context->green != nullptr) return CUDA_ERROR_INVALID_CONTEXT;
        const CUresult result = driver.synchronize(lock, *context);
        std::vector<Context*>& stack = context_stack();
        if (!stack.empty() && stack.back() == context) stack.pop_back();
        driver.destroy_context(*context);
        return result;
    });
}
CUresult cuCtxDestroy(CUcontext handle) { return cuCtxDestroy_v2(handle); }

CUresult cuCtxAttach(CUcontext* handle, unsigned int flags) {
    return with_context([&](Driver&, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        ++context.attached;
        *handle = context.handle;
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxDetach(CUcontext handle) {
    bool last = false;
    const CUresult result = with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        Context* context = nullptr;
        const CUresult found = find_context(driver, handle, context);
        if (found != CUDA_SUCCESS) return found;
        if (context->attached == 0) return CUDA_ERROR_INVALID_CONTEXT;
        last = --context->attached == 0 && !context->primary;
        return CUDA_SUCCESS;
    });
    return last ? cuCtxDestroy_v2(handle) : result;
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        Context* context = nullptr;
        if (const CUresult result = find_any_context(driver, handle, context); result != CUDA_SUCCESS)
            return result;
        context_stack().push_back(context);
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxPushCurrent(CUcontext handle) { return cuCtxPushCurrent_v2(handle); }

CUresult cuCtxPopCurrent_v2(CUcontext* handle) {
    return with_driver([&](Driver&, Driver::Lock&) -> CUresult {
        std::vector<Context*>& stack = context_stack();
        if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
        if (handle != nullptr) *handle = stack.back()->handle;
        stack.pop_back();
        return CUDA_SUCCESS;
    });
}
CUresult cuCtxPopCurrent(CUcontext* handle) { return cuCtxPopCurrent_v2(handle); }

CUresult cuCtxSetCurrent(CUcontext handle) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        std::vector<Context*>& stack = context_stack();
        if (handle == nullptr) {
            if (!stack.empty()) stack.pop_back();
            return CUDA_SUCCESS;
        }
        Context* context = nullptr;
        if (const CUresult result = find_any_context(driver, handle, context); result != CUDA_SUCCESS)
            return result;
        if (stack.empty())
            stack.push_back(context);
        else
            stack.back() = context;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
    return with_driver([&](Driver&, Driver::Lock&) -> CUresult {
        if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const std::vector<Context*>& stack = context_stack();
        *handle = stack.empty() ? nullptr : stack.back()->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetDevice(CUdevice* device) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        Context* context = nullptr;
        // A destroyed context is still a device's.
        const CUresult result = current_context(driver, context);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_CONTEXT_IS_DESTROYED) return result;
        if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *device = context->device;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
    if (handle == nullptr) return cuCtxGetDevice(device);
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        Context* context = nullptr;
        if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = find_context(driver, handle, context); result != CUDA_SUCCESS)
            return result;
        *device = context->device;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
    if (handle == nullptr) return cuCtxSynchronize();
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        Context* context = nullptr;
        if (const CUresult result = find_context(driver, handle, context); result != CUDA_SUCCESS)
            return result;
        return synchronize(driver, lock, *context);
    });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        Context* context = nullptr;
        // A destroyed context still tells.
        const CUresult result = current_context(driver, context);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_CONTEXT_IS_DESTROYED) return result;
        if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *flags = context->alive ? context->flags | (home_of(*context).primary ? CU_CTX_MAP_HOST : 0) : 0;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSetFlags(unsigned int flags) {
    return with_context([&](Driver&, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (!are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
        context.flags = flags | (context.flags & CU_CTX_MAP_HOST);
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        Context* context = nullptr;
        if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUresult result = given_or_current(driver, handle, context);
        if (result != CUDA_SUCCESS) return result;
        *id = context->id;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSynchronize() {
    return with_context([](Driver& driver, Driver::Lock& lock, Context& context, SimulatedDevice&) {
        return synchronize(driver, lock, context);
    });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        CUresult result = refuse_unsafe(driver);
        if (result == CUDA_SUCCESS) result = fikit::may_set_limit(limit, limiting_device, value);
        if (result == CUDA_SUCCESS && limit == CU_LIMIT_MALLOC_HEAP_SIZE && !ptx::grow_device_heap(value))
            result = CUDA_ERROR_INVALID_VALUE;
        if (result == CUDA_SUCCESS) context.limits.set(limit, value);
        return result;
    });
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
    return with_context([&](Driver&, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUresult result = fikit::may_get_limit(limit);
        if (result == CUDA_SUCCESS) *value = context.limits.get(limit, limiting_device);
        return result;
    });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
    return with_context([&](Driver&, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *config = context.cache_config;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        if (!is_preference(config)) return CUDA_ERROR_INVALID_VALUE;
        context.cache_config = config;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
    return with_context([&](Driver&, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *config = context.shared_config;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    return with_context([&](Driver&, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (!is_preference(config)) return CUDA_ERROR_INVALID_VALUE;
        context.shared_config = config;
        return CUDA_SUCCESS;
    });
}

// Nothing persists in a cache that is not modelled.
CUresult cuCtxResetPersistingL2Cache() {
    return with_context([](auto&&...) { return CUDA_SUCCESS; });
}

CUresult cuCtxRecordEvent(CUcontext handle, CUevent event) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        Context* context = nullptr;
        CUresult result = find_context(driver, handle, context);
        if (result == CUDA_SUCCESS) result = driver.sticky();
        return result == CUDA_SUCCESS ? record_event(driver, *context, event) : result;
    });
}

CUresult cuCtxWaitEvent(CUcontext handle, CUevent event) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        Context* context = nullptr;
        CUresult result = find_context(driver, handle, context);
        if (result == CUDA_SUCCESS) result = driver.sticky();
        return result == CUDA_SUCCESS ? wait_for_event(driver, *context, event) : result;
    });
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
        Context* context = nullptr;
        const CUresult result = given_or_current(driver, handle, context);
        if (result != CUDA_SUCCESS) return handle != nullptr ? CUDA_ERROR_INVALID_CONTEXT : result;
        *version = context->api_version;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetStreamPriorityRange(int* lowest, int* highest) {
    return with_context([&](auto&&...) -> CUresult {
        if (lowest != nullptr) *lowest = model::priority_lowest;
        if (highest != nullptr) *highest = model::priority_highest;
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
