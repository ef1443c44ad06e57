// A session's device memory: a range of virtual addresses of its own, with physical extents mapped into it.
//
// cuMemFree waits for running kernels (104 ms measured behind one), so it is never used: freeing is an unmap
// that the caller fences. Large requests get extents of their own; small ones share 2 MiB slabs. Addresses
// are fixed, which is what restoring and moving memory need. Called by one thread at a time.
//
// Mapping and unmapping 2 MiB takes 41 us of driver calls, so an extent freed is kept mapped until it is
// trimmed. What is kept counts as free: the session's next request of that size gets it, and before any
// request is refused it goes back to the device. It is never handed to another session.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "clock.hpp"
#include "driver.hpp"

namespace fikit {

// Physical memory that several sessions may map: it goes with the last of them.
struct SharedExtent {
    const Driver& driver;
    CUmemGenericAllocationHandle handle;
    uint64_t size;
    uint32_t number;  // by which others ask for it

    SharedExtent(const Driver& with, CUmemGenericAllocationHandle memory, uint64_t bytes, uint32_t called)
        : driver(with), handle(memory), size(bytes), number(called) {}
    SharedExtent(const SharedExtent&) = delete;
    ~SharedExtent() { driver.cuMemRelease_(handle); }
};

class Arena {
  public:
    static constexpr uint64_t granule = 2u << 20;  // CUDA's own for device memory; checked at start
    static constexpr uint64_t small_limit = 1u << 20;
    static constexpr uint64_t small_align = 512;  // as cuMemAlloc's

    Arena(const Driver& driver, CUdevice device, CUdeviceptr base, uint64_t size)
        : driver_(driver), device_(device), base_(base), bytes_(size) {
        holes_[base] = size;
    }
    Arena(const Arena&) = delete;
    ~Arena() { clear(); }

    // The most that an allocation may add to what is used.
    static uint64_t growth(uint64_t size) { return (size + granule - 1) / granule * granule; }
    // CUDA_ERROR_OUT_OF_MEMORY when `limit` (bytes used; 0: none) or the device has no room.
    CUresult allocate(uint64_t size, uint64_t limit, CUdeviceptr& address, uint64_t& charged);
    // The same without calling the driver or searching long: from what is kept, or the slab used last. False:
    // not so.
    bool take(uint64_t size, uint64_t limit, CUdeviceptr& address, uint64_t& charged);
    // The caller has seen to it that nothing uses it any more. Does not call the driver.
    CUresult release(CUdeviceptr address, Nanoseconds now);
    // Unmaps what has been kept since `before` or longer.
    void trim(Nanoseconds before = INT64_MAX);
    void clear();

    // Memory without addresses, for programs that map it themselves.
    CUresult create(uint64_t size, uint64_t limit, CUmemGenericAllocationHandle& handle);
    void destroy(uint64_t size, CUmemGenericAllocationHandle handle);
    // Memory of others', which counts like that.
    CUresult charge(uint64_t size, uint64_t limit);
    void discharge(uint64_t size) { mapped_ -= size; }
    // The extent in which an allocation lies, for others to map; `number` if it has none yet. nullptr: there
    // is none.
    std::shared_ptr<SharedExtent> share(CUdeviceptr address, uint32_t number, uint64_t& offset);

    CUdeviceptr addresses() const { return base_; }
    uint64_t address_bytes() const { return bytes_; }
    bool fits(uint64_t size, uint64_t limit) const {
        return limit == 0 || (size <= limit && used_bytes() <= limit - size);
    }
    uint64_t used_bytes() const { return mapped_ - kept_bytes_; }
    // How much less is used once these allocations have been released.
    uint64_t released_by(std::vector<CUdeviceptr> addresses) const;
    uint64_t kept_bytes() const { return kept_bytes_; }
    Nanoseconds oldest_kept() const { return kept_.empty() ? INT64_MAX : kept_.front().since; }

  private:
    struct Extent {
        uint64_t size = 0;
        CUmemGenericAllocationHandle handle = 0;
        bool kept = false;
        std::shared_ptr<SharedExtent> shared = nullptr;  // it has the handle then
    };
    struct Kept {
        CUdeviceptr address = 0;
        uint64_t size = 0;
        Nanoseconds since = 0;
    };
    struct Slab {
        std::map<uint64_t, uint64_t> holes;   // offset -> size
        std::map<uint64_t, uint64_t> pieces;  // offset -> size
    };

    bool make_room(uint64_t size, uint64_t limit);
    CUresult take_extent(uint64_t size, uint64_t limit, CUdeviceptr& address);
    CUresult map(uint64_t size, CUdeviceptr& address);
    void unmap(CUdeviceptr address);
    bool take_kept(uint64_t size, uint64_t limit, CUdeviceptr& address);
    bool take_piece(CUdeviceptr base, uint64_t size, CUdeviceptr& address);
    CUresult keep(CUdeviceptr address, Nanoseconds now);

    const Driver& driver_;
    CUdevice device_;
    CUdeviceptr base_;
    uint64_t bytes_;
    std::map<uint64_t, uint64_t> holes_;  // unused virtual ranges
    std::map<CUdeviceptr, Extent> extents_;
    std::map<CUdeviceptr, Slab> slabs_;
    CUdeviceptr recent_ = 0;  // the slab used last
    std::vector<Kept> kept_;  // oldest first
    uint64_t mapped_ = 0, kept_bytes_ = 0;
};

// Takes `size` bytes from the first hole that has room; false when none has.
bool take_first(std::map<uint64_t, uint64_t>& holes, uint64_t size, uint64_t& at);
// Gives a range back, joining it with its neighbours.
void give(std::map<uint64_t, uint64_t>& holes, uint64_t at, uint64_t size);

}  // namespace fikit
