// Device memory and stream-ordered pools, of host and managed memory too.
#include <stdlib.h>
#include <string.h>

#include <iterator>
#include <new>

#include "capture.hpp"
#include "entry.hpp"
#include "graph_memory.hpp"
#include "host_memory.hpp"
#include "pool.hpp"
#include "ranges.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

constexpr uint64_t pitch_step = 512;

// By device.
constinit Pool default_pools[most_gpus];
Pool* current_pools[most_gpus];  // nullptr: the default one
constinit Pool default_host_pool = {.on_host = true};
// Of managed memory: by device, on the host, anywhere.
constinit Pool default_managed_pools[most_gpus + 2];

Pool& default_managed_pool(const CUmemLocation& location) {
    const bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    const bool anywhere = location.type == CU_MEM_LOCATION_TYPE_NONE;
    const int id = on_device ? location.id : 0;
    Pool& pool = default_managed_pools[on_device ? id : most_gpus + (anywhere ? 1 : 0)];
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    const Locked lock(mutex);
    if (!pool.managed) {
        const auto type = on_device || anywhere ? location.type : CU_MEM_LOCATION_TYPE_HOST;
        pool.location = {type, {id}};
        pool.device = id;
        pool.on_host = pool.managed = true;
    }
    return pool;
}

Pool& default_pool(const Device& device) {
    Pool& pool = default_pools[device.ordinal];
    store_relaxed(pool.device, device.ordinal);
    return pool;
}
Pool& current_pool(const Device& device) {
    Pool* const pool = load_acquire(current_pools[device.ordinal]);
    return pool != nullptr ? *pool : default_pool(device);
}

CUresult allocate(Device& device, CUdeviceptr* address, size_t bytes, Pool* pool = nullptr) {
    if (pool == nullptr)
        if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    uint64_t at = 0, charged = 0;
    uint32_t place = 0;
    if (pool != nullptr && !pool->give(bytes, place)) return CUDA_ERROR_OUT_OF_MEMORY;
    const Status status = device.producer->memory_allocate(bytes, at, charged);
    if (status != status::success) {
        if (pool != nullptr) pool->give_up(place);
        return result_of(status);
    }
    const Range range = {.address = at,
                         .bytes = bytes,
                         .device_address = at,
                         .kind = Range::Kind::device,
                         .device = static_cast<uint8_t>(device.ordinal),
                         .place = place,
                         .pool = pool,
                         .context = pool == nullptr ? thread.home() : nullptr};
    if (!ranges.add(range)) {
        if (pool != nullptr) pool->give_up(place);
        device.producer->memory_free(at);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = at;
    return CUDA_SUCCESS;
}

// `stream`: of this device's, in whose order; nullptr: after all work.
CUresult free_memory(CUdeviceptr address, const uint32_t* stream = nullptr) {
    Range range;
    if (address == 0) return CUDA_SUCCESS;
    if (free_graph_memory(address)) return CUDA_SUCCESS;
    const bool known = ranges.find(address, range);
    if (known && range.kind == Range::Kind::managed && range.pool == nullptr && range.context == nullptr)
        return CUDA_ERROR_INVALID_VALUE;  // a module's variable
    if (known && range.pool != nullptr && range.pool->on_host &&
        ranges.take(address, Range::Kind::pinned, range)) {
        range.pool->take_back(range.place);
        return free_host(range);
    }
    if (ranges.take(address, Range::Kind::managed, range)) {
        if (range.pool != nullptr) range.pool->take_back(range.place);
        return free_host(range);
    }
    if (ranges.take(address, Range::Kind::imported, range)) return close_imported(range);
    if (!ranges.take(address, Range::Kind::device, range)) return CUDA_ERROR_INVALID_VALUE;
    if (range.pool != nullptr) range.pool->take_back(range.place);
    return result_of(process.device(range.device).producer->memory_free(address, stream));
}

// In a captured stream memory becomes the graph's; beside it such calls are unsafe.
CUresult order_memory(CUstream handle, uint32_t& stream) {
    const CUresult result = use_stream(handle, stream);
    return result != CUDA_SUCCESS || captures.capturing(stream) ? result : captures.unsafe();
}

CUresult allocate_on_host(CUdeviceptr* address, size_t bytes, Pool* pool) {
    if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Range range = {.kind = Range::Kind::pinned, .pool = pool};
    if (pool->managed) range.flags = CU_MEM_ATTACH_GLOBAL;
    Device& device = current_device();
    if (!pool->give(bytes, range.place)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = pool->managed ? allocate_managed(device, bytes, pool->location, range)
                                          : allocate_host(device, bytes, range);
    if (result == CUDA_SUCCESS)
        *address = range.address;
    else
        pool->give_up(range.place);
    return result;
}

}  // namespace

// --- device memory ---

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    return allocate(current_device(), address, bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                            unsigned int element) {
    if (pitch == nullptr || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
    if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
    size_t bytes = 0;
    if (__builtin_add_overflow(width, pitch_step - 1, pitch)) return CUDA_ERROR_INVALID_VALUE;
    *pitch -= *pitch % pitch_step;
    if (__builtin_mul_overflow(*pitch, height, &bytes)) return CUDA_ERROR_INVALID_VALUE;
    return allocate(current_device(), address, bytes);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    // Without a context, but not in one that has ended (as on an H200).
    if (thread.depth != 0 && thread.current() == nullptr) return no_context();
    const CUresult result = captures.unsafe();
    return result == CUDA_SUCCESS ? free_memory(address) : result;
}

void free_memory_of(const Context& context) {
    Range range;
    while (ranges.take_of(context, range)) {
        if (range.kind == Range::Kind::device)
            process.producer(range.device).memory_free(range.address);
        else if (range.on_host())
            free_host(range);
        else if (range.kind == Range::Kind::registered)
            unregister(range);
    }
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    fikit_reply_memory_information answer{};
    Reply reply = {&answer, sizeof answer, 0};
    const fikit_request_memory_information request = {};
    const Status status =
        current_producer().call(fikit_call_memory_information, {&request, sizeof request}, reply);
    if (status != status::success) return result_of(status);
    *free = answer.free;
    *total = answer.total;
    return CUDA_SUCCESS;
}

// --- stream-ordered: memory is there at once, and goes once all that was issued before has completed ---

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
    uint32_t name = 0;
    if (const CUresult result = find_stream(stream, name); result != CUDA_SUCCESS) return result;
    const auto pool = reinterpret_cast<CUmemoryPool>(&current_pool(device_of(name)));
    return fikit::shim::cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool handle, CUstream stream) {
    Pool* const pool = pool_of(handle);
    uint32_t name = 0;
    if (pool == nullptr || pool->import != nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = order_memory(stream, name); result != CUDA_SUCCESS) return result;
    if (address != nullptr && bytes == 0) {
        *address = 0;
        return CUDA_SUCCESS;
    }
    const bool captured = captures.capturing(name);
    if (pool->on_host) return captured ? CUDA_ERROR_NOT_SUPPORTED : allocate_on_host(address, bytes, pool);
    Device& device = process.device(static_cast<unsigned>(pool->device));
    if (const CUresult result = process.open(device); result != CUDA_SUCCESS) return result;
    return captured ? capture_allocation(name, device, address, bytes)
                    : allocate(device, address, bytes, pool);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    uint32_t name = 0;
    if (const CUresult result = order_memory(stream, name); result != CUDA_SUCCESS) return result;
    if (address == 0) return CUDA_SUCCESS;
    if (captures.capturing(name)) return capture_free(name, address);
    Range range;
    const uint32_t number = stream_number(name);
    const bool known = ranges.find(address, range);
    if (known && range.kind == Range::Kind::managed && range.pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // What other devices still do with it, their own order does not tell.
    const bool elsewhere = known && range.device != name >> stream_bits;
    if (elsewhere)
        if (const Status status = producer_of(name).stream_settle(stream_number(name)))
            return result_of(status);
    if (ranges.take(address, Range::Kind::imported, range)) return close_imported(range, name);
    return free_memory(address, elsewhere ? nullptr : &number);
}

namespace {

bool is_on_host(const CUmemLocation& location) {
    return location.type == CU_MEM_LOCATION_TYPE_HOST ||
           (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location.id == 0);  // there is one node
}

// What a location's pool may be asked for.
CUresult check(const CUmemLocation* location, CUmemAllocationType type) {
    if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (!managed && type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (is_on_host(*location) || (managed && location->type == CU_MEM_LOCATION_TYPE_NONE))
        return CUDA_SUCCESS;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    return process.find_device(location->id) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check(location, type); result != CUDA_SUCCESS) return result;
    const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (!managed && !is_on_host(*location)) return fikit::shim::cuDeviceGetDefaultMemPool(pool, location->id);
    *pool = reinterpret_cast<CUmemoryPool>(managed ? &default_managed_pool(*location) : &default_host_pool);
    return CUDA_SUCCESS;
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
    const CUresult result = fikit::shim::cuMemGetDefaultMemPool(pool, location, type);
    return result == CUDA_SUCCESS && type == CU_MEM_ALLOCATION_TYPE_PINNED && !is_on_host(*location)
               ? fikit::shim::cuDeviceGetMemPool(pool, location->id)
               : result;
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
    if (const CUresult result = check(location, type); result != CUDA_SUCCESS) return result;
    return is_on_host(*location) || type == CU_MEM_ALLOCATION_TYPE_MANAGED
               ? CUDA_ERROR_NOT_SUPPORTED
               : fikit::shim::cuDeviceSetMemPool(location->id, pool);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) {
    const Device* const device = process.find_device(ordinal);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *pool = reinterpret_cast<CUmemoryPool>(&default_pool(*device));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) {
    const Device* const device = process.find_device(ordinal);
    if (pool == nullptr || device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pool = reinterpret_cast<CUmemoryPool>(&current_pool(*device));
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
    Pool* const pool = pool_of(handle);
    if (process.find_device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (pool->on_host || pool->import != nullptr || pool->device != ordinal) return CUDA_ERROR_INVALID_VALUE;
    store_release(current_pools[ordinal], pool);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    if (pool == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUmemLocation& location = properties->location;
    const bool managed = properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    const bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    const CUresult result = check(&location, properties->allocType);
    if (result != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    if (managed && properties->maxSize != 0) return CUDA_ERROR_INVALID_VALUE;
    const CUmemAllocationHandleType shared = properties->handleTypes;
    if (shared == CU_MEM_HANDLE_TYPE_WIN32 || shared == CU_MEM_HANDLE_TYPE_WIN32_KMT ||
        (shared != CU_MEM_HANDLE_TYPE_NONE && location.type == CU_MEM_LOCATION_TYPE_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    const bool shareable = shared == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && on_device && !managed;
    if (shared != CU_MEM_HANDLE_TYPE_NONE && !shareable) return CUDA_ERROR_NOT_SUPPORTED;
    auto* const made = new (std::nothrow) Pool();
    if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    made->shareable = shareable;
    made->device = on_device ? location.id : 0;
    made->on_host = managed || !on_device;
    made->managed = managed;
    if (managed) made->location = location;
    made->room.limit(properties->maxSize);
    *pool = reinterpret_cast<CUmemoryPool>(made);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    Pool* const pool = pool_of(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    if (pool->import != nullptr) return destroy_import(*pool);
    const bool managed = pool >= default_managed_pools && pool < std::end(default_managed_pools);
    if (pool == &default_pools[pool->device] || pool == &default_host_pool || managed)
        return CUDA_ERROR_INVALID_VALUE;
    Pool*& current = current_pools[pool->device];
    if (load_acquire(current) == pool) store_release(current, static_cast<Pool*>(nullptr));
    pool->destroy();
    return CUDA_SUCCESS;
}

namespace {
bool is_switch(CUmemPool_attribute attribute) {
    return attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}
// An imported one has no attributes.
Pool* own_pool_of(CUmemoryPool handle) {
    Pool* const pool = pool_of(handle);
    return pool != nullptr && pool->import == nullptr ? pool : nullptr;
}
}  // namespace

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
    Pool* const pool = own_pool_of(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (value == nullptr || attribute < 1) return CUDA_ERROR_INVALID_VALUE;
    if (is_switch(attribute)) {
        pool->attribute[attribute] = *static_cast<uint32_t*>(value);
        return CUDA_SUCCESS;
    }
    const uint64_t number = *static_cast<uint64_t*>(value);
    return pool->with_room([&](PoolRoom& room) {
        // The most that there was can only be forgotten.
        if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
            pool->attribute[attribute] = number;
        else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && number == 0)
            room.forget_reserved_high();
        else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && number == 0)
            room.forget_used_high();
        else
            return CUDA_ERROR_INVALID_VALUE;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
    Pool* const pool = own_pool_of(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (value == nullptr || attribute < 1 || attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_switch(attribute)) {
        *static_cast<uint32_t*>(value) = static_cast<uint32_t>(pool->attribute[attribute]);
        return CUDA_SUCCESS;
    }
    *static_cast<uint64_t*>(value) = pool->with_room([&](const PoolRoom& room) {
        const uint64_t values[] = {pool->attribute[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD], room.reserved(),
                                   room.reserved_high(), room.used(), room.used_high()};
        return values[attribute - CU_MEMPOOL_ATTR_RELEASE_THRESHOLD];
    });
    return CUDA_SUCCESS;
}

namespace {
// Who may reach a pool's memory: a device, or the host with its one node.
CUresult find_place(const CUmemLocation& location, int& place) {
    place = location.id;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return process.find_device(place) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    const bool node = location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location.id == 0;
    place = Pool::host;
    return node || location.type == CU_MEM_LOCATION_TYPE_HOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
}  // namespace

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, size_t count) {
    Pool* const pool = pool_of(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
        int place = 0;
        const bool none = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if (const CUresult result = find_place(access[i].location, place); result != CUDA_SUCCESS)
            return result;
        if (!none && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_NOT_SUPPORTED;
        // Nobody loses the memory of his own.
        const bool own = !pool->managed && place == pool->place();
        if (own && none) return pool->on_host ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_DEVICE;
        if (!own && !pool->on_host)
            return place == Pool::host ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        if (!own) store_relaxed(pool->let_in[place], !none);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
    const Pool* const pool = pool_of(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    int place = 0;
    if (const CUresult result = find_place(*location, place); result != CUDA_SUCCESS) return result;
    *flags = pool->lets_in(place) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    Pool* const pool = own_pool_of(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    pool->with_room([&](PoolRoom& room) { room.trim(keep); });
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
