// Copies between any two addresses, as they are found.
#pragma once

#include <cstdint>

#include "cuda_interface.hpp"

namespace fikit::shim {

// `wait`: until the data are there. On a capturing stream it is written down instead.
CUresult copy_memory(uint64_t to, uint64_t from, uint64_t bytes, uint32_t stream, bool wait);

}  // namespace fikit::shim
