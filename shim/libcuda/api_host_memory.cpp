// Pinned and registered host memory.
#include <sys/mman.h>
#include <unistd.h>

#include "../pinned_chunks.hpp"
#include "adopted_pages.hpp"
#include "capture.hpp"
#include "entry.hpp"
#include "host_memory.hpp"
#include "memory_map.hpp"
#include "objects.hpp"
#include "served.hpp"
#include "shared_file.hpp"
#include "slabs.hpp"

namespace fikit::shim {
namespace {

// Until no work of the program's uses the range any more.
CUresult settle(const Range& range) {
    for (unsigned i = 0; i < process.device_count(); ++i) {
        Producer* const producer = load_acquire(process.device(i).producer);
        const Status status = producer != nullptr ? producer->settle() : status::success;
        if (i == range.device && status != status::success) return result_of(status);
    }
    return CUDA_SUCCESS;
}

uint64_t first_page(const Range& range) { return range.address / FIKIT_PAGE * FIKIT_PAGE; }
uint64_t bytes_of_pages(const Range& range) {
    const uint64_t bytes = range.address + range.bytes - first_page(range);
    return (bytes + FIKIT_PAGE - 1) / FIKIT_PAGE * FIKIT_PAGE;
}

// Pages of the program's that the executor maps, too, and where the GPU has them.
struct Reached {
    Device* device = nullptr;
    uint32_t handle = 0;
    uint64_t first = 0, bytes = 0, device_address = 0;

    void tell(Range& range) const {
        range.device = static_cast<uint8_t>(device->ordinal);
        range.device_address = device_address + (range.address - first);
        range.handle = handle;
    }
};

// Whether the program has anything at all there: MS_ASYNC writes nothing, but finds holes (msync(2)).
bool is_mapped(const Range& range) {
    const bool ends = range.address + range.bytes > range.address;
    return ends && msync(reinterpret_cast<void*>(first_page(range)), bytes_of_pages(range), MS_ASYNC) == 0;
}

// Registered memory that is a file's, and shared, is one that the executor maps as well: the GPU reaches it,
// at its own address, or at another one where the executor has something else there.
CUresult share(Reached& reached, int file, uint64_t offset, Device& device) {
    reached.device = &device;
    HostBuffer buffer{};
    const Status status = reached.device->producer->host_register(
        reinterpret_cast<const uint8_t*>(reached.first), reached.bytes, file, offset, reached.handle, buffer);
    reached.device_address = buffer.device_address;
    return result_of(status);
}

// What the program has at another address is that memory again, so it is pinned memory to all calls.
CUresult share_file(Range& range) {
    Reached reached = {.first = first_page(range), .bytes = bytes_of_pages(range)};
    if (AdoptedPages pages; find_adopted(reached.first, reached.bytes, pages))
        return CUDA_ERROR_NOT_SUPPORTED;
    const SharedFile file(reached.first, reached.bytes);
    if (!file) return CUDA_ERROR_NOT_SUPPORTED;
    const CUresult result = share(reached, file.descriptor(), file.offset(), current_device());
    if (result != CUDA_SUCCESS) return result;
    const Range again = {.address = reached.device_address,
                         .bytes = reached.bytes,
                         .device_address = reached.device_address,
                         .flags = range.flags,
                         .kind = Range::Kind::pinned,
                         .device = static_cast<uint8_t>(reached.device->ordinal)};
    if (again.address != reached.first && !ranges.add(again)) {
        reached.device->producer->host_free(reached.handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reached.tell(range);
    return CUDA_SUCCESS;
}

// All pages of what is registered there, and of what is registered beside it on the same pages and is not
// reached yet. False: some of it is no such memory.
bool find_pages(uint64_t address, uint64_t& first, uint64_t& end) {
    Range range;
    if (!ranges.find(address, range)) return false;
    first = first_page(range);
    end = first + bytes_of_pages(range);
    for (uint64_t from = first; from < end && ranges.meet(from, end - from, range);) {
        if (range.kind != Range::Kind::registered) return false;
        const uint64_t begins = first_page(range), ends = begins + bytes_of_pages(range);
        from = range.address + range.bytes;
        if (range.handle != 0) continue;
        if (begins < first) from = first = begins;
        end = ends > end ? ends : end;
    }
    return true;
}

// Pages of the program's own that the GPU is to reach where the program has them.
bool reach_pages(uint64_t first, uint64_t bytes, Device& device) {
    Reached reached = {.first = first, .bytes = bytes};
    const int file = adopt_pages(first, bytes);
    if (file < 0) return false;
    const CUresult result = share(reached, file, 0, device);
    close(file);
    if (result == CUDA_SUCCESS && reached.device_address == first) {
        note_reached(first, reached.handle, static_cast<unsigned>(device.ordinal));
        return true;
    }
    if (result == CUDA_SUCCESS) device.producer->host_free(reached.handle);
    give_back_pages(first);
    return false;
}

// Those of them that nothing registered needs which is reached, or is to be, are the program's alone again.
CUresult leave_pages(uint64_t first, uint64_t end) {
    CUresult result = CUDA_SUCCESS;
    AdoptedPages pages;
    for (; first < end && find_adopted(first, end - first, pages); first = pages.end()) {
        bool needed = false;
        Range range;
        for (uint64_t from = pages.first; from < pages.end() && ranges.meet(from, pages.end() - from, range);
             from = range.address + range.bytes)
            needed |= range.kind == Range::Kind::registered && range.handle != 0;
        if (needed) continue;
        const CUresult freed = result_of(process.device(pages.gpu).producer->host_free(pages.handle));
        result = result == CUDA_SUCCESS ? freed : result;
        give_back_pages(pages.first);
    }
    return result;
}

pthread_mutex_t reach_mutex = PTHREAD_MUTEX_INITIALIZER;

// The GPU does not reach it where the program has it.
void note_unreached(const Range& range) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    const Locked lock(mutex);
    if (range.address < unreached_begin) store_relaxed(unreached_begin, range.address);
    if (range.address + range.bytes > unreached_end)
        store_relaxed(unreached_end, range.address + range.bytes);
}

}  // namespace

uint64_t unreached_begin = UINT64_MAX, unreached_end = 0;

// Registered memory that lies within the bounds of what kernels have not reached.
static bool was_unreached(uint64_t address, Range& range) {
    if (address < load_relaxed(unreached_begin) || address >= load_relaxed(unreached_end)) return false;
    return ranges.find(address, range) && range.kind == Range::Kind::registered;
}

bool is_unreached(uint64_t address) {
    Range range;
    return was_unreached(address, range) && (range.handle == 0 || range.device_address != range.address);
}

bool is_unreached(uint64_t address, unsigned device) {
    Range range;
    return was_unreached(address, range) &&
           (range.handle == 0 || range.device_address != range.address || range.device != device);
}

// Private memory is shared when the program says that the GPU is to reach it, or when a kernel, or a stream,
// is first given its address; and only if the executor can have it there, too. Of what is copied alone
// nothing need change.
bool make_reachable(uint64_t address, Device& device) {
    const Uncancelled whole;
    const Locked lock(reach_mutex);
    const auto gpu = static_cast<unsigned>(device.ordinal);
    uint64_t first = 0, end = 0;
    if (!is_unreached(address, gpu)) return true;
    if (!find_pages(address, first, end)) return false;
    // What lies on pages that are reached already, for what is registered beside it, needs the others.
    AdoptedPages pages;
    for (uint64_t at = first; at < end; at = pages.end()) {
        if (!find_adopted(at, end - at, pages)) pages = {.first = end, .gpu = gpu};
        const bool reached =
            pages.gpu == gpu && (pages.first <= at || reach_pages(at, pages.first - at, device));
        if (reached) continue;
        leave_pages(first, end);
        return false;
    }
    Range range;
    for (uint64_t from = first; from < end && ranges.meet(from, end - from, range);
         from = range.address + range.bytes) {
        if (range.handle != 0 || !find_adopted(first_page(range), FIKIT_PAGE, pages)) continue;
        range.device = static_cast<uint8_t>(gpu);
        range.device_address = range.address;
        range.handle = pages.handle;
        ranges.add(range);  // it is there
    }
    return true;
}

// What is registered beside it on the same pages remains.
CUresult unregister(const Range& range) {
    if (range.handle == 0) return CUDA_SUCCESS;
    CUresult result = settle(range);
    const uint64_t first = first_page(range), bytes = bytes_of_pages(range);
    const Locked lock(reach_mutex);
    if (AdoptedPages pages; find_adopted(first, bytes, pages)) {
        const CUresult left = leave_pages(first, first + bytes);
        return result == CUDA_SUCCESS ? left : result;
    }
    if (result != CUDA_SUCCESS || ranges.any_has(Range::Kind::registered, range.device, range.handle))
        return result;
    Range reached;
    ranges.take(range.device_address / FIKIT_PAGE * FIKIT_PAGE, Range::Kind::pinned, reached);
    return result_of(process.device(range.device).producer->host_free(range.handle));
}

CUresult allocate_host(Device& device, uint64_t bytes, Range& range) {
    uint32_t handle = 0;
    HostBuffer buffer{};
    const bool managed = range.kind == Range::Kind::managed;
    range.bytes = bytes;
    range.device = static_cast<uint8_t>(device.ordinal);
    if (bytes <= Slabs::largest_piece &&
        slabs.take(device, bytes, range.address, range.handle) == CUDA_SUCCESS) {
        range.device_address = range.address;
        if (ranges.add(range)) return CUDA_SUCCESS;
        slabs.give_back(device, range.handle, range.address, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const Status status = device.producer->host_allocate(bytes, handle, buffer);
    if (status != status::success) return result_of(status);
    range.address = reinterpret_cast<uintptr_t>(buffer.address);
    range.device_address = buffer.device_address;
    range.handle = handle;
    const bool one_address = range.device_address == range.address;
    if ((one_address || !managed) && ranges.add(range)) return CUDA_SUCCESS;
    device.producer->host_free(handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

namespace {

pthread_mutex_t chunks_mutex = PTHREAD_MUTEX_INITIALIZER;
PinnedChunks chunks;

void join_chunk(Range& range, size_t bytes, unsigned flags) {
    const Locked lock(chunks_mutex);
    uint64_t place = 0;
    range.flags = chunks.add(range.context, bytes, flags, place);
    range.place = static_cast<uint32_t>(place / PinnedChunks::unit);
    if (range.place * PinnedChunks::unit == place) return;
    chunks.remove(place);  // too far behind: it is alone
    range.place = 0;
}
void leave_chunk(uint32_t place) {
    const Locked lock(chunks_mutex);
    chunks.remove(place * PinnedChunks::unit);
}

}  // namespace

// Work may still use it, and the program may get the same address again.
CUresult free_host(const Range& range) {
    if (const CUresult result = settle(range); result != CUDA_SUCCESS) return result;
    if (range.kind == Range::Kind::pinned && range.pool == nullptr) leave_chunk(range.place);
    if (range.advice != nullptr) forget(range.advice);
    Device& device = process.device(range.device);
    if (slabs.give_back(device, range.handle, range.address, range.bytes)) return CUDA_SUCCESS;
    return result_of(device.producer->host_free(range.handle));
}

namespace {

CUresult allocate_pinned(void** address, size_t bytes, unsigned flags) {
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *address = nullptr;
    if (bytes == 0) return CUDA_SUCCESS;
    Range range = {.kind = Range::Kind::pinned, .context = thread.home()};
    join_chunk(range, bytes, flags);
    const CUresult result = allocate_host(current_device(), bytes, range);
    if (result == CUDA_SUCCESS)
        *address = reinterpret_cast<void*>(range.address);
    else
        leave_chunk(range.place);
    return result;
}

}  // namespace

CUresult cuMemAllocHost_v2(void** address, size_t bytes) { return allocate_pinned(address, bytes, 0); }

CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned int flags) {
    constexpr unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if ((flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    return allocate_pinned(address, bytes, flags);
}

CUresult cuMemFreeHost(void* address) {
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    Range range;
    if (address == nullptr) return CUDA_SUCCESS;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if ((ranges.find(at, range) && range.host_pooled()) || !ranges.take(at, Range::Kind::pinned, range))
        return CUDA_ERROR_INVALID_VALUE;
    return free_host(range);
}

// What an H200 has against registering these bytes beside others.
static CUresult check_neighbours(uint64_t at, uint64_t bytes, unsigned flags) {
    Range range;
    const bool meets = ranges.meet(at, bytes, range);
    // No memory of a process is a device's registers; that they overlap only at their end goes unnoticed.
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) {
        const bool noticed = meets && (range.address <= at || range.address + range.bytes <= at + bytes);
        return noticed ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_INVALID_VALUE;
    }
    if (meets) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    // What shares a page is read-only, or none of it is.
    const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    const uint64_t end = (at + bytes + FIKIT_PAGE - 1) / FIKIT_PAGE * FIKIT_PAGE;
    uint64_t from = at / FIKIT_PAGE * FIKIT_PAGE;
    for (; from < end && ranges.meet(from, end - from, range); from = range.address + range.bytes)
        if (range.kind == Range::Kind::registered && range.read_only() != read_only)
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// Other pages of the program's than a file's the GPU does not see until a kernel is to: copies go through the
// staging area as for any memory. A kernel that is given an address which cannot be shared is refused
// (launches.hpp).
CUresult cuMemHostRegister_v2(void* address, size_t bytes, unsigned int flags) {
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    constexpr unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                               CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if ((flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    const Uncancelled whole;
    Range range;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if ((ranges.find(at, range) && range.kind != Range::Kind::registered) ||
        find_reservation(at).device != nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_neighbours(at, bytes, flags); result != CUDA_SUCCESS) return result;
    range = {.address = at,
             .bytes = bytes,
             .flags = flags,
             .kind = Range::Kind::registered,
             .device = static_cast<uint8_t>(current_device().ordinal),
             .context = thread.home()};
    if (!is_mapped(range)) return CUDA_ERROR_INVALID_VALUE;
    // The GPU's address of what it does not reach is the host's, as natively, so copies and the program
    // agree.
    if (share_file(range) != CUDA_SUCCESS) range.device_address = at;
    if (range.handle == 0 || range.device_address != at) note_unreached(range);
    if (!ranges.add(range)) {
        unregister(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    // Kernels may find it in memory, where nobody sees it; and the fault of one that does not would end other
    // programs, too.
    if ((flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0 || range.handle != 0 ||
        make_reachable(at, current_device()))
        return CUDA_SUCCESS;
    cuMemHostUnregister(address);
    return not_served("cuMemHostRegister_v2");
}

CUresult cuMemHostUnregister(void* address) {
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    Range range;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (at == 0) return CUDA_ERROR_INVALID_VALUE;
    if (ranges.take(at, Range::Kind::registered, range)) return unregister(range);
    const bool wrong = ranges.find(at, range) && (range.address != at || range.kind == Range::Kind::mapped ||
                                                  range.kind == Range::Kind::variable);
    return wrong ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

// Calls about host memory answer for these, too, as the real driver.
static bool is_usable_mapping(const Range& range) {
    return range.kind == Range::Kind::mapped && range.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* address, unsigned int flags) {
    if (device == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Range range;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (!ranges.find(at, range) || (range.on_device() && !is_usable_mapping(range)) ||
        range.device_address == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_unreached(at)) make_reachable(at, current_device());
    // Of a mapping it tells the beginning.
    *device = range.device_address + (range.on_device() ? 0 : at - range.address);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* address) {
    Range range;
    if (flags == nullptr || !ranges.find(reinterpret_cast<uintptr_t>(address), range))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEMHOSTALLOC_DEVICEMAP;  // as under unified addressing
    if (range.kind == Range::Kind::managed) return CUDA_SUCCESS;
    if (range.on_device() && !is_usable_mapping(range)) return CUDA_ERROR_INVALID_VALUE;
    if (range.on_device())
        *flags |= CU_MEMHOSTALLOC_PORTABLE;
    else if (range.kind == Range::Kind::registered)
        *flags |= range.flags & CU_MEMHOSTREGISTER_PORTABLE;
    else
        *flags |= range.flags;
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
