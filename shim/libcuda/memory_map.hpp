// Memory and addresses that are joined by the program, or for it.
#pragma once

#include <cstdint>

#include "process.hpp"

namespace fikit::shim {

// Addresses of the device's, which this process' own mappings are kept away from.
CUresult reserve_addresses(Device& device, uint64_t bytes, uint64_t alignment, uint64_t wished,
                           uint64_t& address);
struct Reservation {
    uint64_t address = 0, bytes = 0;
    Device* device = nullptr;  // whose addresses they are
};
// Of the program's, the one that the address lies in; it has no device when there is none.
Reservation find_reservation(uint64_t address);
// Of cuMemCreate: other processes may be given it.
bool is_exportable(uint32_t handle);
// Once nothing uses it any more.
CUresult unmap_memory(const Device& device, uint64_t address, uint64_t bytes);

}  // namespace fikit::shim
