// Which modifiers and types instructions may have.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace fikit::sim::ptx {

// The version of the PTX ISA that an instruction's form came with, if the table of forms has it: 81 for 8.1;
// 0 for what sm_90 has always had, and for instructions that are not in the table.
std::optional<unsigned> version_of_form(std::string_view opcode,
                                        const std::vector<std::string_view>& modifiers);

}  // namespace fikit::sim::ptx
