// Memory and addresses that are joined by the program, or for it.
#pragma once

#include <cstdint>

#include "process.hpp"

namespace fikit::shim {

// Addresses of the device's, which this process' own mappings are kept away from.
CUresult reserve_addresses(Device& device, uint64_t bytes, uint64_t alignment, uint64_t wished,
                           uint64_t& address);
// That the address lies in, of the program's reservations; false when in none.
bool find_reservation(uint64_t address, uint64_t& first, uint64_t& bytes);
// Of cuMemCreate: other processes may be given it.
bool is_exportable(uint32_t handle);
// Once nothing uses it any more.
CUresult unmap_memory(const Device& device, uint64_t address, uint64_t bytes);

}  // namespace fikit::shim
