// Green contexts: parts of a device's SMs.
#include "capture.hpp"
#include "sm_resources.hpp"

using namespace fikit::sim;

namespace {

using Part = fikit::SmPart<model::sm_count>;

Part part_of(int device, const SmSet& members) {
    return {device, members, {model::sm_partition_minimum, model::sm_partition_step}};
}

std::map<CUdevResourceDesc, Part>& descriptions() {
    static auto* all = new std::map<CUdevResourceDesc, Part>;
    return *all;
}

template <typename Body>
CUresult with_green(CUgreenCtx handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        GreenContext* green = driver.greens.find(handle);
        return green == nullptr ? CUDA_ERROR_INVALID_CONTEXT : body(driver, lock, *green);
    });
}

}  // namespace

extern "C" {

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (device < 0 || static_cast<std::size_t>(device) >= driver.devices.size())
            return CUDA_ERROR_INVALID_DEVICE;
        return part_of(device, SmSet{}.set()).give(resource, type);
    });
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource* resource, CUdevResourceType type) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        const Context* context = driver.contexts.find(handle);
        if (context == nullptr || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
        const SmSet all = SmSet{}.set();
        return part_of(context->device, context->legacy.partition ? *context->legacy.partition : all)
            .give(resource, type);
    });
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* resource, CUdevResourceType type) {
    return with_green(handle, [&](Driver&, Driver::Lock&, GreenContext& green) {
        return part_of(green.device, *green.partition).give(resource, type);
    });
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* groups, const CUdevResource* input,
                                     CUdevResource* remaining, unsigned int flags, unsigned int minimum) {
    return Part::divide(result, groups, input, remaining, flags, minimum);
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* resources,
                                   unsigned int count) {
    return with_driver([&](Driver&, Driver::Lock&) -> CUresult {
        Part made;
        if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = made.join(resources, count); result != CUDA_SUCCESS) return result;
        *description = new_handle<CUdevResourceDesc>();
        descriptions()[*description] = made;
        return CUDA_SUCCESS;
    });
}

CUresult cuGreenCtxCreate(CUgreenCtx* handle, CUdevResourceDesc description, CUdevice device,
                          unsigned int flags) {
    CUcontext primary = nullptr;
    if (handle == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = cuDevicePrimaryCtxRetain(&primary, device); result != CUDA_SUCCESS)
        return result;
    const CUresult result = with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        const auto found = descriptions().find(description);
        if (found == descriptions().end() || found->second.device != device) return CUDA_ERROR_INVALID_VALUE;
        auto green = std::make_shared<GreenContext>();
        green->device = device;
        green->partition = std::make_shared<const SmSet>(found->second.members);
        driver.charge(model::call::green_context);
        green->context = driver.make_context(device);
        green->context->owner = driver.contexts.find(primary);
        green->context->green = green.get();
        green->context->legacy.partition = green->partition;
        driver.devices[static_cast<std::size_t>(device)]->engine.add_partition(*green->partition);
        *handle = driver.greens.add(green);
        green->context->legacy.green = *handle;
        return CUDA_SUCCESS;
    });
    if (result != CUDA_SUCCESS) cuDevicePrimaryCtxRelease_v2(device);
    return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
    int device = 0;
    const CUresult result =
        with_green(handle, [&](Driver& driver, Driver::Lock& lock, GreenContext& green) -> CUresult {
            device = green.device;
            // The last operation of each stream is waited for: no block may run on a border that is
            // gone.
            driver.synchronize(lock, *green.context);
            driver.destroy_context(*green.context);
            driver.devices[static_cast<std::size_t>(device)]->engine.remove_partition(*green.partition);
            driver.greens.remove(&green);
            return CUDA_SUCCESS;
        });
    if (result == CUDA_SUCCESS) cuDevicePrimaryCtxRelease_v2(device);  // which others may have released
    return result;
}

CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx handle) {
    return with_green(handle, [&](Driver&, Driver::Lock&, GreenContext& green) -> CUresult {
        if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *context = green.context->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuGreenCtxStreamCreate(CUstream* handle, CUgreenCtx context, unsigned int flags, int priority) {
    return with_green(context, [&](Driver& driver, Driver::Lock&, GreenContext& green) -> CUresult {
        if (handle == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
        auto stream = std::make_shared<Stream>();
        stream->context = green.context;
        stream->flags = flags;
        stream->priority = std::clamp(priority, model::priority_highest, model::priority_lowest);
        stream->id = driver.next_id++;
        stream->green = context;
        stream->partition = green.partition;
        green.context->streams.insert(stream.get());
        *handle = driver.streams.add(std::move(stream));
        return CUDA_SUCCESS;
    });
}

CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long* id) {
    return with_green(handle, [&](Driver&, Driver::Lock&, GreenContext& green) -> CUresult {
        if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *id = green.context->id;
        return CUDA_SUCCESS;
    });
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx context, CUevent event) {
    return with_green(context, [&](Driver& driver, Driver::Lock&, GreenContext& green) -> CUresult {
        return record_event(driver, *green.context, event);
    });
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx context, CUevent event) {
    return with_green(context, [&](Driver& driver, Driver::Lock&, GreenContext& green) -> CUresult {
        return wait_for_event(driver, *green.context, event);
    });
}

}  // extern "C"
