// Stream memory operations, issued at once or from a graph.
#pragma once

#include <cstdint>

#include "../calls.h"
#include "cuda_interface.hpp"

namespace fikit::shim {

// What CUDA refuses at once.
CUresult check_values(const CUstreamBatchMemOpParams* list, size_t count);
// For the stream as it is now; all or none.
CUresult issue_values(const CUstreamBatchMemOpParams* list, size_t count, uint32_t stream);

}  // namespace fikit::shim
