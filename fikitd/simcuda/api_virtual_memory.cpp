// Virtual memory management: reservations, physical allocations, mappings.
#include <sys/mman.h>

#include <algorithm>

#include "pool.hpp"

using namespace fikit::sim;

namespace {

CUresult check_properties(const Driver& driver, const CUmemAllocationProp* properties) {
    if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    // What the attributes of the device promise: descriptors, no fabric.
    if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
        properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUmemLocation& location = properties->location;
    switch (location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            return location.id >= 0 && static_cast<std::size_t>(location.id) < driver.devices.size()
                       ? CUDA_SUCCESS
                       : CUDA_ERROR_INVALID_DEVICE;
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
            return location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
        case CU_MEM_LOCATION_TYPE_HOST:
            return properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_ERROR_NOT_SUPPORTED
                                                                               : CUDA_ERROR_INVALID_VALUE;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

void release_reference(Driver& driver, PhysicalAllocation& allocation) {
    if (--allocation.references > 0) return;
    const CUmemLocation& location = allocation.properties.location;
    if (allocation.host != nullptr) munmap(allocation.host, allocation.bytes);
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        PhysicalMemory& physical = driver.devices[static_cast<std::size_t>(location.id)]->physical;
        if (!allocation.shared)
            physical.release(allocation.extents);
        else if (!allocation.imported)
            physical.refund(allocation.bytes);
    }
    driver.allocations.remove(&allocation);
}

// Runs `visit` for each mapping of [address, address + bytes); false unless they cover it exactly.
template <typename Visit>
bool each_mapping(Driver& driver, std::uint64_t address, std::size_t bytes, Visit visit) {
    std::vector<std::uint64_t> found;
    std::uint64_t at = address;
    while (at < address + bytes) {
        const auto block = driver.blocks.find(at);
        if (block == driver.blocks.end() || block->second.kind != Block::Kind::mapped) return false;
        found.push_back(at);
        at += block->second.bytes;
    }
    if (at != address + bytes) return false;
    for (const std::uint64_t start : found) visit(driver.blocks.at(start));
    return true;
}

// Whether what is mapped there lies on another device.
bool is_of_peer(const Block& block, int device) {
    const CUmemLocation& location =
        static_cast<const PhysicalAllocation*>(block.allocation)->properties.location;
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id != device;
}

std::uint64_t end_of(const Block& block) { return block.address + block.bytes; }

bool aligned(std::size_t value) { return value % model::page == 0; }

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
    return with_memory([&](Driver&) -> CUresult {
        if (granularity == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *granularity = model::page;  // whether there is such memory, cuMemCreate says
        return CUDA_SUCCESS;
    });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr wished,
                             unsigned long long flags) {
    return with_memory([&](Driver& driver) -> CUresult {
        if (address == nullptr || bytes == 0 || !aligned(bytes) || flags != 0)
            return CUDA_ERROR_INVALID_VALUE;
        if ((alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
        const std::uint64_t got = reserve_addresses(bytes, std::max(alignment, model::page), wished);
        if (got == 0) return CUDA_ERROR_OUT_OF_MEMORY;
        driver.reservations[got] = bytes;
        *address = got;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    return with_memory([&](Driver& driver) -> CUresult {
        const auto found = driver.reservations.find(address);
        if (found == driver.reservations.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
        if (driver.space.overlaps(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
        driver.reservations.erase(found);
        free_addresses(address, bytes);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
    return with_memory([&](Driver& driver) -> CUresult {
        if (handle == nullptr || bytes == 0 || !aligned(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = check_properties(driver, properties); result != CUDA_SUCCESS)
            return result;
        auto allocation = std::make_shared<PhysicalAllocation>();
        allocation->properties = *properties;
        allocation->bytes = bytes;
        const bool on_device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        collect(driver);
        if (const CUresult fault = driver.allocation_fault(); fault != CUDA_SUCCESS) return fault;
        if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) {
            allocation->shared = SharedMemory::create({*properties, bytes, false});
            if (!allocation->shared) return CUDA_ERROR_OUT_OF_MEMORY;
            const auto ordinal = static_cast<std::size_t>(properties->location.id);
            if (on_device && !driver.devices[ordinal]->physical.charge(bytes))
                return CUDA_ERROR_OUT_OF_MEMORY;
        } else if (on_device) {
            PhysicalMemory& physical =
                driver.devices[static_cast<std::size_t>(properties->location.id)]->physical;
            auto extents = physical.allocate(bytes);
            if (!extents) return CUDA_ERROR_OUT_OF_MEMORY;
            allocation->extents = std::move(*extents);
        } else {
            void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (got == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
            allocation->host = static_cast<std::byte*>(got);
        }
        driver.charge(model::call::by_size(
            allocation->host == nullptr ? model::call::physical_create : model::call::physical_create_host,
            bytes));
        *handle = driver.allocations.add(std::move(allocation));
        return CUDA_SUCCESS;
    });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    return with_memory([&](Driver& driver) -> CUresult {
        PhysicalAllocation* allocation = driver.allocation_of(handle);
        if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
        driver.charge(model::call::by_size(model::call::physical_release, allocation->bytes));
        --allocation->handles;
        release_reference(driver, *allocation);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    return with_memory([&](Driver& driver) -> CUresult {
        PhysicalAllocation* allocation = driver.allocation_of(handle);
        if (allocation == nullptr || bytes == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        // An allocation is mapped whole or not at all, though the interface has an offset (as
        // driver 580).
        if (offset != 0 || bytes != allocation->bytes) return CUDA_ERROR_NOT_SUPPORTED;
        if (!aligned(address) || !driver.reservation(address, bytes) || driver.space.overlaps(address, bytes))
            return CUDA_ERROR_INVALID_VALUE;
        std::uint64_t at = address;
        std::byte* whole = allocation->shared ? allocation->shared->data() : allocation->host;
        const CUmemLocation& location = allocation->properties.location;
        const int owner = location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : Segment::any;
        if (whole != nullptr) driver.space.map({at, bytes, whole, Access::none, owner});
        std::size_t left = whole != nullptr ? 0 : bytes;
        for (const Extent& extent : allocation->extents) {
            const std::size_t part = std::min(left, extent.bytes);
            if (part == 0) break;
            std::byte* const view =
                driver.devices[static_cast<std::size_t>(owner)]->physical.view(extent.offset);
            driver.space.map({at, part, view, Access::none, owner});
            at += part;
            left -= part;
        }
        driver.charge(model::call::by_size(model::call::map, bytes));
        ++allocation->references;
        Block block;
        block.kind = Block::Kind::mapped;
        block.address = address;
        block.bytes = bytes;
        block.device = allocation->properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE
                           ? allocation->properties.location.id
                           : 0;
        block.id = driver.next_id++;
        block.allocation = allocation;
        driver.blocks[address] = block;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    return with_memory([&](Driver& driver) -> CUresult {
        // Mappings go whole; what else is in the range, reserved or not, holds nothing (as driver 580).
        if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
        std::vector<Block> gone;
        if (!each_mapping(driver, address, bytes, [&](const Block& block) { gone.push_back(block); })) {
            if (!driver.reservation(address, 1)) return CUDA_ERROR_INVALID_VALUE;
            auto next = driver.blocks.lower_bound(address);
            if (next != driver.blocks.begin() && end_of(std::prev(next)->second) > address)
                return CUDA_ERROR_INVALID_VALUE;
            for (; next != driver.blocks.end() && next->first < address + bytes; ++next)
                if (next->second.kind == Block::Kind::mapped) gone.push_back(next->second);
            if (!gone.empty() && end_of(gone.back()) > address + bytes) return CUDA_ERROR_INVALID_VALUE;
        }
        driver.charge(model::call::by_size(model::call::unmap, bytes));
        for (const Block& block : gone) {
            driver.space.unmap(block.address, block.bytes);
            driver.blocks.erase(block.address);
            release_reference(driver, *static_cast<PhysicalAllocation*>(block.allocation));
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* list, size_t count) {
    return with_memory([&](Driver& driver) -> CUresult {
        if (list == nullptr || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
        driver.charge(model::call::by_size(model::call::set_access, bytes));
        for (std::size_t index = 0; index < count; ++index) {
            const CUmemLocation& location = list[index].location;
            const CUmemAccess_flags flags = list[index].flags;
            if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
                flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                return CUDA_ERROR_INVALID_VALUE;
            if (location.type == CU_MEM_LOCATION_TYPE_HOST) {
                bool on_device = false;
                const bool mapped = each_mapping(driver, address, bytes, [&](const Block& block) {
                    const auto& allocation = *static_cast<const PhysicalAllocation*>(block.allocation);
                    on_device |= allocation.properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
                });
                if (!mapped) return CUDA_ERROR_INVALID_VALUE;
                if (on_device) return CUDA_ERROR_NOT_SUPPORTED;
                continue;
            }
            if (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) continue;
            if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
            if (location.id < 0 || static_cast<std::size_t>(location.id) >= driver.devices.size()) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            const Access access = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? Access::read_write
                                  : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? Access::read
                                                                              : Access::none;
            bool peer = false;
            if (!each_mapping(driver, address, bytes,
                              [&](const Block& block) { peer |= is_of_peer(block, location.id); }))
                return CUDA_ERROR_INVALID_VALUE;
            if (peer) return CUDA_ERROR_INVALID_DEVICE;
            each_mapping(driver, address, bytes, [&](const Block& block) {
                driver.space.protect(block.address, block.bytes, access);
            });
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
    return with_memory([&](Driver& driver) -> CUresult {
        const Block* block = driver.block_of(address);
        if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;  // also where it fails (as driver 580)
        if (location == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const bool device = location->type != CU_MEM_LOCATION_TYPE_HOST;
        if (device && (location->id < 0 || static_cast<std::size_t>(location->id) >= driver.devices.size()))
            return CUDA_ERROR_INVALID_DEVICE;
        // Of memory that is not of this kind it tells nothing, and does not fail (as driver 580).
        const bool has_access =
            block->kind == Block::Kind::mapped && !(device && is_of_peer(*block, location->id));
        *flags = has_access ? driver.access_to(*block) : 0;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
    return with_memory([&](Driver& driver) -> CUresult {
        const PhysicalAllocation* allocation = driver.allocation_of(handle);
        if (properties == nullptr || allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *properties = allocation->properties;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
    return with_memory([&](Driver& driver) -> CUresult {
        const Block* block = driver.block_of(reinterpret_cast<std::uint64_t>(address));
        if (handle == nullptr || block == nullptr || block->kind != Block::Kind::mapped)
            return CUDA_ERROR_INVALID_VALUE;
        auto* allocation = static_cast<PhysicalAllocation*>(block->allocation);
        ++allocation->handles;
        ++allocation->references;
        *handle = allocation->handle;
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
