// Memory and events of another process (cuIpc). Opened memory is memory of one's own that is mapped, so
// closing it, or the session's end, is nothing special. An event that processes share is one that a stream of
// each can record and wait for: to be asked for, it has a stream of its own that waits, also where it was
// made.
#include <string.h>

#include <new>

#include "entry.hpp"
#include "objects.hpp"
#include "printed.hpp"
#include "ranges.hpp"
#include "served.hpp"
#include "sharing.hpp"

namespace fikit::shim {
namespace {

struct SharedEvent {
    uint32_t magic;
    uint32_t session, number, flags;
    uint8_t executor[FIKIT_IDENTITY];
};
constexpr uint32_t shared_event_magic = 0x46455653;
constexpr int64_t look_ns = 2'000'000, first_look_ns = 1'000'000'000;
static_assert(sizeof(SharedEvent) <= sizeof(CUipcEventHandle));

CUresult share(Event& event, uint32_t session) {
    if (event.session != 0) return CUDA_SUCCESS;
    const Status status = event.device->producer->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, event.asking);
    if (status != status::success) return result_of(status);
    event.session = session;
    if (event.opened) return CUDA_SUCCESS;
    // The executor makes an event when it is first recorded; one that it knows is what others record.
    uint32_t stream = 0;
    uint64_t step = 0;
    event.device->producer->event_step(event.number, stream, step);
    return step != 0 ? CUDA_SUCCESS : record_event(event.device->stream(event.asking), event);
}

}  // namespace

// --- memory ---

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
    Range range;
    if (handle == nullptr || !ranges.find(address, range) || range.kind != Range::Kind::device ||
        range.pool != nullptr || range.device != current_device().ordinal)
        return CUDA_ERROR_INVALID_VALUE;
    SharedMemory shared;
    const CUresult result = export_memory(range.address, 0, shared);
    if (result != CUDA_SUCCESS) return result;
    memset(handle, 0, sizeof *handle);
    memcpy(handle->reserved, &shared, sizeof shared);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
    SharedMemory shared;
    fikit_reply_session_identity own{};
    memcpy(&shared, handle.reserved, sizeof shared);
    if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = identity(current_device(), own); result != CUDA_SUCCESS) return result;
    if (shared.magic != shared_memory_magic ||
        memcmp(own.executor, shared.executor, sizeof own.executor) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    if (own.session == shared.session) return CUDA_ERROR_INVALID_CONTEXT;  // its own memory
    uint64_t opened = 0;
    const CUresult result = open_memory(shared, 1, current_device(), true, opened);
    if (result == CUDA_SUCCESS) *address = opened;
    return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
    return fikit::shim::cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    Range range;
    if (!ranges.find(address, range) || range.kind != Range::Kind::mapped) return CUDA_ERROR_INVALID_VALUE;
    if (const Status status = process.device(range.device).producer->settle()) return result_of(status);
    return close_memory(address, true);
}

// --- events ---

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event_handle) {
    Event* const event = event_of(event_handle);
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (event == nullptr || event->opened || (event->flags & CU_EVENT_INTERPROCESS) == 0 ||
        event->device != &current_device())
        return CUDA_ERROR_INVALID_HANDLE;
    fikit_reply_session_identity own{};
    if (const CUresult result = identity(current_device(), own); result != CUDA_SUCCESS) return result;
    if (const CUresult result = share(*event, own.session); result != CUDA_SUCCESS) return result;
    SharedEvent shared = {shared_event_magic, own.session, event->number, event->flags, {}};
    memcpy(shared.executor, own.executor, sizeof shared.executor);
    memset(handle, 0, sizeof *handle);
    memcpy(handle->reserved, &shared, sizeof shared);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent* handle, CUipcEventHandle from) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    SharedEvent shared;
    fikit_reply_session_identity own{};
    memcpy(&shared, from.reserved, sizeof shared);
    if (const CUresult result = identity(current_device(), own); result != CUDA_SUCCESS) return result;
    if (shared.magic != shared_event_magic || shared.number >= FIKIT_MAX_EVENTS ||
        memcmp(own.executor, shared.executor, sizeof own.executor) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    if (own.session == shared.session) return CUDA_ERROR_INVALID_CONTEXT;
    auto* const event = new (std::nothrow) Event();
    if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    event->device = &current_device();
    event->context = thread.home();
    event->flags = shared.flags;
    event->opened = true;
    event->number = shared.number;
    if (const CUresult result = share(*event, shared.session); result != CUDA_SUCCESS) {
        delete event;
        return result;
    }
    event->held.keep<end_event>(event->context, *event);
    *handle = reinterpret_cast<CUevent>(event);
    return CUDA_SUCCESS;
}

// Apart, as cuEventQuery, which rarely comes to it, would save more registers.
[[gnu::noinline]] CUresult query_shared(Event& event) {
    Producer& producer = *event.device->producer;
    if (!event.asked) {
        Status status = producer.event_wait_other(event.session, event.number, event.asking, true);
        if (status != status::success) return result_of(status);
        // What is over is to be found so at the first query, also where the executor is kept from running for
        // a while: it marks that itself, before it says that it has read of it.
        const Channel& channel = producer.channel();
        const auto is_read = [&channel, written = channel.written()] { return channel.is_read(written); };
        const int64_t until = now_ns() + first_look_ns;
        do {
            status = channel.wait_until(is_read, now_ns() + look_ns);  // reading wakes nobody
        } while (status == status::not_ready && now_ns() < until);
        if (status == status::success || status == status::not_ready)
            status = producer.stream_query(event.asking);
        event.asked = status == status::not_ready;
        return result_of(status);
    }
    const Status status = producer.stream_query(event.asking);
    if (status == status::success) event.asked = false;
    return result_of(status);
}

CUresult synchronize_shared(const Event& event) {
    Producer& producer = *event.device->producer;
    const Status status = producer.event_wait_other(event.session, event.number, event.asking);
    return synchronised(*event.device,
                        status == status::success ? producer.stream_synchronize(event.asking) : status);
}

CUresult record_event(uint32_t stream, Event& event) {
    Producer& producer = producer_of(stream);
    const uint32_t number = stream_number(stream);
    store_relaxed(event.recorded, 1u);
    const Status status = event.opened ? producer.event_record_other(event.session, event.number, number)
                                       : producer.event_record(event.number, number, event.timed());
    return status == status::success ? finish_record(event) : result_of(status);
}

CUresult finish_record(const Event& event) {
    fikit_reply_session_identity own{};
    return (event.flags & CU_EVENT_INTERPROCESS) != 0 ? identity(*event.device, own) : CUDA_SUCCESS;
}

}  // namespace fikit::shim
