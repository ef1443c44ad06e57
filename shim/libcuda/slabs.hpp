// Small pieces of pinned memory that has one address everywhere. A session has few handles of pinned memory
// and each costs two mappings and a registration, while programs make managed objects and pin the samples of
// their data by the thousand.
#pragma once

#include <pthread.h>

#include <cstdint>

#include "cuda_interface.hpp"

namespace fikit::shim {

struct Device;

class Slabs {
  public:
    static constexpr uint64_t slab_bytes = uint64_t{2} << 20, largest_piece = slab_bytes / 4;

    // `handle` is the slab's, by which the piece goes back.
    CUresult take(Device& device, uint64_t bytes, uint64_t& address, uint32_t& handle);
    // False: the handle is no slab's. Nothing uses the piece any more.
    bool give_back(Device& device, uint32_t handle, uint64_t address, uint64_t bytes);

  private:
    static constexpr uint64_t unit = 512;
    static constexpr uint32_t units = slab_bytes / unit;
    struct Slab {
        Device* device;
        uint64_t address;
        uint32_t handle;
        uint32_t free;
        Slab* next;
        bool taken[units];

        // The first of so many free units side by side; `units` when there are none.
        uint32_t find(uint32_t count) const;
        void mark(uint32_t first, uint32_t count, bool to);
    };

    CUresult add(Device& device);

    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    Slab* first_ = nullptr;
};

extern Slabs slabs;

}  // namespace fikit::shim
