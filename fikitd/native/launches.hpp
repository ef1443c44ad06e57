// What is looked at in a launch, whether it comes by itself or as a node of a graph.
#pragma once

#include <abi.h>
#include <cuda.h>

#include <climits>

#include "launch_attributes.hpp"
#include "session.hpp"

namespace fikit {

enum class AttributeUse { pass, drop, refuse };

// Launch attributes a tenant may set. Its priority is the session's, so that one is ignored.
inline AttributeUse attribute_use(uint32_t id) {
    if (is_sent(id)) return AttributeUse::pass;
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            return AttributeUse::drop;
        default:
            return AttributeUse::refuse;
    }
}

// What is impossible about a launch's shape (CUDA C++ Programming Guide, technical specifications), or
// nullptr.
inline const char* check_shape(const fikit_launch& launch, const SessionFunction& function) {
    const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
    if (launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0) return "a grid dimension is 0";
    if (launch.grid[0] > INT32_MAX || launch.grid[1] > 65535 || launch.grid[2] > 65535)
        return "the grid is too large";
    if (threads == 0) return "a block dimension is 0";
    if (launch.block[0] > 1024 || launch.block[1] > 1024 || launch.block[2] > 64 ||
        threads > function.max_threads)
        return "the block has more threads than the kernel can have";
    if (launch.parameter_bytes != function.parameter_bytes) return "the parameters have the wrong size";
    return nullptr;
}

}  // namespace fikit
