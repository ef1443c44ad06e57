// Sections of GPU code that have a size and nothing in the file: ELF's own kind, and those of images that are
// still to be linked (nvcc -rdc=true), whose variables and shared memory ptxas marks by numbers of its own.
#pragma once

#include <cstdint>

namespace fikit {

constexpr bool is_empty_section(uint32_t type) {
    constexpr uint32_t none = 8, variables = 0x70000007, local = 0x70000009, shared = 0x7000000a;
    return type == none || type == variables || type == local || type == shared;
}

}  // namespace fikit
