// What the device's run-time library gives a kernel: malloc, free, printf, assert,
// the conditions of graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ptx/program.hpp"

namespace fikit::sim::ptx {

// The host's view of bytes of the device's heap, by their offset in its window; null outside of it.
std::byte* device_heap_at(std::uint64_t offset, std::size_t bytes);
// Before a kernel has taken from it; false: it is smaller, and one has.
bool grow_device_heap(std::size_t bytes);

// What cudaGraphSetConditional set last under a handle; 0 where nothing was.
std::uint32_t condition(std::uint64_t handle);
void set_condition(std::uint64_t handle, std::uint32_t value);

// Functions that a program may declare and not define; null for any other name. The handler finds the
// arguments in op's call: see system.cpp.
Handler system_function(std::string_view name);

}  // namespace fikit::sim::ptx
