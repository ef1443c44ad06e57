// Cubins: what an ELF file of machine code says about its kernels and variables.
//
// The code itself is not run: a kernel of a cubin is opaque (see DESIGN.md). Everything in the file
// is somebody else's, so each offset, count and size is checked against the bytes before it is used.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "ptx/module.hpp"

namespace fikit::sim {

using Bytes = std::span<const std::byte>;

bool is_cubin(Bytes image);

// The compute capability the code is for: 90 for sm_90; 0 when it is no cubin.
unsigned cubin_target(Bytes image);

// Reads kernels (names, parameters, registers, shared memory, limits) and variables. On false,
// `problem` says what is wrong with the file.
bool read_cubin(Bytes image, ptx::Module& module, std::string& problem);

}  // namespace fikit::sim
