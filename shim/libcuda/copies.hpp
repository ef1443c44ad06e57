// Copies between any two addresses, as they are found.
#pragma once

#include <cstdint>

#include "cuda_interface.hpp"
#include "process.hpp"

namespace fikit::shim {

// What the call's name says of a side; a side that may be anything is pageable memory where nothing is known.
enum class Sides : uint8_t { any, to_gpu, from_gpu, on_gpu };

// `wait`: until the data are there. On a capturing stream it is written down instead.
CUresult copy_memory(uint64_t to, uint64_t from, uint64_t bytes, uint32_t stream, bool wait,
                     Sides sides = Sides::any);

// Registered memory that no session knows is read by the call, not in the stream's order. Where functions of
// the host's may write it first it becomes such as the session knows, or they are waited for.
CUresult await_writers(uint64_t from, uint32_t stream);

// A copy that is no stream's comes after all that both devices were given, and before what they are given
// next. Within a device the legacy default stream sees to that.
CUresult settle(uint64_t to, uint64_t from);

// All of it memory that some device may write now.
bool is_writable(uint64_t address, uint64_t bytes);
// Memory that the device's session can fill, device memory or not.
bool fills(const Device& device, uint64_t address);
// Device memory of the given device.
bool is_memory_of(uint64_t address, const Device& device);
CUresult fill_memory(uint64_t address, uint32_t value, uint32_t width, uint64_t count, uint32_t stream);

// Of a copy in a batch (`Copy`: what says so), whether it can be meant.
template <class Copy>
bool is_known(const Copy& copy) {
    return copy.srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
           copy.srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
           (copy.flags & ~unsigned{CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}) == 0;
}

// One side of a copy of rows between memory: where its first byte is, and how far apart rows and slices are.
struct Side {
    uint64_t address;
    uint64_t pitch, slice;
};
CUresult sides_of(const CUDA_MEMCPY3D& copy, Side& to, Side& from);
// Whether both ends are there, memory or arrays.
CUresult check_rows(const CUDA_MEMCPY3D& copy);
CUresult copy_rows(const CUDA_MEMCPY3D& copy, uint32_t stream);

// The rows of a copy, for whoever takes one after the other; false ends it.
template <class Take>
bool each_row(const CUDA_MEMCPY3D& copy, const Take& take) {
    Side to, from;
    if (sides_of(copy, to, from) != CUDA_SUCCESS) return false;
    const uint64_t width = copy.WidthInBytes;
    const bool flat = to.pitch == width && from.pitch == width;
    const uint64_t rows = flat ? 1 : copy.Height, bytes = flat ? width * copy.Height : width;
    for (uint64_t z = 0; z < copy.Depth; ++z)
        for (uint64_t y = 0; y < rows; ++y)
            if (!take(to.address + z * to.slice + y * to.pitch,
                      from.address + z * from.slice + y * from.pitch, bytes))
                return false;
    return true;
}

}  // namespace fikit::shim
