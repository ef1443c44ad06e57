// Contexts live here wholly: names for the session on their device, and each thread's stack of them.
#include "capture.hpp"
#include "entry.hpp"
#include "objects.hpp"
#include "pool.hpp"
#include "printed.hpp"
#include "ranges.hpp"
#include "renewal.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

// The context, or the current one for 0. nullptr: there is none such.
Context* context_or_current(CUcontext handle) {
    return handle == nullptr ? thread.current() : process.find(handle);
}

// Why there is none: nobody's name, one that has ended, or none is current.
CUresult no_such_context(CUcontext handle) {
    if (handle == nullptr) return no_context();
    return process.find_any(handle) == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// A primary context begins and ends as a whole: who retains it meanwhile waits until all that it had is gone,
// or would lose what is made in the next one. A function in a stream, for which the end waits, does not.
class PrimaryLocked {
  public:
    explicit PrimaryLocked(Device& device) : mutex_(device.primary_mutex) {
        const auto take = within_host_function() ? pthread_mutex_trylock : pthread_mutex_lock;
        held_ = take(&mutex_) == 0;
    }
    ~PrimaryLocked() {
        if (held_) pthread_mutex_unlock(&mutex_);
    }
    PrimaryLocked(const PrimaryLocked&) = delete;
    PrimaryLocked& operator=(const PrimaryLocked&) = delete;
    CUresult result() const { return held_ ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED; }

  private:
    const Uncancelled whole_;
    pthread_mutex_t& mutex_;
    bool held_;
};

// With the lock. False: it was there already.
bool begin_primary(Context& context) {
    if (context.handle != nullptr) return false;
    context.flags = context.wished;
    store_release(context.handle, context.name);
    return true;
}

// One that may become current has a session. A primary one that nobody retained is the runtime's, which finds
// it by a table: no release of others ends it.
CUresult find_open(CUcontext handle, Context*& context) {
    context = process.find_any(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->primary && load_acquire(context->handle) == nullptr) {
        const PrimaryLocked lock(*context->device);
        if (lock.result() != CUDA_SUCCESS) return lock.result();
        if (begin_primary(*context)) __atomic_fetch_add(&context->references, 1u, __ATOMIC_RELAXED);
    }
    return load_acquire(context->device->producer) != nullptr ? CUDA_SUCCESS : process.open(*context->device);
}

// What the context has goes with it.
void end(Context& context) {
    if (process.forked()) return;
    if (context.device->producer == nullptr) return;
    context.device->producer->synchronize();  // kernels may use it; what went wrong before goes with it
    end_all_of(context);
    free_memory_of(context);
    if (context.primary) outdate_libraries(*context.device);
}

// With the lock. What was set for it goes with it.
void end_primary(const Device& device) {
    Context& context = device.primary();
    discard_storage(context.name);  // while the functions that this calls find the context
    if (__atomic_exchange_n(&context.handle, CUcontext{nullptr}, __ATOMIC_ACQ_REL) != nullptr) end(context);
    context.forget_settings();
}

// At most one way to wait, and nothing unknown.
bool are_flags(unsigned flags) {
    const unsigned ways = flags & CU_CTX_SCHED_MASK;
    return (flags & ~unsigned{CU_CTX_FLAGS_MASK}) == 0 && (ways & (ways - 1)) == 0;
}

CUresult create(CUcontext* handle, unsigned flags, CUdevice ordinal) {
    Device* const device = process.find_device(ordinal);
    if (handle == nullptr || !are_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (thread.depth == Thread::most) return CUDA_ERROR_OUT_OF_MEMORY;
    if (const CUresult result = process.open(*device); result != CUDA_SUCCESS) return result;
    Context* const context = process.create(*device, flags);
    if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    thread.stack[thread.depth++] = context;
    *handle = context->handle;
    return CUDA_SUCCESS;
}

}  // namespace

// --- the primary context ---

CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice ordinal) {
    Device* const device = process.find_device(ordinal);
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (const CUresult result = process.open(*device); result != CUDA_SUCCESS) return result;
    const PrimaryLocked lock(*device);
    if (lock.result() != CUDA_SUCCESS) return lock.result();
    if (const CUresult result = renew_libraries(*device); result != CUDA_SUCCESS) return result;
    __atomic_fetch_add(&device->primary().references, 1u, __ATOMIC_RELAXED);
    Context& context = device->primary();
    begin_primary(context);
    *handle = context.name;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal) {
    Device* const device = process.find_device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const PrimaryLocked lock(*device);
    if (lock.result() != CUDA_SUCCESS) return lock.result();
    unsigned& references = device->primary().references;
    unsigned before = load_relaxed(references);
    do {
        if (before == 0) return CUDA_ERROR_INVALID_CONTEXT;
    } while (!__atomic_compare_exchange_n(&references, &before, before - 1, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    if (before == 1 && process.is_divided(*device)) return CUDA_ERROR_NOT_PERMITTED;
    if (before == 1) end_primary(*device);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return fikit::shim::cuDevicePrimaryCtxRelease(device);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags) {
    const Device* const device = process.find_device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (!are_flags(flags) || (flags & CU_CTX_MAP_HOST) != 0) return CUDA_ERROR_INVALID_VALUE;
    device->primary().wished = device->primary().flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
    return fikit::shim::cuDevicePrimaryCtxSetFlags(device, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
    const Device* const device = process.find_device(ordinal);
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *flags = device->primary().wished;
    *active = load_relaxed(device->primary().handle) != nullptr ? 1 : 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal) {
    Device* const device = process.find_device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const PrimaryLocked lock(*device);
    if (lock.result() != CUDA_SUCCESS) return lock.result();
    if (process.is_divided(*device)) return CUDA_ERROR_NOT_PERMITTED;
    end_primary(*device);  // who retained it may still release it
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
    if (context == nullptr || context->primary || context->green()) return CUDA_ERROR_INVALID_CONTEXT;
    if (thread.current() == context) --thread.depth;
    discard_storage(context->name);
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

// --- the thread's stack, where one that has ended stays until it is taken off ---

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
    Context* context = nullptr;
    if (const CUresult result = find_open(handle, context); result != CUDA_SUCCESS) return result;
    if (thread.depth == Thread::most) return CUDA_ERROR_OUT_OF_MEMORY;
    thread.stack[thread.depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* handle) {
    if (thread.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
    --thread.depth;
    if (handle != nullptr) *handle = thread.stack[thread.depth]->name;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
    if (handle == nullptr) {
        if (thread.depth != 0) --thread.depth;
        return CUDA_SUCCESS;
    }
    Context* context = nullptr;
    if (const CUresult result = find_open(handle, context); result != CUDA_SUCCESS) return result;
    if (thread.depth == 0) thread.depth = 1;
    thread.stack[thread.depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *handle = thread.depth != 0 ? thread.stack[thread.depth - 1]->name : nullptr;
    return CUDA_SUCCESS;
}

// --- what one may ask of a context ---

CUresult cuCtxGetDevice(CUdevice* device) { return fikit::shim::cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Context* context = context_or_current(handle);
    // A destroyed one is still a device's.
    if (context == nullptr && handle == nullptr && thread.depth != 0)
        context = thread.stack[thread.depth - 1];
    if (context == nullptr) return no_such_context(handle);
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (handle == nullptr)
        if (const CUresult result = ready<Needs::context>(); result != CUDA_SUCCESS) return result;
    if (context_or_current(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020;  // what driver 580 says
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* number) {
    if (number == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (handle == nullptr)
        if (const CUresult result = ready<Needs::context>(); result != CUDA_SUCCESS) return result;
    const Context* const context = context_or_current(handle);
    if (context == nullptr) return no_such_context(handle);
    *number = process.number_of(*context) + 1;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Context* const context = thread.current();
    // A destroyed one still tells, of nothing (as on an H200).
    if (context == nullptr && thread.depth == 0) return no_context();
    *flags =
        context == nullptr ? 0 : context->flags | (context->home->primary ? unsigned{CU_CTX_MAP_HOST} : 0);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
    Context* const context = thread.current();
    if (context == nullptr) return no_context();
    if (!are_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    context->flags = flags | (context->flags & CU_CTX_MAP_HOST);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *config = thread.current()->cache;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    if (!is_preference(config)) return CUDA_ERROR_INVALID_VALUE;
    thread.current()->cache = config;  // a preference, which the H200 does not heed
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = current_device().attributes.greatest_priority;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache() { return CUDA_SUCCESS; }  // nothing is kept there for a tenant

CUresult cuCtxSynchronize() { return fikit::shim::cuCtxSynchronize_v2(nullptr); }

CUresult cuCtxSynchronize_v2(CUcontext handle) {
    const Context* const context = context_or_current(handle);
    if (context == nullptr) return no_such_context(handle);
    if (const CUresult result = captures.forbid_all(*context); result != CUDA_SUCCESS) return result;
    if (context->device->producer == nullptr) return CUDA_SUCCESS;
    return end_wait(synchronised(*context->device, context->device->producer->synchronize()));
}

// --- the memory of other devices: no kernel can reach it; nor is a context its own device's peer ---

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return process.find(peer) == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    return process.find(peer) == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace fikit::shim
