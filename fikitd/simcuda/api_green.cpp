// Green contexts: parts of a device's SMs.
//
// A CUdevResource is copied about by the caller, so the set of SMs it stands for is written into
// its opaque part, with a mark by which an invented one is told.
#include <cstring>

#include "driver.hpp"
#include "event.hpp"

using namespace fikit::sim;

namespace {

struct HiddenPart {
    std::uint32_t mark;
    std::int32_t device;
    std::uint64_t members[3];
    std::uint8_t split;  // an output of a split cannot be split again
};
constexpr std::uint32_t resource_mark = 0x66736d73;
static_assert(sizeof(HiddenPart) <= sizeof(CUdevResource::_internal_padding));

struct Description {
    int device = 0;
    SmSet members;
};

CUdevResource make_resource(int device, const SmSet& members, bool split) {
    CUdevResource resource;
    std::memset(&resource, 0, sizeof resource);
    resource.type = CU_DEV_RESOURCE_TYPE_SM;
    resource.sm.smCount = static_cast<unsigned>(members.count());
    resource.sm.minSmPartitionSize = model::sm_partition_minimum;
    resource.sm.smCoscheduledAlignment = model::sm_partition_step;
    HiddenPart hidden{resource_mark, device, {}, static_cast<std::uint8_t>(split)};
    for (std::size_t sm = 0; sm < members.size(); ++sm) {
        if (members[sm]) hidden.members[sm / 64] |= std::uint64_t{1} << (sm % 64);
    }
    std::memcpy(resource._internal_padding, &hidden, sizeof hidden);
    return resource;
}

bool read_resource(const CUdevResource& resource, SmSet& members, int& device, bool& split) {
    HiddenPart hidden{};
    std::memcpy(&hidden, resource._internal_padding, sizeof hidden);
    if (resource.type != CU_DEV_RESOURCE_TYPE_SM || hidden.mark != resource_mark) return false;
    members.reset();
    for (std::size_t sm = 0; sm < members.size(); ++sm) {
        if ((hidden.members[sm / 64] >> (sm % 64) & 1) != 0) members.set(sm);
    }
    device = hidden.device;
    split = hidden.split != 0;
    return true;
}

// Takes the first `count` SMs out of `from`.
SmSet take_first(SmSet& from, std::size_t count) {
    SmSet taken;
    for (std::size_t sm = 0; sm < from.size() && taken.count() < count; ++sm) {
        if (from[sm]) taken.set(sm);
    }
    from &= ~taken;
    return taken;
}

CUresult give_resource(CUdevResource* out, CUdevResourceType type, int device, const SmSet& members) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *out = make_resource(device, members, false);
    return CUDA_SUCCESS;
}

std::map<CUdevResourceDesc, Description>& descriptions() {
    static auto* all = new std::map<CUdevResourceDesc, Description>;
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
        return give_resource(resource, type, device, SmSet{}.set());
    });
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource* resource, CUdevResourceType type) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        const Context* context = driver.contexts.find(handle);
        if (context == nullptr || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
        return give_resource(resource, type, context->device,
                             context->legacy.partition ? *context->legacy.partition : SmSet{}.set());
    });
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* resource, CUdevResourceType type) {
    return with_green(handle, [&](Driver&, Driver::Lock&, GreenContext& green) {
        return give_resource(resource, type, green.device, *green.partition);
    });
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* groups, const CUdevResource* input,
                                     CUdevResource* remaining, unsigned int flags, unsigned int minimum) {
    if (groups == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
    constexpr unsigned known =
        CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    if ((flags & ~known) != 0 || flags == known) return CUDA_ERROR_INVALID_VALUE;
    if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    SmSet members;
    int device = 0;
    bool split = false;
    if (!read_resource(*input, members, device, split)) return CUDA_ERROR_INVALID_VALUE;
    if (split) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (minimum > members.count()) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    const bool fine = (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0;
    const unsigned step = fine ? 2 : model::sm_partition_step;
    const auto available = static_cast<unsigned>(members.count());
    // Rounded up, but never past what there is: 130 of 132 gives all 132.
    const unsigned size = std::min(
        std::max((minimum + step - 1) / step * step, fine ? step : model::sm_partition_minimum), available);
    const unsigned possible = size == 0 ? 0 : available / size;
    if (result == nullptr) {
        *groups = possible;
        return CUDA_SUCCESS;
    }
    *groups = std::min(*groups, possible);
    for (unsigned index = 0; index < *groups; ++index) {
        result[index] = make_resource(device, take_first(members, size), true);
    }
    if (remaining != nullptr) {
        *remaining = make_resource(device, members, true);
        if (members.none()) remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
    }
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* resources,
                                   unsigned int count) {
    return with_driver([&](Driver&, Driver::Lock&) -> CUresult {
        if (description == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
        Description made;
        for (unsigned index = 0; index < count; ++index) {
            SmSet members;
            int device = 0;
            bool split = false;
            if (resources[index].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
            if (!read_resource(resources[index], members, device, split)) return CUDA_ERROR_INVALID_VALUE;
            if (index > 0 && device != made.device) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
            if ((made.members & members).any()) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
            made.device = device;
            made.members |= members;
        }
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
        green->id = driver.next_id++;
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
        *id = green.id;
        return CUDA_SUCCESS;
    });
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx context, CUevent handle) {
    return with_green(context, [&](Driver& driver, Driver::Lock&, GreenContext& green) -> CUresult {
        Event* event = driver.events.find(handle);
        if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        // Behind everything in the context: a join of its streams, put into its default stream.
        driver.join(*green.context, new_record(*event));
        return CUDA_SUCCESS;
    });
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx context, CUevent handle) {
    return with_green(context, [&](Driver& driver, Driver::Lock&, GreenContext& green) -> CUresult {
        Event* event = driver.events.find(handle);
        if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        const OperationPtr record = record_of(driver, *event);
        if (!record || record->done) return CUDA_SUCCESS;
        driver.enqueue(green.context->legacy, std::make_shared<Operation>(), record);
        for (Stream* stream : green.context->streams) {
            driver.enqueue(*stream, std::make_shared<Operation>(), record);
        }
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
