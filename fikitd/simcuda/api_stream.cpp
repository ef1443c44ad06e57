// Streams.
#include <cstring>

#include "capture.hpp"
#include "event.hpp"
#include "pool.hpp"

using namespace fikit::sim;

namespace {

CUresult create(CUstream* handle, unsigned flags, int priority) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (handle == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        auto stream = std::make_shared<Stream>();
        stream->context = &context;
        stream->flags = flags;
        stream->priority = std::clamp(priority, model::priority_highest, model::priority_lowest);
        stream->id = driver.next_id++;
        stream->partition = context.legacy.partition;
        if (context.green != nullptr) stream->green = context.green->handle;
        context.streams.insert(stream.get());
        *handle = driver.streams.add(std::move(stream));
        return CUDA_SUCCESS;
    });
}

// What the stream was given; of the legacy one also what blocking streams were, for which it would wait:
// asked after, and waited for, even by who never gave it anything (H100).
std::vector<OperationPtr> awaited(Driver& driver, Stream& stream) {
    std::vector<OperationPtr> all = {stream.tail};
    if (stream.kind == Stream::Kind::legacy)
        for (const Dependency& each : driver.order(stream)) all.push_back(each.operation);
    return all;
}

bool is_stream_attribute(CUstreamAttrID attribute) {
    return attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
           attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
           attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY || attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN ||
           attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) { return create(stream, flags, 0); }
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
    return create(stream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
    return with_context_of(of_stream(handle), [&](Driver& driver, auto&&...) -> CUresult {
        Stream* stream = driver.streams.find(handle);
        if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        driver.retire(*stream);
        stream->context->streams.erase(stream);
        driver.streams.remove(stream);
        return CUDA_SUCCESS;
    });
}
CUresult cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

CUresult cuStreamQuery(CUstream handle) {
    return with_stream(handle, InCapture::refused,
                       [](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS)
                               return result;
                           for (const OperationPtr& last : awaited(driver, stream))
                               if (!driver.visible(last)) return CUDA_ERROR_NOT_READY;
                           return CUDA_SUCCESS;
                       });
}

CUresult cuStreamSynchronize(CUstream handle) {
    return with_stream(
        handle, InCapture::refused,
        [](Driver& driver, Driver::Lock& lock, Stream& stream, SimulatedDevice& device) -> CUresult {
            if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
            CUresult result = CUDA_SUCCESS;
            for (const OperationPtr& last : awaited(driver, stream))
                if (result == CUDA_SUCCESS) result = driver.wait(lock, device, last);
            return end_wait(driver, result);
        });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
    return with_stream(handle,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0)
                               return CUDA_ERROR_INVALID_VALUE;
                           Event* event = driver.events.find(event_handle);
                           if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                           if (const auto captured = capture_wait(driver, stream, *event, flags))
                               return *captured;
                           if (flags != 0) return CUDA_ERROR_ILLEGAL_STATE;  // external: to a capture
                           const OperationPtr record = record_of(driver, *event);
                           // An action of the legacy stream orders the blocking ones, also where it waits for
                           // what is over; not for what never was (H100).
                           if (record && (!record->done || stream.kind == Stream::Kind::legacy))
                               driver.enqueue(stream, std::make_shared<Operation>(), record);
                           return CUDA_SUCCESS;
                       });
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data, unsigned int flags) {
    return with_stream(handle, InCapture::refused,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
                           auto operation = std::make_shared<Operation>();
                           operation->work = HostCall{[=] { callback(handle, CUDA_SUCCESS, data); }};
                           driver.enqueue(stream, operation);
                           return CUDA_SUCCESS;
                       });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *priority = stream.priority;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
    return with_stream(handle, InCapture::refused,
                       [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
                           *flags = stream.flags;
                           return CUDA_SUCCESS;
                       });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
    return with_stream(handle, InCapture::refused,
                       [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
                           *id = stream.id;
                           return CUDA_SUCCESS;
                       });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *context = stream.context->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (context == nullptr || green == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *green = stream.green;
        *context = home_of(*stream.context).handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
    return with_stream(handle, InCapture::refused,
                       [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
                           *device = stream.context->device;
                           return CUDA_SUCCESS;
                       });
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* green) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (green == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *green = stream.green;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
    return with_stream(to, [&](Driver& driver, Driver::Lock&, Stream& target, SimulatedDevice&) -> CUresult {
        Stream* source = nullptr;
        const CUresult result = resolve_stream(driver, *target.context, from, source);
        if (result == CUDA_SUCCESS) target.attributes = source->attributes;
        return result;
    });
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (value == nullptr || !is_stream_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
        const auto set = stream.attributes.find(attribute);
        *value = set != stream.attributes.end() ? set->second : CUstreamAttrValue{};
        if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = stream.priority;
        if (set != stream.attributes.end()) return CUDA_SUCCESS;
        // As an H200 tells of a policy that was never set, and of a kernel's domains.
        if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
            std::memset(&value->syncPolicy, 0xff, sizeof value->syncPolicy);
        if (attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value->memSyncDomainMap = {0, 1};
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue* value) {
    return with_stream(handle, [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
        if (value == nullptr || !is_stream_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY &&
            (value->syncPolicy < CU_SYNC_POLICY_AUTO || value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC))
            return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN &&
            (value->memSyncDomain < CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT ||
             value->memSyncDomain > CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE))
            return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            stream.priority = std::clamp(value->priority, model::priority_highest, model::priority_lowest);
        stream.attributes[attribute] = *value;
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
