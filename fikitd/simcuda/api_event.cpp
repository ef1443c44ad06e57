// Events.
#include "capture.hpp"
#include "event.hpp"
#include "pool.hpp"

using namespace fikit::sim;

namespace {

template <typename Body>
CUresult with_event(CUevent handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        Event* event = driver.events.find(handle);
        if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        driver.advance(driver.device_of(*event->context));
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        return body(driver, lock, *event);
    });
}

CUresult elapsed(float* milliseconds, CUevent start, CUevent end) {
    return with_event(end, [&](Driver& driver, Driver::Lock&, Event& last) -> CUresult {
        const Event* first = driver.events.find(start);
        if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (first == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        for (const Event* event : {first, static_cast<const Event*>(&last)}) {
            if (event->capture.capture) return CUDA_ERROR_INVALID_VALUE;  // it tells of no work
            if (!event->timing() || !event->record) return CUDA_ERROR_INVALID_HANDLE;
        }
        if (first->context->device != last.context->device) return CUDA_ERROR_INVALID_HANDLE;
        if (!driver.visible(first->record) || !driver.visible(last.record)) return CUDA_ERROR_NOT_READY;
        *milliseconds = static_cast<float>(
            static_cast<double>(last.record->completed_at - first->record->completed_at) / 1e6);
        return CUDA_SUCCESS;
    });
}

}  // namespace

CUresult fikit::sim::record_event(CUevent handle, CUstream where, unsigned flags,
                                  const CUgraphEdgeData* data) {
    return with_stream(where,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0)
                               return CUDA_ERROR_INVALID_VALUE;
                           Event* event = driver.events.find(handle);
                           if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                           if (&home_of(*event->context) != &home_of(*stream.context))
                               return CUDA_ERROR_INVALID_HANDLE;
                           if (flags != 0 && !stream.capture.capture)
                               return CUDA_ERROR_ILLEGAL_STATE;  // external: to a capture
                           if (const auto captured = capture_record(driver, stream, *event, flags, data))
                               return *captured;
                           driver.enqueue(stream, new_record(*event));
                           return CUDA_SUCCESS;
                       });
}

CUresult fikit::sim::record_event(Driver& driver, Context& context, CUevent handle) {
    if (const CUresult result = refuse_in_capture(driver, context); result != CUDA_SUCCESS) return result;
    Event* const event = driver.events.find(handle);
    if (event == nullptr || &home_of(*event->context) != &home_of(context)) return CUDA_ERROR_INVALID_HANDLE;
    event->capture = {};
    driver.join(context, new_record(*event));
    return CUDA_SUCCESS;
}

CUresult fikit::sim::wait_for_event(Driver& driver, Context& context, CUevent handle) {
    if (const CUresult result = refuse_in_capture(driver, context); result != CUDA_SUCCESS) return result;
    Event* const event = driver.events.find(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult result = refuse_captured(*event); result != CUDA_SUCCESS) return result;
    const OperationPtr record = record_of(driver, *event);
    if (!record || record->done) return CUDA_SUCCESS;
    driver.enqueue(context.legacy, std::make_shared<Operation>(), record);
    for (Stream* stream : context.streams) driver.enqueue(*stream, std::make_shared<Operation>(), record);
    return CUDA_SUCCESS;
}

extern "C" {

CUresult cuEventCreate(CUevent* handle, unsigned int flags) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        if (handle == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
        const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
        if (shared && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
        auto event = std::make_shared<Event>();
        event->context = &home_of(context);
        event->flags = flags;
        if (shared && !(event->shared = SharedEvent::create(driver.space))) return CUDA_ERROR_OUT_OF_MEMORY;
        *handle = driver.events.add(std::move(event));
        return CUDA_SUCCESS;
    });
}

CUresult cuEventDestroy_v2(CUevent handle) {
    return with_event(handle, [&](Driver& driver, Driver::Lock&, Event& event) {
        driver.events.remove(&event);
        return CUDA_SUCCESS;
    });
}
CUresult cuEventDestroy(CUevent handle) { return cuEventDestroy_v2(handle); }

CUresult cuEventRecord(CUevent event, CUstream stream) { return record_event(event, stream, 0, nullptr); }

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
    return record_event(event, stream, flags, nullptr);
}

CUresult cuEventQuery(CUevent handle) {
    return with_event(handle, [](Driver& driver, Driver::Lock&, Event& event) -> CUresult {
        if (const CUresult result = refuse_captured(event); result != CUDA_SUCCESS) return result;
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        return driver.visible(record_of(driver, event)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}

CUresult cuEventSynchronize(CUevent handle) {
    return with_event(handle, [](Driver& driver, Driver::Lock& lock, Event& event) -> CUresult {
        if (const CUresult result = refuse_captured(event); result != CUDA_SUCCESS) return result;
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        // The event may be recorded again or destroyed meanwhile: what counts is the record of now.
        const OperationPtr record = record_of(driver, event);
        return end_wait(driver, driver.wait(lock, driver.device_of(*event.context), record));
    });
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
    return elapsed(milliseconds, start, end);
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
    return elapsed(milliseconds, start, end);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent shared) {
    return with_event(shared, [&](Driver&, Driver::Lock&, Event& event) -> CUresult {
        if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        // Who has opened one hands it on to nobody.
        if ((event.flags & CU_EVENT_INTERPROCESS) == 0) return CUDA_ERROR_INVALID_HANDLE;
        *handle = event.shared->handle();
        return CUDA_SUCCESS;
    });
}

CUresult cuIpcOpenEventHandle(CUevent* opened, CUipcEventHandle handle) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (opened == nullptr) return CUDA_ERROR_INVALID_VALUE;
        auto event = std::make_shared<Event>();
        event->context = &home_of(context);
        event->flags = CU_EVENT_DISABLE_TIMING;
        if (const CUresult result = SharedEvent::open(driver.space, handle, event->shared);
            result != CUDA_SUCCESS)
            return result;
        *opened = driver.events.add(std::move(event));
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
