// See pool.hpp.
#include "pool.hpp"

#include <algorithm>

namespace fikit::sim {

namespace {

std::size_t rounded(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

SimulatedDevice& device_of(Driver& driver, const MemoryPool& pool) {
    return *driver.devices[static_cast<std::size_t>(pool.properties.location.id)];
}

std::uint64_t allocate_shared(Driver& driver, MemoryPool& pool, std::size_t bytes) {
    const std::size_t pages = rounded(bytes, model::page);
    PhysicalMemory& physical = device_of(driver, pool).physical;
    if (!physical.charge(pages)) return 0;
    const std::uint64_t address = pool.heap->allocate(bytes);
    if (address == 0) physical.refund(pages);
    return address;
}

std::uint64_t allocate_pages(Driver& driver, MemoryPool& pool, std::size_t bytes) {
    if (pool.on_host()) return allocate_host_pages(driver.space, bytes);
    return pool.heap ? allocate_shared(driver, pool, bytes) : device_of(driver, pool).heap.allocate(bytes);
}

template <typename Visit>
void each_pool(Driver& driver, Visit visit) {
    driver.pools.each(visit);
    for (const auto& pool : driver.retired_pools) visit(*pool);
}

}  // namespace

CUmemAccess_flags MemoryPool::access_from(int from) const {
    const auto set = access.find(from);
    if (set != access.end()) return set->second;
    return from == place() && !managed() ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

bool MemoryPool::reachable() const {
    return !pinned_on_host() || std::ranges::any_of(access, [](const auto& set) {
        return set.first != host && set.second != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    });
}

void set_reachable(Driver& driver, const MemoryPool& pool) {
    const Access access = pool.reachable() ? Access::read_write : Access::none;
    for (const auto& [address, block] : driver.blocks)
        if (block.pool == &pool) driver.space.protect(address, block.bytes, access);
}

MemoryPool& preset_pool(Driver& driver, int device) {
    SimulatedDevice& simulated = *driver.devices[static_cast<std::size_t>(device)];
    if (simulated.preset_pool == nullptr)
        simulated.preset_pool = simulated.pool =
            &preset_pool(driver, {CU_MEM_LOCATION_TYPE_DEVICE, {device}}, CU_MEM_ALLOCATION_TYPE_PINNED);
    return *simulated.preset_pool;
}

MemoryPool& preset_pool(Driver& driver, const CUmemLocation& location, CUmemAllocationType type) {
    const bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    const bool on_node = location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;  // there is one node
    const auto where = on_node ? CU_MEM_LOCATION_TYPE_HOST : location.type;
    const int id = on_device ? location.id : 0;
    MemoryPool* found = nullptr;
    driver.pools.each([&](MemoryPool& pool) {
        const CUmemPoolProps& its = pool.properties;
        if (pool.preset && its.allocType == type && its.location.type == where && its.location.id == id)
            found = &pool;
    });
    if (found != nullptr) return *found;
    auto pool = std::make_shared<MemoryPool>();
    pool->preset = true;
    pool->properties.allocType = type;
    pool->properties.location = {where, {id}};
    found = pool.get();
    driver.pools.add(std::move(pool));
    return *found;
}

void retire_pool(Driver& driver, MemoryPool& pool) {
    driver.retired_pools.push_back(driver.pools.share(pool.handle));
    driver.pools.remove(&pool);
    collect(driver);
}

void collect(Driver& driver) {
    each_pool(driver, [&](MemoryPool& pool) {
        std::erase_if(pool.pending, [&](const MemoryPool::Pending& freed) {
            if (!freed.after->done) return false;
            release_pages(driver, freed.block);
            return true;
        });
    });
    std::erase_if(driver.retired_pools,
                  [](const auto& pool) { return pool->pending.empty() && pool->room.used() == 0; });
    std::erase_if(driver.retired_images, [&](const auto& image) {
        if (image.use_count() > 1) return false;
        driver.release_variables(*image);
        return true;
    });
}

CUresult end_wait(Driver& driver, CUresult result) {
    if (result != CUDA_SUCCESS) return result;
    collect(driver);
    each_pool(driver, [](MemoryPool& pool) { pool.room.trim(pool.threshold); });
    return CUDA_SUCCESS;
}

CUresult pool_allocate(Driver& driver, MemoryPool& pool, Context& context, std::size_t bytes,
                       CUdeviceptr* address) {
    if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    collect(driver);
    if (const CUresult fault = driver.allocation_fault(); fault != CUDA_SUCCESS) return fault;
    Block block;
    if (!pool.room.add(bytes, block.place)) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::uint64_t got = allocate_pages(driver, pool, bytes);
    if (got == 0) {
        pool.room.undo(block.place);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block.kind = Block::Kind::pooled;
    block.address = got;
    block.bytes = bytes;
    block.context = &home_of(context);
    block.device = pool.on_host() ? context.device : pool.place();  // not the stream's
    block.id = driver.next_id++;
    block.pool = &pool;
    block.on_host = pool.on_host();
    if (pool.managed()) {
        make_managed(block, Block::Kind::pooled);
        const CUmemLocation& location = pool.properties.location;
        if (location.type != CU_MEM_LOCATION_TYPE_NONE)
            block.advice->advise(got, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location,
                                 static_cast<int>(driver.devices.size()), CUDA_ERROR_INVALID_VALUE);
    }
    driver.blocks[got] = block;
    if (!pool.reachable()) driver.space.protect(got, bytes, Access::none);
    *address = got;
    return CUDA_SUCCESS;
}

void release_pages(Driver& driver, const Block& block) {
    MemoryPool& pool = *block.pool;
    const CUdeviceptr address = block.address;
    const std::size_t bytes = block.bytes;
    if (pool.on_host()) {
        release_host_pages(driver.space, address, bytes);
    } else if (pool.imported) {
        driver.space.unmap(address, 1);
        free_addresses(address, bytes);
        return;
    } else if (pool.heap) {
        pool.heap->release(address, bytes);
        device_of(driver, pool).physical.refund(rounded(bytes, model::page));
    } else {
        device_of(driver, pool).heap.release(address, bytes);
    }
    pool.room.remove(block.place);
}

CUresult free_block(Driver& driver, CUdeviceptr address) {
    const auto found = driver.blocks.find(address);
    if (found == driver.blocks.end()) return CUDA_ERROR_INVALID_VALUE;
    const Block block = found->second;
    driver.blocks.erase(found);
    driver.charge(block.bytes <= model::call::shared_page_limit ? model::call::allocate_shared
                                                                : model::call::free);
    if (block.pool != nullptr)
        release_pages(driver, block);
    else if (block.kind == Block::Kind::managed)
        release_host_pages(driver.space, address, block.bytes);
    else
        driver.devices[static_cast<std::size_t>(block.device)]->heap.release(address, block.bytes);
    return CUDA_SUCCESS;
}

}  // namespace fikit::sim
