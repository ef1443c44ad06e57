// Stream memory operations, issued at once or from a graph.
#pragma once

#include <cstdint>

#include "cuda_interface.hpp"

namespace fikit::shim {

// What CUDA refuses at once.
CUresult check_values(const CUstreamBatchMemOpParams* list, size_t count);
CUresult issue_values(const CUstreamBatchMemOpParams* list, size_t count, uint32_t stream);

}  // namespace fikit::shim
