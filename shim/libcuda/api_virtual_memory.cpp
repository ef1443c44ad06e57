// Memory and addresses that the program joins itself. Handles of memory are the session's numbers; addresses
// are the executor's, which keeps this process' own mappings away from them.
#include <string.h>

#include <new>
#include <span>

#include "entry.hpp"
#include "memory_map.hpp"
#include "objects.hpp"
#include "ranges.hpp"
#include "served.hpp"
#include "sharing.hpp"

namespace fikit::shim {
namespace {

constexpr uint64_t granularity = 2 << 20;

// By handle; bytes 0: there is none such. The mutex below is of what changes.
struct Memory {
    uint64_t bytes;
    CUmemAllocationHandleType exportable;
    Device* device;
    unsigned references;  // of the program; without any its mappings keep it
};
Memory memories[FIKIT_MAX_MEMORIES];
Handles<FIKIT_MAX_MEMORIES> handles;

template <class Request, class Answer>
CUresult ask(const Device& device, uint32_t number, const Request& request, Answer& answer) {
    Reply reply = {&answer, sizeof answer, 0};
    return result_of(device.producer->call(number, {&request, sizeof request}, reply));
}

// Addresses are those of the device that is current when they are reserved.
struct Reserved : Reservation {
    Reserved* next;
};
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Reserved* all_reserved = nullptr;

CUresult current_or_first(Device*& device) {
    const Context* const context = thread.current();
    device = context != nullptr ? context->device : &process.device(0);
    return process.open(*device);
}

// For fabric handles PyTorch takes no for an answer.
bool is_device_memory(const CUmemAllocationProp& properties) {
    return properties.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           (properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
            properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

bool is_nothing(const CUmemAllocationProp& properties) {
    const CUmemLocationType where = properties.location.type;
    return properties.type != CU_MEM_ALLOCATION_TYPE_PINNED || where == CU_MEM_LOCATION_TYPE_INVALID ||
           where == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ||
           (where == CU_MEM_LOCATION_TYPE_HOST && properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE);
}

bool is_known(CUmemGenericAllocationHandle handle) {
    return handle != 0 && handle < FIKIT_MAX_MEMORIES && load_relaxed(memories[handle].references) != 0;
}

// Memory without references that is mapped no more. The number is used again last.
CUresult let_go_unused(uint32_t handle) {
    Memory& memory = memories[handle];
    {
        const Locked lock(mutex);
        if (memory.references != 0 || memory.bytes == 0 ||
            ranges.any_has(Range::Kind::mapped, static_cast<uint8_t>(memory.device->ordinal), handle))
            return CUDA_SUCCESS;
        store_relaxed(memory.bytes, uint64_t{0});
    }
    const fikit_request_memory_release request = {handle, 0};
    fikit_reply_memory_release answer{};
    const CUresult result = ask(*memory.device, fikit_call_memory_release, request, answer);
    if (result == CUDA_SUCCESS) handles.give_back(handle);
    return result;
}

}  // namespace

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
    if (bytes == nullptr || properties == nullptr || option < CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
        option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = granularity;  // whether there is such memory, cuMemCreate says
    return CUDA_SUCCESS;
}

CUresult reserve_addresses(Device& device, uint64_t bytes, uint64_t alignment, uint64_t wished,
                           uint64_t& address) {
    // Where something of this process lies already, others are asked for; those are held meanwhile, so that
    // they do not come again.
    constexpr unsigned tries = 4;
    uint64_t held[tries];
    unsigned holding = 0;
    fikit_request_memory_reserve request = {bytes, alignment, wished};
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    while (holding < tries) {
        fikit_reply_memory_reserve answer{};
        result = ask(device, fikit_call_memory_reserve, request, answer);
        if (result != CUDA_SUCCESS) break;
        auto* const reserved = new (std::nothrow) Reserved{{answer.address, bytes, &device}, nullptr};
        if (reserved != nullptr && process.keep_away(answer.address, bytes)) {
            const Locked lock(mutex);
            reserved->next = all_reserved;
            all_reserved = reserved;
            address = answer.address;
            break;
        }
        delete reserved;
        held[holding++] = answer.address;
        request.wished = 0;
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    while (holding != 0) {
        const fikit_request_memory_unreserve back = {held[--holding], bytes};
        fikit_reply_memory_unreserve nothing{};
        ask(device, fikit_call_memory_unreserve, back, nothing);
    }
    return result;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr wished,
                             unsigned long long flags) {
    if (address == nullptr || bytes == 0 || bytes % granularity != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    Device* device = nullptr;
    if (const CUresult result = current_or_first(device); result != CUDA_SUCCESS) return result;
    uint64_t reserved = 0;
    const CUresult result = reserve_addresses(*device, bytes, alignment, wished, reserved);
    if (result == CUDA_SUCCESS) *address = reserved;
    return result;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    const fikit_request_memory_unreserve request = {address, bytes};
    fikit_reply_memory_unreserve answer{};
    const Device* const device = find_reservation(address).device;
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = ask(*device, fikit_call_memory_unreserve, request, answer);
    if (result != CUDA_SUCCESS) return result;
    process.give_way(address, bytes);
    const Locked lock(mutex);
    Reserved** link = &all_reserved;
    while (*link != nullptr && (*link)->address != address) link = &(*link)->next;
    if (Reserved* const reserved = *link; reserved != nullptr) {
        *link = reserved->next;
        delete reserved;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
    if (handle == nullptr || properties == nullptr || flags != 0 || bytes == 0 || bytes % granularity != 0 ||
        is_nothing(*properties))
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device_memory(*properties)) return CUDA_ERROR_NOT_SUPPORTED;
    Device* const device = process.find_device(properties->location.id);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (const CUresult result = process.open(*device); result != CUDA_SUCCESS) return result;
    const uint32_t number = handles.take();
    if (number == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    const fikit_request_memory_create request = {number, 0, bytes};
    fikit_reply_memory_create answer{};
    const CUresult result = ask(*device, fikit_call_memory_create, request, answer);
    if (result != CUDA_SUCCESS) {
        handles.give_back(number);
        return result;
    }
    memories[number].exportable = properties->requestedHandleTypes;
    memories[number].device = device;
    store_relaxed(memories[number].bytes, uint64_t{bytes});
    store_relaxed(memories[number].references, 1u);
    *handle = number;
    return CUDA_SUCCESS;
}

CUresult export_memory(uint64_t address, uint32_t handle, SharedMemory& shared) {
    const fikit_request_memory_export request = {address, handle, 0};
    fikit_reply_memory_export answer{};
    Range range;
    const bool by_address = ranges.find(address, range);
    const Device& device = by_address ? process.device(range.device) : *memories[handle].device;
    const CUresult result = ask(device, fikit_call_memory_export, request, answer);
    if (result != CUDA_SUCCESS) return result;
    shared = {shared_memory_magic, answer.session, answer.number, 0, {}, answer.size, answer.offset};
    memcpy(shared.executor, answer.executor, sizeof shared.executor);
    return CUDA_SUCCESS;
}

CUresult import_memory(const SharedMemory& shared, Device& device, CUmemGenericAllocationHandle& handle) {
    const uint32_t number = handles.take();
    if (number == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    fikit_request_memory_import request = {{}, shared.number, number};
    memcpy(request.executor, shared.executor, sizeof request.executor);
    fikit_reply_memory_import answer{};
    const CUresult result = ask(device, fikit_call_memory_import, request, answer);
    if (result != CUDA_SUCCESS) {
        handles.give_back(number);
        return result;
    }
    memories[number].exportable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    memories[number].device = &device;
    store_relaxed(memories[number].bytes, uint64_t{answer.size});
    store_relaxed(memories[number].references, 1u);
    if (answer.size != shared.size) {
        fikit::shim::cuMemRelease(number);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    handle = number;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
    if (shareable == nullptr || flags != 0 || !is_known(handle)) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    if ((memories[handle].exportable & type) == 0) return CUDA_ERROR_INVALID_VALUE;
    SharedMemory shared;
    const CUresult result = export_memory(0, static_cast<uint32_t>(handle), shared);
    return result == CUDA_SUCCESS ? publish(&shared, sizeof shared, *static_cast<int*>(shareable)) : result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* system_handle,
                                        CUmemAllocationHandleType type) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    SharedMemory shared;
    const int descriptor = static_cast<int>(reinterpret_cast<uintptr_t>(system_handle));
    CUresult result = read_published(descriptor, shared_memory_magic, &shared, sizeof shared);
    Device* device = nullptr;
    if (result == CUDA_SUCCESS) result = current_or_first(device);
    return result == CUDA_SUCCESS ? import_memory(shared, *device, *handle) : result;
}

Reservation find_reservation(uint64_t address) {
    const Locked lock(mutex);
    for (const Reserved* each = all_reserved; each != nullptr; each = each->next)
        if (address - each->address < each->bytes) return *each;
    return {};
}

bool is_exportable(uint32_t handle) {
    return memories[handle].exportable == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    const auto number = static_cast<uint32_t>(handle);
    {
        const Locked lock(mutex);
        if (!is_known(handle)) return CUDA_ERROR_INVALID_VALUE;
        store_relaxed(memories[number].references, memories[number].references - 1);
    }
    return let_go_unused(number);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
    Range range;
    if (handle == nullptr || !ranges.find(reinterpret_cast<uintptr_t>(address), range) ||
        range.kind != Range::Kind::mapped)
        return CUDA_ERROR_INVALID_VALUE;
    const Locked lock(mutex);
    Memory& memory = memories[range.handle];
    if (memory.bytes == 0) return CUDA_ERROR_INVALID_VALUE;  // unmapped meanwhile
    store_relaxed(memory.references, memory.references + 1);
    *handle = range.handle;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    if (flags != 0 || !is_known(handle) || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    // Whole or not at all, as the driver has it.
    if (offset != 0 || bytes != load_relaxed(memories[handle].bytes)) return CUDA_ERROR_NOT_SUPPORTED;
    if (address % granularity != 0) return CUDA_ERROR_INVALID_VALUE;
    const fikit_request_memory_map request = {address, bytes, offset, static_cast<uint32_t>(handle), 0};
    fikit_reply_memory_map answer{};
    Device& device = *memories[handle].device;
    const Device* const reserved = find_reservation(address).device;
    if (reserved == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (reserved != &device) return CUDA_ERROR_INVALID_DEVICE;  // another one's addresses
    const CUresult result = ask(device, fikit_call_memory_map, request, answer);
    if (result != CUDA_SUCCESS) return result;
    const Range range = {.address = address,
                         .bytes = bytes,
                         .device_address = address,
                         .handle = static_cast<uint32_t>(handle),
                         .kind = Range::Kind::mapped,
                         .device = static_cast<uint8_t>(device.ordinal)};
    return ranges.add(range) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult unmap_memory(const Device& device, uint64_t address, uint64_t bytes) {
    const fikit_request_memory_unmap request = {address, bytes};
    fikit_reply_memory_unmap answer{};
    const CUresult result = ask(device, fikit_call_memory_unmap, request, answer);
    if (result != CUDA_SUCCESS) return result;
    Range range;
    CUresult released = CUDA_SUCCESS;
    while (ranges.take_first(address, address + bytes, Range::Kind::mapped, range))
        if (const CUresult one = let_go_unused(range.handle); one != CUDA_SUCCESS) released = one;
    return released;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    // Work that was issued before may still use it; the executor unmaps at once.
    const Device* const device = find_reservation(address).device;
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Status status = device->producer->settle();
    return status == status::success ? unmap_memory(*device, address, bytes) : result_of(status);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
    if (access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    const Device* const device = find_reservation(address).device;
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (const CUmemAccessDesc& each : std::span(access, count)) {
        if (each.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && each.flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            each.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
        if (each.location.type == CU_MEM_LOCATION_TYPE_HOST) return CUDA_ERROR_NOT_SUPPORTED;
        if (each.location.type != CU_MEM_LOCATION_TYPE_DEVICE || each.location.id != device->ordinal)
            return process.find_device(each.location.id) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                                    : CUDA_ERROR_INVALID_DEVICE;
    }
    // As with cuMemUnmap: what was issued before it is taken away may still use it.
    if (access[0].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        if (const Status status = device->producer->settle(); status != status::success)
            return result_of(status);
    const fikit_request_memory_access request = {address, bytes, access[0].flags, 0};
    fikit_reply_memory_access answer{};
    if (const CUresult result = ask(*device, fikit_call_memory_access, request, answer);
        result != CUDA_SUCCESS)
        return result;
    Range range;
    for (CUdeviceptr at = address; at < address + bytes && ranges.find(at, range); at += range.bytes) {
        range.flags = access[0].flags;
        ranges.add(range);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
    Range range;
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;  // also where it fails (driver 580)
    if (location == nullptr || !ranges.find(address, range)) return CUDA_ERROR_INVALID_VALUE;
    const bool host = location->type == CU_MEM_LOCATION_TYPE_HOST;
    if (!host && process.find_device(location->id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    // Of memory that is not of this kind the real driver tells nothing, and does not fail.
    const bool given = range.kind == Range::Kind::mapped && !host && location->id == range.device;
    *flags = given ? range.flags : unsigned{CU_MEM_ACCESS_FLAGS_PROT_NONE};
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
    if (properties == nullptr || !is_known(handle)) return CUDA_ERROR_INVALID_VALUE;
    memset(properties, 0, sizeof *properties);
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties->location.id = memories[handle].device->ordinal;
    properties->requestedHandleTypes = memories[handle].exportable;
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
