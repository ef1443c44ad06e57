// Memory pools and stream-ordered allocation.
#include <algorithm>

#include "capture.hpp"
#include "pool.hpp"

using namespace fikit::sim;

namespace {

template <typename Body>
CUresult with_pool(CUmemoryPool handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        for (const auto& device : driver.devices) driver.advance(*device);
        MemoryPool* pool = driver.pools.find(handle);
        return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : body(driver, *pool);
    });
}

// An imported one has no attributes.
template <typename Body>
CUresult with_own_pool(CUmemoryPool handle, Body body) {
    return with_pool(handle, [&](Driver& driver, MemoryPool& pool) -> CUresult {
        return pool.imported ? CUDA_ERROR_INVALID_VALUE : body(driver, pool);
    });
}

bool holds_memory(const Driver& driver, const MemoryPool& pool) {
    return std::ranges::any_of(driver.blocks, [&](const auto& block) { return block.second.pool == &pool; });
}

bool is_device(const Driver& driver, int device) {
    return device >= 0 && static_cast<std::size_t>(device) < driver.devices.size();
}

// Whether the simulator has pools for such memory.
CUresult check_location(const Driver& driver, const CUmemLocation& location, CUmemAllocationType type) {
    const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (!managed && type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    switch (location.type) {
        case CU_MEM_LOCATION_TYPE_NONE:
            return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        case CU_MEM_LOCATION_TYPE_DEVICE:
            return is_device(driver, location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
        case CU_MEM_LOCATION_TYPE_HOST:
            return CUDA_SUCCESS;
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
            return location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult create(Driver& driver, const CUmemPoolProps& properties, CUmemoryPool* handle) {
    if (const CUresult result = check_location(driver, properties.location, properties.allocType);
        result != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto pool = std::make_shared<MemoryPool>();
    pool->properties = properties;
    pool->room.limit(properties.maxSize);
    if (pool->managed() && properties.maxSize != 0) return CUDA_ERROR_INVALID_VALUE;
    if (properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        if (properties.handleTypes == CU_MEM_HANDLE_TYPE_WIN32 ||
            properties.handleTypes == CU_MEM_HANDLE_TYPE_WIN32_KMT ||
            properties.location.type == CU_MEM_LOCATION_TYPE_HOST) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (properties.handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || pool->on_host())
            return CUDA_ERROR_NOT_SUPPORTED;
        SharedMemory::Description description{};
        description.properties.type = properties.allocType;
        description.properties.requestedHandleTypes = properties.handleTypes;
        description.properties.location = properties.location;
        description.pool = true;
        description.bytes =
            driver.devices[static_cast<std::size_t>(properties.location.id)]->physical.total();
        auto shared = SharedMemory::create(description);
        if (!shared) return CUDA_ERROR_OUT_OF_MEMORY;
        pool->pages = std::make_unique<PhysicalMemory>(std::move(shared));
        pool->heap = std::make_unique<DeviceHeap>(*pool->pages, driver.space, pool->place());
    }
    *handle = driver.pools.add(std::move(pool));
    return CUDA_SUCCESS;
}

// In a captured stream memory becomes the graph's; beside it the calls are unsafe.
CUresult forbidden(Driver& driver, const Stream& stream) {
    return stream.capture.capture ? CUDA_SUCCESS : refuse_unsafe(driver);
}

CUresult allocate(Driver& driver, Stream& stream, MemoryPool& pool, std::size_t bytes, CUdeviceptr* address) {
    if (const CUresult result = forbidden(driver, stream); result != CUDA_SUCCESS) return result;
    if (address == nullptr || pool.imported) return CUDA_ERROR_INVALID_VALUE;
    *address = 0;
    if (bytes == 0) return CUDA_SUCCESS;
    if (!stream.capture.capture) return pool_allocate(driver, pool, *stream.context, bytes, address);
    if (pool.managed()) return CUDA_ERROR_NOT_SUPPORTED;
    AllocateCommand command;
    command.properties = pool.properties;
    const int device = pool.on_host() ? stream.context->device : pool.place();
    command.memory = allocate_graph_memory(driver, device, bytes);
    if (!command.memory) return CUDA_ERROR_OUT_OF_MEMORY;
    if (const CUresult result = capture_command(driver, stream, std::move(command)); result != CUDA_SUCCESS)
        return result;
    *address = std::get<AllocateCommand>(stream.capture.ends[0].node->command).memory->address;
    return CUDA_SUCCESS;
}

bool is_switch(CUmemPool_attribute attribute) {
    return attribute == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
           attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC ||
           attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult named_pool(const CUmemLocation* location, CUmemAllocationType type, CUmemoryPool* handle,
                    bool current) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (handle == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUresult result = check_location(driver, *location, type);
        if (result == CUDA_ERROR_INVALID_DEVICE && current) return CUDA_ERROR_INVALID_VALUE;
        if (result != CUDA_SUCCESS) return result;
        if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type == CU_MEM_ALLOCATION_TYPE_MANAGED) {
            *handle = preset_pool(driver, *location, type).handle;
            return CUDA_SUCCESS;
        }
        const MemoryPool& preset = preset_pool(driver, location->id);
        const MemoryPool* chosen = driver.devices[static_cast<std::size_t>(location->id)]->pool;
        *handle = current ? chosen->handle : preset.handle;
        return CUDA_SUCCESS;
    });
}

// Who may reach a pool's memory: a device, or the host with its one node.
CUresult find_place(const Driver& driver, const CUmemLocation& location, int& place) {
    place = location.id;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return is_device(driver, place) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    const bool node = location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location.id == 0;
    place = MemoryPool::host;
    return node || location.type == CU_MEM_LOCATION_TYPE_HOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// As an H200 answers: nobody loses the memory of his own.
CUresult may_set(const MemoryPool& pool, int place, CUmemAccess_flags flags) {
    const bool none = flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (!none && flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!pool.managed() && place == pool.place()) {
        if (!none) return CUDA_SUCCESS;
        return pool.on_host() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_DEVICE;
    }
    if (pool.on_host()) return CUDA_SUCCESS;
    return place == MemoryPool::host ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult choose_pool(CUdevice device, CUmemoryPool handle) {
    return with_pool(handle, [&](Driver& driver, MemoryPool& pool) -> CUresult {
        if (!is_device(driver, device)) return CUDA_ERROR_INVALID_DEVICE;
        if (pool.on_host() || pool.imported || pool.properties.location.id != device)
            return CUDA_ERROR_INVALID_VALUE;
        preset_pool(driver, device);
        driver.devices[static_cast<std::size_t>(device)]->pool = &pool;
        return CUDA_SUCCESS;
    });
}

}  // namespace

extern "C" {

CUresult cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        if (handle == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return create(driver, *properties, handle);
    });
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    return with_pool(handle, [&](Driver& driver, MemoryPool& pool) -> CUresult {
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        if (pool.preset || (pool.imported && holds_memory(driver, pool))) return CUDA_ERROR_INVALID_VALUE;
        if (pool.imported && --pool.imports > 0) return CUDA_SUCCESS;
        for (const auto& device : driver.devices) {
            if (device->pool == &pool) device->pool = device->preset_pool;
        }
        retire_pool(driver, pool);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    return with_own_pool(handle, [&](Driver& driver, MemoryPool& pool) -> CUresult {
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        collect(driver);
        pool.room.trim(keep);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
    return with_own_pool(handle, [&](Driver& driver, MemoryPool& pool) -> CUresult {
        if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
        collect(driver);
        if (is_switch(attribute)) {
            pool.reuse[attribute] = *static_cast<const int*>(value);
            return CUDA_SUCCESS;
        }
        const cuuint64_t number = *static_cast<const cuuint64_t*>(value);
        if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
            pool.threshold = number;
            return CUDA_SUCCESS;
        }
        if (number != 0) return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            pool.room.forget_used_high();
        else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
            pool.room.forget_reserved_high();
        else
            return CUDA_ERROR_INVALID_VALUE;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
    return with_own_pool(handle, [&](Driver& driver, MemoryPool& pool) -> CUresult {
        if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
        collect(driver);
        if (is_switch(attribute)) {
            const auto set = pool.reuse.find(attribute);
            *static_cast<int*>(value) = set == pool.reuse.end() ? 1 : set->second;
            return CUDA_SUCCESS;
        }
        auto& number = *static_cast<cuuint64_t*>(value);
        switch (attribute) {
            case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
                number = pool.threshold;
                return CUDA_SUCCESS;
            case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
                number = pool.room.reserved();
                return CUDA_SUCCESS;
            case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
                number = pool.room.reserved_high();
                return CUDA_SUCCESS;
            case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
                number = pool.room.used();
                return CUDA_SUCCESS;
            case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
                number = pool.room.used_high();
                return CUDA_SUCCESS;
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
    });
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* list, size_t count) {
    return with_pool(handle, [&](Driver& driver, MemoryPool& pool) -> CUresult {
        if (count == 0 || list == nullptr) return CUDA_ERROR_INVALID_VALUE;
        for (std::size_t index = 0; index < count; ++index) {
            int place = 0;
            const CUmemAccess_flags flags = list[index].flags;
            CUresult result = find_place(driver, list[index].location, place);
            if (result == CUDA_SUCCESS) result = may_set(pool, place, flags);
            if (result != CUDA_SUCCESS) return result;
            pool.access[place] = flags;
        }
        if (pool.pinned_on_host()) set_reachable(driver, pool);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
    return with_pool(handle, [&](Driver& driver, MemoryPool& pool) -> CUresult {
        if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
        int place = 0;
        if (const CUresult result = find_place(driver, *location, place); result != CUDA_SUCCESS)
            return result;
        *flags = pool.access_from(place);
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    return named_pool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool, false);
}
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    return named_pool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool, true);
}
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) { return choose_pool(device, pool); }
CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
    return named_pool(location, type, pool, false);
}
CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
    return named_pool(location, type, pool, true);
}
CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
    if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) return CUDA_ERROR_NOT_SUPPORTED;
    if (location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return choose_pool(location->id, pool);
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream where) {
    return with_stream(where, [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice& device) {
        preset_pool(driver, device.ordinal);
        return allocate(driver, stream, *device.pool, bytes, address);
    });
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool handle, CUstream where) {
    return with_stream(where,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           MemoryPool* pool = driver.pools.find(handle);
                           return pool == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                  : allocate(driver, stream, *pool, bytes, address);
                       });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream where) {
    return with_stream(
        where, [&](Driver& driver, Driver::Lock& lock, Stream& stream, SimulatedDevice& device) -> CUresult {
            if (const CUresult result = forbidden(driver, stream); result != CUDA_SUCCESS) return result;
            if (address == 0) return CUDA_SUCCESS;
            if (stream.capture.capture) {
                if (!is_graph_memory(address)) return CUDA_ERROR_INVALID_VALUE;
                return capture_command(driver, stream, FreeCommand{address});
            }
            if (free_graph_memory(address)) return CUDA_SUCCESS;
            const auto found = driver.blocks.find(address);
            if (found == driver.blocks.end()) return CUDA_ERROR_INVALID_VALUE;
            // cuMemAlloc's too may be freed so; here that waits.
            if (found->second.kind == Block::Kind::device) {
                const OperationPtr before = stream.tail;
                const CUresult result = driver.wait(lock, device, before);
                return result == CUDA_SUCCESS ? free_block(driver, address) : result;
            }
            if (found->second.pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
            auto mark = std::make_shared<Operation>();
            driver.enqueue(stream, mark);
            found->second.pool->pending.push_back({mark, found->second});
            driver.blocks.erase(found);
            return CUDA_SUCCESS;
        });
}

}  // extern "C"
