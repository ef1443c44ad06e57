// Green contexts: beside a device's primary context, whose memory, modules and events are theirs too. On
// which multiprocessors a kernel runs is the gate's to decide: what a green context has of them is told, not
// kept to.
#include <new>

#include "capture.hpp"
#include "entry.hpp"
#include "holdings.hpp"
#include "objects.hpp"
#include "pool.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

constexpr uint32_t description_magic = 0x46445343;

// There is no call to destroy one.
struct Description {
    uint32_t magic = description_magic;
    Multiprocessors part;
};

// A green context's handle is the one that it has as a context (as on an H200).
Context* green_of(CUgreenCtx handle) {
    Context* const context = process.find(reinterpret_cast<CUcontext>(handle));
    return context != nullptr && context->green() ? context : nullptr;
}

// In what numbers multiprocessors are had, by compute capability (cuda.h, "Green Contexts").
SmSteps steps_of(int major) {
    return major >= 9 ? SmSteps{8, 8} : major == 8 ? SmSteps{4, 2} : SmSteps{2, 2};
}

CUresult whole(Device& device, Multiprocessors& part) {
    if (const CUresult result = process.describe(device); result != CUDA_SUCCESS) return result;
    const int32_t* const attribute = device.attributes.attribute;
    const size_t count = static_cast<size_t>(attribute[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]);
    part = {device.ordinal, {}, steps_of(attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR])};
    for (size_t sm = 0; sm < std::min(count, part.members.size()); ++sm) part.members[sm] = true;
    return CUDA_SUCCESS;
}

CUresult give_part(const Context& context, CUdevResource* resource, CUdevResourceType type) {
    Multiprocessors part = context.part;
    const CUresult result = context.green() ? CUDA_SUCCESS : whole(*context.device, part);
    part.split = false;
    return result == CUDA_SUCCESS ? part.give(resource, type) : result;
}

}  // namespace

CUresult cuDeviceGetDevResource(CUdevice ordinal, CUdevResource* resource, CUdevResourceType type) {
    Device* const device = process.find_device(ordinal);
    return device != nullptr ? give_part(device->primary(), resource, type) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource* resource, CUdevResourceType type) {
    const Context* const context = process.find(handle);
    return context != nullptr ? give_part(*context, resource, type) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* resource, CUdevResourceType type) {
    const Context* const context = green_of(handle);
    return context != nullptr ? give_part(*context, resource, type) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* groups, const CUdevResource* input,
                                     CUdevResource* remaining, unsigned int flags, unsigned int minimum) {
    return Multiprocessors::divide(result, groups, input, remaining, flags, minimum);
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* handle, CUdevResource* resources, unsigned int count) {
    Multiprocessors part;
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = part.join(resources, count); result != CUDA_SUCCESS) return result;
    auto* const description = new (std::nothrow) Description();
    if (description == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    description->part = part;
    *handle = reinterpret_cast<CUdevResourceDesc>(description);
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* handle, CUdevResourceDesc description_handle, CUdevice ordinal,
                          unsigned int flags) {
    const auto* const description = object_of<Description>(description_handle, description_magic);
    if (handle == nullptr || description == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM ||
        description->part.device != ordinal)
        return CUDA_ERROR_INVALID_VALUE;
    CUcontext primary = nullptr;
    if (const CUresult result = fikit::shim::cuDevicePrimaryCtxRetain(&primary, ordinal);
        result != CUDA_SUCCESS)
        return result;
    const Context* const context = process.create(*process.find_device(ordinal), 0, &description->part);
    if (context == nullptr) {
        fikit::shim::cuDevicePrimaryCtxRelease(ordinal);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = reinterpret_cast<CUgreenCtx>(context->name);
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
    Context* const context = green_of(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    Device& device = *context->device;
    discard_storage(context->name);
    if (device.producer != nullptr) device.producer->synchronize();  // its streams end with it
    end_all_of(*context);
    process.destroy(*context);
    fikit::shim::cuDevicePrimaryCtxRelease(device.ordinal);  // which others may have released
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long* number) {
    const Context* const context = green_of(handle);
    return context != nullptr ? fikit::shim::cuCtxGetId(context->name, number) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx handle, unsigned int flags, int priority) {
    Context* const context = green_of(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = process.open(*context->device); result != CUDA_SUCCESS) return result;
    return create_stream(*context, stream, flags, priority);
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
    const Context* const context = green_of(handle);
    return context != nullptr ? fikit::shim::cuCtxRecordEvent(context->name, event)
                              : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
    const Context* const context = green_of(handle);
    return context != nullptr ? fikit::shim::cuCtxWaitEvent(context->name, event)
                              : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxFromGreenCtx(CUcontext* handle, CUgreenCtx green) {
    const Context* const context = green_of(green);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *handle = context->name;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx* handle) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = may_ask(stream); result != CUDA_SUCCESS) return result;
    if (!is_default(stream) && stream_of(stream) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const Context* const context = context_of(stream);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *handle = context->green() ? reinterpret_cast<CUgreenCtx>(context->name) : nullptr;
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
