// Device memory, pinned and registered host memory, and what a pointer is.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "capture.hpp"
#include "pool.hpp"

using namespace fikit::sim;

namespace {

CUresult allocate(Driver& driver, Context& context, SimulatedDevice& device, std::size_t bytes,
                  CUdeviceptr* address) {
    if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
    if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    collect(driver);
    if (const CUresult fault = driver.allocation_fault(); fault != CUDA_SUCCESS) return fault;
    const std::uint64_t got = device.heap.allocate(bytes);
    if (got == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    driver.charge(bytes <= model::call::shared_page_limit ? model::call::allocate_shared
                                                          : model::call::allocate);
    Block block;
    block.address = got;
    block.bytes = bytes;
    block.context = &home_of(context);
    block.device = context.device;
    block.id = driver.next_id++;
    driver.blocks[got] = block;
    *address = got;
    return CUDA_SUCCESS;
}

Block& add_host(Driver& driver, Context& context, void* start, std::size_t bytes, unsigned flags,
                Block::Kind kind) {
    Block block;
    block.kind = kind;
    block.address = reinterpret_cast<std::uint64_t>(start);
    block.bytes = bytes;
    block.context = &home_of(context);
    block.device = context.device;
    block.flags = flags;
    block.id = driver.next_id++;
    block.on_host = true;
    return driver.blocks[block.address] = block;
}

CUresult allocate_host(void** start, std::size_t bytes, unsigned flags) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        constexpr unsigned known =
            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        if (start == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
        *start = nullptr;
        if (bytes == 0) return CUDA_SUCCESS;
        if (const CUresult fault = driver.allocation_fault(); fault != CUDA_SUCCESS) return fault;
        const std::uint64_t got = allocate_host_pages(driver.space, bytes);
        if (got == 0) return CUDA_ERROR_OUT_OF_MEMORY;
        driver.hold_launches(model::call::by_size(model::call::host_allocate, bytes));
        *start = reinterpret_cast<void*>(got);
        Block& block = add_host(driver, context, *start, bytes, flags, Block::Kind::host_allocated);
        block.flags = driver.pinned_chunks.add(block.context, bytes, flags, block.place);
        return CUDA_SUCCESS;
    });
}

// Whether the process has these pages at all.
bool mapped_by_host(const void* start, std::size_t bytes) {
    const auto address = reinterpret_cast<std::uint64_t>(start);
    const std::uint64_t first = address / host_page * host_page;
    // Writes nothing, but finds holes (msync(2)).
    return address + bytes > address &&
           msync(reinterpret_cast<void*>(first), address + bytes - first, MS_ASYNC) == 0;
}

// Whether registered memory that shares a page with these bytes is read-only and they are not, or the
// reverse.
bool mixes_access(const Driver& driver, std::uint64_t address, std::size_t bytes, bool read_only) {
    const auto last_page = [](std::uint64_t first, std::size_t size) {
        return (first + size - 1) / host_page;
    };
    const auto differs = [&](const Block& other) {
        return other.kind == Block::Kind::host_registered && other.read_only() != read_only;
    };
    const auto next = driver.blocks.upper_bound(address);
    if (next != driver.blocks.end() && differs(next->second) &&
        next->first / host_page <= last_page(address, bytes))
        return true;
    if (next == driver.blocks.begin()) return false;
    const Block& before = std::prev(next)->second;
    return differs(before) && last_page(before.address, before.bytes) >= address / host_page;
}

// What an H200 has against registering these bytes beside others.
CUresult check_neighbours(const Driver& driver, std::uint64_t address, std::size_t bytes, unsigned flags) {
    // No memory of a process is a device's registers; that they overlap only at their end goes unnoticed.
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) {
        const auto next = driver.blocks.lower_bound(address);
        const bool around = next != driver.blocks.end() && next->second.bytes <= bytes &&
                            next->first - address <= bytes - next->second.bytes;
        return around || driver.block_of(address) != nullptr ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                             : CUDA_ERROR_INVALID_VALUE;
    }
    if (driver.space.overlaps(address, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    return mixes_access(driver, address, bytes, read_only) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// What a pointer is can be asked for without a context, and after a fault.
template <typename Body>
CUresult with_pointers(Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult { return body(driver); });
}

std::uint64_t handle_types(const Block& block) {
    if (block.kind == Block::Kind::mapped)
        return static_cast<const PhysicalAllocation*>(block.allocation)->properties.requestedHandleTypes;
    return block.pool != nullptr ? block.pool->handle_types() : 0;
}

// Whether a device may use it: what a program maps only as far as it said.
bool reachable(Driver& driver, const Block& block) {
    return driver.access_to(block) != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
           (!block.host_pooled() || block.pool->reachable());
}

// Of a mapping, the whole reservation.
std::pair<std::uint64_t, std::size_t> range_of(const Driver& driver, const Block& block) {
    const std::pair own{block.address, block.bytes};
    return block.kind == Block::Kind::mapped ? driver.reservation(block.address, 1).value_or(own) : own;
}

// Calls about host memory answer for these, too (as driver 580).
bool is_usable_mapping(Driver& driver, const Block& block) {
    return block.kind == Block::Kind::mapped && reachable(driver, block);
}

CUresult pointer_attribute(Driver& driver, void* out, CUpointer_attribute attribute, CUdeviceptr pointer) {
    const Block* block = driver.block_of(pointer);
    if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto put = [&](auto value) {
        std::memcpy(out, &value, sizeof value);
        return CUDA_SUCCESS;
    };
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            return block->context == nullptr || block->pool != nullptr ? put(CUcontext{nullptr})
                                                                       : put(block->context->handle);
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return put(block->host() && !block->managed() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            if (!reachable(driver, *block)) return CUDA_ERROR_INVALID_VALUE;
            return put(pointer);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            if (!block->host()) return CUDA_ERROR_INVALID_VALUE;
            return put(reinterpret_cast<void*>(pointer));
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            return put(block->synchronous || block->managed() ? 1 : 0);
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            return put(static_cast<unsigned long long>(block->id));
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            return put(block->managed() ? 1 : 0);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return put(block->device);
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
            return put(block->kind == Block::Kind::device ? 1 : 0);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return put(range_of(driver, *block).first);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return put(range_of(driver, *block).second);
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return put(1);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return put(handle_types(*block));
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return put(driver.access_to(*block));
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return put(block->pool != nullptr ? block->pool->handle : nullptr);
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            return put(block->bytes);
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            return put(block->address);
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            return put(static_cast<unsigned long long>(block->id));
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

std::size_t attribute_size(CUpointer_attribute attribute) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return 4;
        default:
            return 8;
    }
}

// Memory on the device, managed, a pool's or a graph's, here or imported; not a module's variables.
bool is_allocation(const Driver& driver, CUdeviceptr address) {
    const auto found = driver.blocks.find(address);
    if (found == driver.blocks.end()) return false;
    const Block& block = found->second;
    return block.kind == Block::Kind::pooled || block.pool != nullptr ||
           (block.context != nullptr && (block.kind == Block::Kind::device || block.managed()));
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice& device) -> CUresult {
        if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
        collect(driver);
        *free = device.physical.free();
        *total = device.physical.total();
        return CUDA_SUCCESS;
    });
}

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice& device) {
        return allocate(driver, context, device, bytes, address);
    });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                            unsigned int element) {
    return with_context(
        [&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice& device) -> CUresult {
            if (pitch == nullptr || width == 0 || height == 0 ||
                (element != 4 && element != 8 && element != 16)) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            *pitch = (width + 511) / 512 * 512;
            if (*pitch < width || height > ~std::size_t{0} / *pitch) return CUDA_ERROR_INVALID_VALUE;
            return allocate(driver, context, device, *pitch * height, address);
        });
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    return with_context_of(
        of_memory(address),
        [&](Driver& driver, Driver::Lock& lock, Context& context, SimulatedDevice&) -> CUresult {
            if (address == 0) return CUDA_SUCCESS;
            if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
            if (!is_allocation(driver, address)) return CUDA_ERROR_INVALID_VALUE;
            // As the real one: it waits for all work of the context.
            if (const CUresult result = driver.synchronize(lock, context); result != CUDA_SUCCESS)
                return result;
            if (!is_allocation(driver, address)) return CUDA_ERROR_INVALID_VALUE;
            if (free_graph_memory(address)) return CUDA_SUCCESS;
            return free_block(driver, address);
        });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice&) -> CUresult {
        const Block* block = driver.block_of(address);
        if (block == nullptr || driver.access_to(*block) == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            return CUDA_ERROR_NOT_FOUND;
        if (base != nullptr) *base = block->address;
        if (bytes != nullptr) *bytes = block->bytes;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemAllocHost_v2(void** start, size_t bytes) {
    return allocate_host(start, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
}
CUresult cuMemHostAlloc(void** start, size_t bytes, unsigned int flags) {
    return allocate_host(start, bytes, flags);
}

CUresult cuMemFreeHost(void* start) {
    const auto address = reinterpret_cast<std::uint64_t>(start);
    return with_context_of(
        of_memory(address),
        [&](Driver& driver, Driver::Lock& lock, Context& context, SimulatedDevice&) -> CUresult {
            if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
            if (start == nullptr) return CUDA_SUCCESS;
            const auto is_allocation = [&] {
                const auto found = driver.blocks.find(address);
                return found != driver.blocks.end() && found->second.kind == Block::Kind::host_allocated;
            };
            if (!is_allocation()) return CUDA_ERROR_INVALID_VALUE;
            if (const CUresult result = driver.synchronize(lock, context); result != CUDA_SUCCESS)
                return result;
            if (!is_allocation()) return CUDA_ERROR_INVALID_VALUE;
            const Block block = driver.blocks[address];
            driver.blocks.erase(address);
            driver.pinned_chunks.remove(block.place);
            release_host_pages(driver.space, address, block.bytes);
            return CUDA_SUCCESS;
        });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* start, unsigned int flags) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice&) -> CUresult {
        if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        const Block* block = driver.block_of(reinterpret_cast<std::uint64_t>(start));
        if (block == nullptr || block->managed() || !(block->host() || is_usable_mapping(driver, *block)))
            return CUDA_ERROR_INVALID_VALUE;
        // Of a mapping it tells the beginning.
        *address = block->host() ? reinterpret_cast<std::uint64_t>(start) : block->address;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* start) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice&) -> CUresult {
        const Block* block = driver.block_of(reinterpret_cast<std::uint64_t>(start));
        if (flags == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
        // Under unified addressing all of it is mapped.
        if (block->managed())
            *flags = CU_MEMHOSTALLOC_DEVICEMAP;
        else if (is_usable_mapping(driver, *block))
            *flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        else if (block->kind == Block::Kind::host_registered)
            *flags = (block->flags & CU_MEMHOSTREGISTER_PORTABLE) | CU_MEMHOSTALLOC_DEVICEMAP;
        else if (block->kind == Block::Kind::host_allocated)
            *flags = block->flags | CU_MEMHOSTALLOC_DEVICEMAP;
        else
            return CUDA_ERROR_INVALID_VALUE;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemHostRegister_v2(void* start, size_t bytes, unsigned int flags) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        constexpr unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                   CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
        if (start == nullptr || bytes == 0 || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
        const auto address = reinterpret_cast<std::uint64_t>(start);
        const Block* block = driver.block_of(address);
        if ((block != nullptr && block->kind != Block::Kind::host_registered) ||
            driver.reservation(address, bytes))
            return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = check_neighbours(driver, address, bytes, flags); result != CUDA_SUCCESS)
            return result;
        if (!mapped_by_host(start, bytes)) return CUDA_ERROR_INVALID_VALUE;
        driver.hold_launches(model::call::by_size(model::call::host_register, bytes));
        add_host(driver, context, start, bytes, flags, Block::Kind::host_registered);
        const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
        const Access access = read_only ? Access::read : Access::read_write;
        driver.space.map({address, bytes, static_cast<std::byte*>(start), access});
        return CUDA_SUCCESS;
    });
}
CUresult cuMemHostRegister(void* start, size_t bytes, unsigned int flags) {
    return cuMemHostRegister_v2(start, bytes, flags);
}

CUresult cuMemHostUnregister(void* start) {
    return with_context(
        [&](Driver& driver, Driver::Lock& lock, Context& context, SimulatedDevice&) -> CUresult {
            if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
            if (start == nullptr) return CUDA_ERROR_INVALID_VALUE;
            const auto address = reinterpret_cast<std::uint64_t>(start);
            const auto is_registered = [&] {
                const auto found = driver.blocks.find(address);
                return found != driver.blocks.end() && found->second.kind == Block::Kind::host_registered;
            };
            const Block* block = driver.block_of(address);
            if (block != nullptr && (block->address != address || block->kind == Block::Kind::mapped ||
                                     block->kind == Block::Kind::variable))
                return CUDA_ERROR_INVALID_VALUE;
            if (!is_registered()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
            if (const CUresult result = driver.stand_still(lock); result != CUDA_SUCCESS) return result;
            if (const CUresult result = driver.synchronize(lock, context); result != CUDA_SUCCESS)
                return result;
            if (!is_registered()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
            driver.charge(model::call::by_size(model::call::host_unregister, driver.blocks[address].bytes));
            driver.blocks.erase(address);
            driver.space.unmap(address, 1);
            return CUDA_SUCCESS;
        });
}

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr pointer) {
    return with_pointers([&](Driver& driver) {
        return out == nullptr ? CUDA_ERROR_INVALID_VALUE : pointer_attribute(driver, out, attribute, pointer);
    });
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* list, void** out,
                                CUdeviceptr pointer) {
    return with_pointers([&](Driver& driver) -> CUresult {
        if (count == 0 || list == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
        for (unsigned index = 0; index < count; ++index) {
            // What a pointer does not have reads as zero here, other than in the singular form.
            if (pointer_attribute(driver, out[index], list[index], pointer) == CUDA_SUCCESS) continue;
            std::memset(out[index], 0, attribute_size(list[index]));
            if (list[index] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *static_cast<int*>(out[index]) = -2;
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
            return CUDA_ERROR_INVALID_VALUE;
        const Block* block = driver.block_of(pointer);
        if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
        driver.blocks[block->address].synchronous = *static_cast<const int*>(value) != 0;
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
