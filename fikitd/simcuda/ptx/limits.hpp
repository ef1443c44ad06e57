// Bounds of what a program may ask of the interpreter, so that no text exhausts the machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fikit::sim::ptx::limits {

inline constexpr double version = 9.0;  // .version, of the modelled driver
inline constexpr std::uint32_t kernel_parameter_bytes =
    32764;                                                // CUDA C++ Programming Guide, "Function parameters"
inline constexpr std::uint32_t local_bytes = 512 * 1024;  // per thread, as in its table of limits
inline constexpr std::uint64_t numbered_names = 4096;     // of one name<N>
inline constexpr std::uint32_t call_depth = 4096;
inline constexpr std::size_t frame_bytes_per_warp = std::size_t{64} << 20;

// Warp instructions. A block that retires so many is an endless loop (half a minute of the host's time:
// longer than hosts let a kernel wait for their word, and longer than counting loops that only pass time).
inline constexpr std::uint64_t watchdog = std::uint64_t{1} << 30;
// After so many it is looked whether the loop has a way out at all.
inline constexpr std::uint64_t watchdog_look = std::uint64_t{1} << 22;
// How long one group of lanes runs while others of its warp are ready; a memory access that other
// lanes may answer counts as many.
inline constexpr std::uint32_t fair_turn = 8192;
inline constexpr std::uint32_t fair_access = 256;
// How long one warp runs before the next of its block does.
inline constexpr std::uint32_t warp_turn = 16384;

}  // namespace fikit::sim::ptx::limits
