// Copies between any two addresses, as they are found.
#pragma once

#include <cstdint>

#include "cuda_interface.hpp"

namespace fikit::shim {

// What the call's name says of a side; a side that may be anything is pageable memory where nothing is known.
enum class Sides : uint8_t { any, to_gpu, from_gpu, on_gpu };

// `wait`: until the data are there. On a capturing stream it is written down instead.
CUresult copy_memory(uint64_t to, uint64_t from, uint64_t bytes, uint32_t stream, bool wait,
                     Sides sides = Sides::any);

}  // namespace fikit::shim
