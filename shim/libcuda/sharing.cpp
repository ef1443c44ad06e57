#include "sharing.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "entry.hpp"
#include "memory_map.hpp"
#include "ranges.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

struct Opened {
    Device* device;
    uint32_t number;  // of the memory, as the executor calls it
    bool whole;
    uint32_t uses;
    uint64_t address, size;  // of the mapping
    CUmemGenericAllocationHandle memory;
    Opened* next;
};
struct Closing {
    uint64_t address;
    bool whole;
    uint32_t stream;
    uint64_t step;
    Closing* next;
};
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Opened* all_opened = nullptr;
Closing* all_closing = nullptr;

// Nothing is left of it after a failure.
CUresult map(const SharedMemory& shared, Opened& opened) {
    CUresult result = import_memory(shared, *opened.device, opened.memory);
    if (result != CUDA_SUCCESS) return result;
    opened.size = shared.size;
    result = reserve_addresses(*opened.device, opened.size, 0, 0, opened.address);
    if (result == CUDA_SUCCESS) {
        const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {opened.device->ordinal}},
                                        CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        result = fikit::shim::cuMemMap(opened.address, opened.size, 0, opened.memory, 0);
        if (result == CUDA_SUCCESS) {
            result = fikit::shim::cuMemSetAccess(opened.address, opened.size, &access, 1);
            if (result != CUDA_SUCCESS) unmap_memory(*opened.device, opened.address, opened.size);
        }
        if (result != CUDA_SUCCESS) fikit::shim::cuMemAddressFree(opened.address, opened.size);
    }
    if (result != CUDA_SUCCESS) fikit::shim::cuMemRelease(opened.memory);
    Range range;
    if (result == CUDA_SUCCESS && !opened.whole) ranges.take(opened.address, Range::Kind::mapped, range);
    return result;
}

CUresult unmap(const Opened& opened) {
    CUresult result = unmap_memory(*opened.device, opened.address, opened.size);
    if (result == CUDA_SUCCESS) result = fikit::shim::cuMemAddressFree(opened.address, opened.size);
    return result == CUDA_SUCCESS ? fikit::shim::cuMemRelease(opened.memory) : result;
}

}  // namespace

CUresult identity(const Device& device, fikit_reply_session_identity& answer) {
    const fikit_request_session_identity request = {};
    Reply reply = {&answer, sizeof answer, 0};
    return result_of(device.producer->call(fikit_call_session_identity, {&request, sizeof request}, reply));
}

CUresult open_memory(const SharedMemory& shared, uint64_t bytes, Device& device, bool whole,
                     uint64_t& address) {
    settle_closed_memory();
    const Locked lock(mutex);
    Opened* opened = all_opened;
    while (opened != nullptr &&
           (opened->number != shared.number || opened->device != &device || opened->whole != whole))
        opened = opened->next;
    if (opened == nullptr) {
        opened = new (std::nothrow) Opened{&device, shared.number, whole, 0, 0, 0, 0, all_opened};
        if (opened == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
        if (const CUresult result = map(shared, *opened); result != CUDA_SUCCESS) {
            delete opened;
            return result;
        }
        all_opened = opened;
    }
    const bool inside = shared.offset < opened->size && bytes <= opened->size - shared.offset;
    if (inside) {
        ++opened->uses;
        address = opened->address + shared.offset;
    } else if (opened->uses == 0) {
        all_opened = opened->next;
        unmap(*opened);
        delete opened;
    }
    return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult close_memory(uint64_t address, bool whole) {
    Opened* opened = nullptr;
    {
        const Locked lock(mutex);
        Opened** at = &all_opened;
        while (*at != nullptr && (address - (*at)->address >= (*at)->size || (*at)->whole != whole))
            at = &(*at)->next;
        opened = *at;
        if (opened == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (--opened->uses != 0) return CUDA_SUCCESS;
        *at = opened->next;
    }
    const CUresult result = unmap(*opened);
    delete opened;
    return result;
}

bool memory_is_closing = false;

CUresult close_memory_behind(uint32_t stream, uint64_t address, bool whole) {
    uint64_t step = 0;
    if (const Status status = producer_of(stream).mark_stream(stream_number(stream), step))
        return result_of(status);
    auto* const closing = new (std::nothrow) Closing{address, whole, stream, step, nullptr};
    if (closing == nullptr) {
        const Status status = producer_of(stream).stream_settle(stream_number(stream));
        return status == status::success ? close_memory(address, whole) : result_of(status);
    }
    const Locked lock(mutex);
    closing->next = all_closing;
    all_closing = closing;
    store_relaxed(memory_is_closing, true);
    return CUDA_SUCCESS;
}

void settle_closed_memory() {
    Closing* done = nullptr;
    {
        const Locked lock(mutex);
        for (Closing** at = &all_closing; *at != nullptr;) {
            Closing* const closing = *at;
            if (!producer_of(closing->stream).reached(stream_number(closing->stream), closing->step)) {
                at = &closing->next;
                continue;
            }
            *at = closing->next;
            closing->next = done;
            done = closing;
        }
        store_relaxed(memory_is_closing, all_closing != nullptr);
    }
    while (done != nullptr) {
        Closing* const closing = done;
        done = closing->next;
        close_memory(closing->address, closing->whole);
        delete closing;
    }
}

CUresult publish(const void* content, size_t bytes, int& descriptor) {
    const Uncancelled whole;
    const int made = memfd_create("fikit-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    if (write(made, content, bytes) != static_cast<ssize_t>(bytes) ||
        fcntl(made, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
        close(made);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    descriptor = made;
    return CUDA_SUCCESS;
}

CUresult read_published(int descriptor, uint32_t magic, void* content, size_t bytes) {
    const Uncancelled whole;
    uint32_t found = 0;
    if (pread(descriptor, &found, sizeof found, 0) != static_cast<ssize_t>(sizeof found) ||
        (found != shared_memory_magic && found != shared_pool_magic))
        return CUDA_ERROR_UNKNOWN;
    if (found != magic) return CUDA_ERROR_NOT_SUPPORTED;
    return pread(descriptor, content, bytes, 0) == static_cast<ssize_t>(bytes) ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_UNKNOWN;
}

}  // namespace fikit::shim
