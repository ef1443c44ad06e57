// Which modifiers and types instructions may have.
#pragma once

#include <string_view>
#include <vector>

namespace fikit::sim::ptx {

// Whether the table of forms has this one; true for instructions that are not in it.
bool is_form(std::string_view opcode, const std::vector<std::string_view>& modifiers);

}  // namespace fikit::sim::ptx
