// Streams and events.
#include <new>

#include "bridge.hpp"
#include "capture.hpp"
#include "entry.hpp"
#include "objects.hpp"
#include "pool.hpp"
#include "printed.hpp"
#include "served.hpp"
#include "sharing.hpp"

namespace fikit::shim {

CUresult wait_for_other_event(uint32_t stream, const Event& event) {
    if (event.session == 0) return wait_across(stream, *event.device, event.number);
    if (event.device != &device_of(stream)) return CUDA_ERROR_NOT_SUPPORTED;
    return result_of(
        producer_of(stream).event_wait_other(event.session, event.number, stream_number(stream)));
}

// --- streams ---

namespace {

int priority_of(CUstream handle) { return is_default(handle) ? 0 : stream_of(handle)->priority; }

CUresult find_hints(CUstream handle, StreamHints*& hints) {
    if (const CUresult result = may_ask(handle); result != CUDA_SUCCESS) return result;
    Stream* const stream = is_default(handle) ? nullptr : stream_of(handle);
    Thread& caller = calling_thread();
    Context* const context = caller.current();
    if (is_default(handle) && context == nullptr) return no_context();
    if (!is_default(handle) && stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    hints = stream != nullptr ? &stream->hints : caller.means_own(handle) ? &caller.hints : &context->hints;
    return CUDA_SUCCESS;
}

CUresult end_stream(Stream& stream) {
    stream.held.let_go();
    captures.abandon(stream.name);
    const Status status = producer_of(stream.name).stream_destroy(stream_number(stream.name));
    wipe(stream.magic);
    delete &stream;
    return result_of(status);
}

}  // namespace

CUresult create_stream(Context& context, CUstream* handle, unsigned flags, int priority) {
    if (handle == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    Device& device = *context.device;
    auto* const stream = new (std::nothrow) Stream();
    if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    stream->flags = flags;
    stream->priority = device.nearest_priority(priority);
    stream->context = &context;
    const uint32_t kind = (flags & CU_STREAM_NON_BLOCKING) != 0 ? unsigned{FIKIT_STREAM_NON_BLOCKING} : 0u;
    uint32_t number = 0;
    const Status status = device.producer->stream_create(kind, stream->priority, number);
    if (status != status::success) {
        delete stream;
        return result_of(status);
    }
    stream->name = device.stream(number);
    stream->held.keep<end_stream>(stream->context, *stream);
    *handle = reinterpret_cast<CUstream>(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned int flags, int priority) {
    return create_stream(*thread.current(), handle, flags, priority);
}

CUresult cuStreamCreate(CUstream* handle, unsigned int flags) {
    return fikit::shim::cuStreamCreateWithPriority(handle, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
    Stream* const stream = is_default(handle) ? nullptr : stream_of(handle);
    return stream != nullptr ? end_stream(*stream) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamQuery(CUstream handle) {
    uint32_t name = 0;
    CUresult result = use_stream(handle, name, InCapture::refused);
    if (result == CUDA_SUCCESS) result = captures.unsafe();
    if (result != CUDA_SUCCESS) return result;
    return told(device_of(name), result_of(producer_of(name).stream_query(stream_number(name))));
}

CUresult cuStreamSynchronize(CUstream handle) {
    uint32_t name = 0;
    CUresult result = use_stream(handle, name, InCapture::refused);
    if (result == CUDA_SUCCESS) result = captures.unsafe();
    if (result != CUDA_SUCCESS) return result;
    return end_wait(synchronised(device_of(name), producer_of(name).stream_synchronize(stream_number(name))));
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
    uint32_t name = 0;
    if (const CUresult result = use_stream(handle, name); result != CUDA_SUCCESS) return result;
    const Event* const event = event_of(event_handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
        if (!captures.capturing(name))
            return captures.is_over(*event) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_ILLEGAL_STATE;
        return captures.add(name, CU_GRAPH_NODE_TYPE_WAIT_EVENT, [&](Node& node) {
            node.event = event_handle;
            return true;
        });
    }
    if (load_acquire(event->capture) != 0) return captures.join(handle, name, *event);
    if (!captures.capturing(name)) return wait_for_event(name, *event);
    // What is outside the capture would be a dependency that no launch could repeat.
    const bool outside = load_relaxed(event->recorded) != 0;
    return outside ? captures.forbid(name, CUDA_ERROR_STREAM_CAPTURE_ISOLATION) : CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = may_ask(handle, InCapture::refused); result != CUDA_SUCCESS) return result;
    if (!is_default(handle) && stream_of(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *flags = is_default(handle) ? unsigned{CU_STREAM_DEFAULT} : stream_of(handle)->flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = may_ask(handle); result != CUDA_SUCCESS) return result;
    if (!is_default(handle) && stream_of(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *priority = priority_of(handle);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    uint32_t name = 0;
    if (const CUresult result = use_stream(handle, name, InCapture::refused); result != CUDA_SUCCESS)
        return result;
    *id = name + 1;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = may_ask(handle); result != CUDA_SUCCESS) return result;
    if (!is_default(handle) && stream_of(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const Context* of = is_default(handle) ? thread.current() : stream_of(handle)->context;
    if (of == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *context = of->handle;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    uint32_t name = 0;
    if (const CUresult result = use_stream(handle, name, InCapture::refused); result != CUDA_SUCCESS)
        return result;
    *device = device_of(name).ordinal;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue* value) {
    StreamHints* hints = nullptr;
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = find_hints(handle, hints); result != CUDA_SUCCESS) return result;
    *value = {};
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
            value->accessPolicyWindow = hints->window;
            return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
            memcpy(&value->syncPolicy, &hints->policy, sizeof hints->policy);
            return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            value->priority = priority_of(handle);
            return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
            value->memSyncDomainMap = hints->domain_map;
            return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
            value->memSyncDomain = hints->domain;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

// A stream's priority is that with which it was made.
CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue* value) {
    StreamHints* hints = nullptr;
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = find_hints(handle, hints); result != CUDA_SUCCESS) return result;
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
            hints->window = value->accessPolicyWindow;
            return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
            if (value->syncPolicy < CU_SYNC_POLICY_AUTO || value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)
                return CUDA_ERROR_INVALID_VALUE;
            hints->policy = static_cast<int32_t>(value->syncPolicy);
            return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            return value->priority == priority_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
            hints->domain_map = value->memSyncDomainMap;
            return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
            if (value->memSyncDomain < CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT ||
                value->memSyncDomain > CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE)
                return CUDA_ERROR_INVALID_VALUE;
            hints->domain = value->memSyncDomain;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
    StreamHints *target = nullptr, *source = nullptr;
    CUresult result = find_hints(to, target);
    if (result == CUDA_SUCCESS) result = find_hints(from, source);
    if (result == CUDA_SUCCESS) *target = *source;
    return result;
}

// --- events ---

CUresult cuEventCreate(CUevent* handle, unsigned int flags) {
    constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (handle == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    auto* const event = new (std::nothrow) Event();
    if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    event->flags = flags;
    event->device = &current_device();
    event->context = thread.home();
    const Status status = event->device->producer->event_create(event->number);
    if (status != status::success) {
        delete event;
        return result_of(status);
    }
    event->held.keep<end_event>(event->context, *event);
    *handle = reinterpret_cast<CUevent>(event);
    return CUDA_SUCCESS;
}

CUresult end_event(Event& event) {
    Producer& producer = *event.device->producer;
    Status status = status::success;
    event.held.let_go();
    if (event.session != 0) status = producer.stream_destroy(event.asking);
    if (!event.opened && status == status::success) status = producer.event_destroy(event.number);
    wipe(event.magic);
    delete &event;
    return result_of(status);
}

CUresult cuEventDestroy_v2(CUevent handle) {
    Event* const event = event_of(handle);
    return event != nullptr ? end_event(*event) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent handle, CUstream stream) {
    return fikit::shim::cuEventRecordWithFlags(handle, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags) {
    return record_event(handle, stream, flags, nullptr);
}

CUresult record_event(CUevent handle, CUstream stream, unsigned flags, const CUgraphEdgeData* data) {
    uint32_t name = 0;
    if (const CUresult result = use_stream(stream, name); result != CUDA_SUCCESS) return result;
    Event* const event = event_of(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (event->device != &device_of(name) || !is_of(event->context, stream)) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) {
        if (!captures.capturing(name)) return CUDA_ERROR_ILLEGAL_STATE;
        return captures.add(name, CU_GRAPH_NODE_TYPE_EVENT_RECORD, [&](Node& node) {
            node.event = handle;
            return true;
        });
    }
    uint64_t capture = 0;
    if (const CUresult result = captures.record(name, *event, data, capture); result != CUDA_SUCCESS)
        return result;
    store_release(event->capture, capture);
    return capture != 0 ? CUDA_SUCCESS : record_event(name, *event);
}

// The contexts of a device share its session: all of what is in it counts.
CUresult cuCtxRecordEvent(CUcontext handle, CUevent event_handle) {
    const Context* const context = process.find(handle);
    Event* const event = event_of(event_handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult result = captures.forbid_all(*context); result != CUDA_SUCCESS) return result;
    if (event == nullptr || event->device != context->device || event->context != context->home)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->opened) return CUDA_ERROR_NOT_SUPPORTED;
    store_release(event->capture, uint64_t{0});
    store_relaxed(event->recorded, 1u);
    const Status status = event->device->producer->event_record_everywhere(event->number, event->timed());
    return status == status::success ? finish_record(*event) : result_of(status);
}

CUresult cuCtxWaitEvent(CUcontext handle, CUevent event_handle) {
    const Context* const context = process.find(handle);
    const Event* const event = event_of(event_handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult result = captures.forbid_all(*context); result != CUDA_SUCCESS) return result;
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (load_acquire(event->capture) != 0)
        if (const CUresult result = captures.refuse(*event); result != CUDA_SUCCESS) return result;
    Device& device = *context->device;
    if (const CUresult result = process.open(device); result != CUDA_SUCCESS) return result;
    return result_of(device.producer->wait_everywhere(
        [&](uint32_t stream) { return Status{wait_for_event(device.stream(stream), *event)}; }));
}

CUresult cuEventQuery(CUevent handle) {
    Event* const event = event_of(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (load_acquire(event->capture) != 0) return captures.refuse(*event);
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    Device& device = *event->device;
    if (event->session != 0) return told(device, query_shared(*event));
    return told(device, result_of(device.producer->event_query(event->number)));
}

CUresult cuEventSynchronize(CUevent handle) {
    const Event* const event = event_of(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (load_acquire(event->capture) != 0) return captures.refuse(*event);
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    if (event->session != 0) return end_wait(synchronize_shared(*event));
    return end_wait(synchronised(*event->device, event->device->producer->event_synchronize(event->number)));
}

namespace {

// A record that was captured tells of no work.
CUresult has_time(const Event& event) {
    if (load_acquire(event.capture) != 0) return CUDA_ERROR_INVALID_VALUE;
    const bool timed = (event.flags & CU_EVENT_DISABLE_TIMING) == 0 && load_relaxed(event.recorded) != 0;
    return timed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

CUresult cuEventElapsedTime(float* milliseconds, CUevent start_handle, CUevent end_handle) {
    const Event* const start = event_of(start_handle);
    const Event* const end = event_of(end_handle);
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (start == nullptr || end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = has_time(*start);
    if (result == CUDA_SUCCESS) result = has_time(*end);
    if (result != CUDA_SUCCESS) return result;
    if (start->device != end->device) return CUDA_ERROR_INVALID_HANDLE;
    double elapsed = 0;
    const Status status = start->device->producer->event_elapsed(start->number, end->number, elapsed);
    if (status == status::success) *milliseconds = static_cast<float>(elapsed);
    return result_of(status);
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
    return fikit::shim::cuEventElapsedTime(milliseconds, start, end);
}

}  // namespace fikit::shim
