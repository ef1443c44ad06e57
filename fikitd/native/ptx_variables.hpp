// How much device memory the variables of PTX take.
#pragma once

#include <cstdint>
#include <string_view>

namespace fikit {

// Those in .global (PTX ISA, State Spaces); constants are never much. UINT64_MAX: the text declares some
// whose size cannot be told.
uint64_t ptx_variable_bytes(std::string_view text);

}  // namespace fikit
