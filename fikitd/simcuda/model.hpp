// The figures of the simulated GPU: one NVIDIA H200, as measured (facts/gpu-limits.md: driver 580,
// CUDA 13.0).
//
// Everything that is a number of the modelled machine stands here and nowhere else, so that a new
// measurement is a change of one file. Times are simulated nanoseconds. A figure that is derived
// says from what.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fikit::sim {

using Nanoseconds = std::int64_t;

namespace model {

inline constexpr int driver_version = 13000;
inline constexpr const char* device_name = "NVIDIA H200 (simulated)";

// Streaming multiprocessors (compute capability 9.0).
inline constexpr unsigned sm_count = 132;
inline constexpr unsigned warp_size = 32;
inline constexpr unsigned threads_per_block = 1024;
inline constexpr unsigned threads_per_sm = 2048;
inline constexpr unsigned blocks_per_sm = 32;
inline constexpr unsigned registers_per_sm = 65536;
inline constexpr unsigned registers_per_thread = 255;
inline constexpr unsigned register_allocation_unit = 256;  // per warp
inline constexpr unsigned shared_per_sm = 233472;
inline constexpr unsigned shared_per_block = 49152;
inline constexpr unsigned shared_per_block_optin = 232448;  // 227 KiB
inline constexpr unsigned shared_reserved_per_block = 1024;
inline constexpr unsigned shared_allocation_unit = 128;
inline constexpr unsigned constant_memory = 65536;
inline constexpr unsigned sm_partition_minimum = 8;
inline constexpr unsigned sm_partition_step = 8;
inline constexpr unsigned cluster_limit = 8;
inline constexpr unsigned cluster_limit_nonportable = 16;

// Clocks. %clock64 counts at the SM clock; %globaltimer counts nanoseconds.
inline constexpr double sm_clock_ghz = 1.98;
inline constexpr unsigned memory_clock_khz = 3201000;
inline constexpr unsigned memory_bus_bits = 6016;
inline constexpr unsigned l2_bytes = 60 * 1024 * 1024;

// Stream priorities: 0 (lowest) to -5 (highest).
inline constexpr int priority_lowest = 0;
inline constexpr int priority_highest = -5;

// One kernel on an idle device: the host's call reaches the front end, the grid is started, its
// blocks run, its writes are flushed, and the host sees it. The sum, less the 2.5 us that the real
// call costs the host, gives the measured 7.18 us of launch + synchronise; start + block + end
// gives 1 us from kernel to kernel in a stream (0.72 us inside a graph).
inline constexpr Nanoseconds submission = 4200;
inline constexpr Nanoseconds kernel_start = 400;
inline constexpr Nanoseconds block_overhead = 200;
inline constexpr Nanoseconds kernel_end = 400;
inline constexpr Nanoseconds completion_notice = 1700;
// A dependency on another stream: a chain that hops between streams by events costs 3.0 us per
// kernel.
inline constexpr Nanoseconds cross_stream = 2000;
// How often a pending stream wait looks at its memory.
inline constexpr Nanoseconds wait_poll = 1000;

// Link and memory. 1 GB/s = 1 byte per nanosecond. 1.8 us + bytes/55.4 gives the
// measured 2.2, 22.3, 50.6 and 55.1 GB/s of 4 KiB, 64 KiB, 1 MiB and 16 MiB pieces.
inline constexpr Nanoseconds copy_latency = 1800;
inline constexpr double host_to_device = 55.6;
inline constexpr double device_to_host = 55.4;
inline constexpr double both_directions = 101.7 / 2;  // each, while the other runs
inline constexpr double pageable_to_device = 10.3;
inline constexpr double device_to_pageable = 19.1;
inline constexpr double device_memory = 4196;  // read + write
inline constexpr std::size_t pageable_staged =
    65536;  // up to here a pageable upload returns once it is staged

inline constexpr std::size_t page = std::size_t{2} << 20;            // granularity of physical memory
inline constexpr std::size_t default_memory = std::size_t{4} << 30;  // so that small machines can hold it

// A block that retires this many instructions without waiting is an endless loop.
inline constexpr std::uint64_t watchdog_instructions = std::uint64_t{1} << 22;

}  // namespace model
}  // namespace fikit::sim
