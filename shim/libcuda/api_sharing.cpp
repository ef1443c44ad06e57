// Memory and events of another process (cuIpc). Opened memory is memory of one's own that is mapped, so
// closing it, or the session's end, is nothing special. An event of another session's is one that a stream
// can wait for: to be asked for, it has a stream of its own that does.
#include <string.h>

#include <new>

#include "entry.hpp"
#include "objects.hpp"
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
static_assert(sizeof(SharedEvent) <= sizeof(CUipcEventHandle));

struct Opened {
    const Device* device;
    uint32_t number;  // of the memory, as the executor calls it
    uint32_t uses;
    uint64_t address, size;  // of the mapping
    CUmemGenericAllocationHandle memory;
    Opened* next;
};
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Opened* all_opened = nullptr;

CUresult identity(const Device& device, fikit_reply_session_identity& answer) {
    const fikit_request_session_identity request = {};
    Reply reply = {&answer, sizeof answer, 0};
    return result_of(device.producer->call(fikit_call_session_identity, {&request, sizeof request}, reply));
}

// Memory where it can be used; nothing is left of it after a failure.
CUresult map(const SharedMemory& shared, Opened& opened) {
    CUresult result = import_memory(shared, opened.memory);
    if (result != CUDA_SUCCESS) return result;
    opened.size = shared.size;
    CUdeviceptr address = 0;
    result = fikit::shim::cuMemAddressReserve(&address, opened.size, 0, 0, 0);
    if (result == CUDA_SUCCESS) {
        const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {opened.device->ordinal}},
                                        CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        result = fikit::shim::cuMemMap(address, opened.size, 0, opened.memory, 0);
        if (result == CUDA_SUCCESS) {
            result = fikit::shim::cuMemSetAccess(address, opened.size, &access, 1);
            if (result != CUDA_SUCCESS) fikit::shim::cuMemUnmap(address, opened.size);
        }
        if (result != CUDA_SUCCESS) fikit::shim::cuMemAddressFree(address, opened.size);
    }
    if (result != CUDA_SUCCESS) fikit::shim::cuMemRelease(opened.memory);
    opened.address = address;
    return result;
}

}  // namespace

// --- memory ---

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
    Range range;
    if (handle == nullptr || !ranges.find(address, range) || range.kind != Range::Kind::device ||
        range.device != current_device().ordinal)
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
    const bool here = memcmp(own.executor, shared.executor, sizeof own.executor) == 0;
    if (here && own.session == shared.session) return CUDA_ERROR_INVALID_CONTEXT;  // its own memory
    const Locked lock(mutex);
    Opened* opened = all_opened;
    while (opened != nullptr &&
           (!here || opened->number != shared.number || opened->device != &current_device()))
        opened = opened->next;
    if (opened == nullptr) {
        opened = new (std::nothrow) Opened{&current_device(), shared.number, 0, 0, 0, 0, all_opened};
        if (opened == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
        if (const CUresult result = map(shared, *opened); result != CUDA_SUCCESS) {
            delete opened;
            return result;
        }
        all_opened = opened;
    }
    if (shared.offset >= opened->size) return CUDA_ERROR_INVALID_HANDLE;
    ++opened->uses;
    *address = opened->address + shared.offset;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
    return fikit::shim::cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    const Locked lock(mutex);
    Opened** at = &all_opened;
    while (*at != nullptr && address - (*at)->address >= (*at)->size) at = &(*at)->next;
    Opened* const opened = *at;
    if (opened == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (--opened->uses != 0) return CUDA_SUCCESS;
    CUresult result = fikit::shim::cuMemUnmap(opened->address, opened->size);
    if (result == CUDA_SUCCESS) result = fikit::shim::cuMemAddressFree(opened->address, opened->size);
    if (result == CUDA_SUCCESS) result = fikit::shim::cuMemRelease(opened->memory);
    *at = opened->next;
    delete opened;
    return result;
}

// --- events ---

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event_handle) {
    const Event* const event = event_of(event_handle);
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (event == nullptr || event->session != 0 || (event->flags & CU_EVENT_INTERPROCESS) == 0 ||
        event->device != &current_device())
        return CUDA_ERROR_INVALID_HANDLE;
    fikit_reply_session_identity own{};
    if (const CUresult result = identity(current_device(), own); result != CUDA_SUCCESS) return result;
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
    event->flags = shared.flags;
    event->session = shared.session;
    event->number = shared.number;
    if (const Status status = current_producer().stream_create(FIKIT_STREAM_NON_BLOCKING, 0, event->asking)) {
        delete event;
        return result_of(status);
    }
    *handle = reinterpret_cast<CUevent>(event);
    return CUDA_SUCCESS;
}

CUresult query_shared(Event& event) {
    Producer& producer = *event.device->producer;
    if (!event.asked) {
        const Status status = producer.event_wait_other(event.session, event.number, event.asking);
        if (status != status::success) return result_of(status);
        event.asked = true;
    }
    const Status status = producer.stream_query(event.asking);
    if (status == status::success) event.asked = false;
    return result_of(status);
}

CUresult synchronize_shared(const Event& event) {
    Producer& producer = *event.device->producer;
    const Status status = producer.event_wait_other(event.session, event.number, event.asking);
    return result_of(status == status::success ? producer.stream_synchronize(event.asking) : status);
}

CUresult finish_record(const Event& event) {
    fikit_reply_session_identity own{};
    return (event.flags & CU_EVENT_INTERPROCESS) != 0 ? identity(*event.device, own) : CUDA_SUCCESS;
}

}  // namespace fikit::shim
