// Memory pools: stream-ordered allocation.
//
// An allocation has its pages when the call returns; a free gives them back once the stream has got there,
// which the driver notices at the next call that looks. A pool has the pages that its allocations need and
// nothing more: what it would keep besides, and where in it they would lie, is only counted (PoolRoom).
// A pool for other processes has memory of its own, which they map whole.
#pragma once

#include "driver.hpp"
#include "pool_room.hpp"

namespace fikit::sim {

struct MemoryPool {
    MemoryPool() = default;
    ~MemoryPool() { room.clear(); }
    MemoryPool(const MemoryPool&) = delete;
    MemoryPool& operator=(const MemoryPool&) = delete;

    CUmemoryPool handle{};
    CUmemPoolProps properties{};
    bool preset = false;  // a device's own: never destroyed
    cuuint64_t threshold = 0;
    std::map<CUmemPool_attribute, int> reuse;
    static constexpr int host = -1;           // as a place
    std::map<int, CUmemAccess_flags> access;  // as set, by place
    PoolRoom room;                            // not of an imported one

    struct Pending {
        OperationPtr after;
        Block block;
    };
    std::vector<Pending> pending;  // freed, but perhaps still in use

    // Of managed memory the location is where it would rather be.
    bool managed() const { return properties.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED; }
    // What its memory can be shared by.
    unsigned handle_types() const { return pages ? properties.handleTypes : CU_MEM_HANDLE_TYPE_NONE; }
    bool on_host() const { return managed() || properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE; }
    bool pinned_on_host() const { return on_host() && !managed(); }
    // A device's number, or `host`.
    int place() const {
        return properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties.location.id : host;
    }
    // What was set for a place, or goes without saying: memory that is not managed is reached where it is.
    CUmemAccess_flags access_from(int place) const;
    // Whether devices reach its memory. One address space serves all of them.
    bool reachable() const;
    // One that may be exported has pages of its own; of an imported one there is only the other's.
    std::unique_ptr<PhysicalMemory> pages;
    std::unique_ptr<DeviceHeap> heap;
    bool exported = false;
    std::unique_ptr<SharedMemory> imported;
    unsigned imports = 0;  // as many destroys end it
};

// The pool of a device that is there from the start.
MemoryPool& preset_pool(Driver& driver, int device);
// One of host or managed memory that is.
MemoryPool& preset_pool(Driver& driver, const CUmemLocation& location, CUmemAllocationType type);
// Takes away the handle; the pool lives on while it has allocations.
void retire_pool(Driver& driver, MemoryPool& pool);
// Gives back what streams have freed by now.
void collect(Driver& driver);
// The end of a call that waits for a context, a stream or an event: then pools give back what they keep
// beyond their thresholds.
CUresult end_wait(Driver& driver, CUresult result);
// Whether devices reach the memory of a host pool from now on.
void set_reachable(Driver& driver, const MemoryPool& pool);
CUresult pool_allocate(Driver& driver, MemoryPool& pool, Context& context, std::size_t bytes,
                       CUdeviceptr* address);
// Of an allocation of a pool's that is forgotten; waits for nothing.
void release_pages(Driver& driver, const Block& block);
// Frees device or managed memory, a pool's or not, that nothing uses any more.
CUresult free_block(Driver& driver, CUdeviceptr address);

}  // namespace fikit::sim
