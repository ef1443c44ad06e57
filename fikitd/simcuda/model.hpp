// The figures of the simulated GPU: one NVIDIA H200, as measured (facts/gpu-limits.md: driver 580,
// CUDA 13.0).
//
// Everything that is a number of the modelled machine stands here and nowhere else, so that a new
// measurement is a change of one file. Times are simulated nanoseconds. A figure that is derived
// says from what.
#pragma once

#include <array>
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
inline constexpr unsigned sm_quarters = 4;  // each with its part of the registers
inline constexpr unsigned registers_per_thread = 255;
inline constexpr unsigned register_allocation_unit = 256;  // per warp
inline constexpr unsigned shared_per_sm = 233472;
inline constexpr unsigned sync_domains = 4;
inline constexpr unsigned shared_carveouts[] = {0,          8U << 10,     16U << 10,  32U << 10,
                                                64U << 10,  100U << 10,   132U << 10, 164U << 10,
                                                196U << 10, shared_per_sm};
inline constexpr unsigned shared_per_block = 49152;
inline constexpr unsigned shared_per_block_optin = 232448;  // 227 KiB
inline constexpr unsigned shared_reserved_per_block = 1024;
inline constexpr unsigned shared_allocation_unit = 128;
inline constexpr unsigned constant_memory = 65536;
inline constexpr unsigned sm_partition_minimum = 8;
inline constexpr unsigned sm_partition_step = 8;
inline constexpr std::size_t stack_bytes = 1024;                 // CU_LIMIT_STACK_SIZE
inline constexpr std::size_t print_bytes = 65536 * sm_count;     // CU_LIMIT_PRINTF_FIFO_SIZE
inline constexpr std::size_t heap_bytes = std::size_t{8} << 20;  // CU_LIMIT_MALLOC_HEAP_SIZE
inline constexpr unsigned cluster_limit = 8;
inline constexpr unsigned cluster_limit_nonportable = 16;
// As cuOccupancyMaxActiveClusters counts: the SMs that clusters of more than two find, the blocks on each.
inline constexpr unsigned cluster_sms = 124;
inline constexpr unsigned cluster_blocks = 8;

// Clocks. %clock64 counts at the SM clock; %globaltimer counts nanoseconds.
inline constexpr double sm_clock_ghz = 1.98;
inline constexpr unsigned memory_clock_khz = 3201000;
inline constexpr unsigned memory_bus_bits = 6016;
inline constexpr unsigned l2_bytes = 60 * 1024 * 1024;
inline constexpr unsigned most_persisting_l2 = l2_bytes / 16 * 10;

// Stream priorities: 0 (lowest) to -5 (highest).
inline constexpr int priority_lowest = 0;
inline constexpr int priority_highest = -5;

// The way of a kernel. Its call's end to the device's front end (`submission`), to the first block
// (`kernel_start`, in a graph sooner), a block from its place to its slot's next use without its own work
// (`block_overhead`, and `block_launch` for each block that its SM starts in the same instant), the last
// block to the completion
// (`kernel_end`), and from there to the host that synchronises (`completion_notice`). From: launch +
// synchronise 7.18 us of which the call takes 2.5; 0.72 us from kernel to kernel in a graph; and the floods
// of the priority table, whose waves follow each other 0.81 us later than their blocks last (DESIGN.md, "How
// each figure is explained").
inline constexpr Nanoseconds submission = 1500;
inline constexpr Nanoseconds kernel_start = 600;
inline constexpr Nanoseconds graph_kernel_start = 100;
inline constexpr Nanoseconds block_overhead = 486;
inline constexpr Nanoseconds block_launch = 14;
inline constexpr Nanoseconds kernel_end = 120;
inline constexpr Nanoseconds completion_notice = 1950;
// While a copy fills the link to the host, notices wait behind its bytes: 9.1 us instead of 8.5.
inline constexpr Nanoseconds notice_behind_copies = 600;
// From a kernel's fault until calls return it. Not measured: what follows a launch at once is not to see it,
// as programs that record an event behind a launch take for granted.
inline constexpr Nanoseconds fault_notice = 1'000'000;
// A stream write is seen by a host that polls: launch + write + poll takes 6.97 us.
inline constexpr Nanoseconds write_landing = 1270;
// A timing event waits until what is before it has left the caches: 5.7 us between two around an empty
// kernel.
inline constexpr Nanoseconds event_flush = 1960;
// A dependency on another stream: a chain that hops between streams by events costs 3.0 us per
// kernel.
inline constexpr Nanoseconds cross_stream = 1700;
// How often a pending stream wait looks at its memory.
inline constexpr Nanoseconds wait_poll = 1000;

// Contexts of one device without MPS: two that launch and synchronise in turn take 286 us for a pair; beside
// a context that is always busy a launch waits 1846 us.
inline constexpr Nanoseconds context_switch = 135000;
inline constexpr Nanoseconds time_slice = 2134000;

// Link and memory. 1 GB/s = 1 byte per nanosecond. 1.8 us + bytes/55.4 gives the
// measured 2.2, 22.3, 50.6 and 55.1 GB/s of 4 KiB, 64 KiB, 1 MiB and 16 MiB pieces.
inline constexpr Nanoseconds copy_latency = 1800;
inline constexpr double host_to_device = 55.6;
inline constexpr double device_to_host = 55.4;
inline constexpr double both_directions = 101.7 / 2;  // each, while the other runs
inline constexpr double pageable_to_device = 10.3;
inline constexpr double device_to_pageable = 19.1;
inline constexpr double device_memory = 4196;  // read + write
// So many threads with requests in flight draw all of the memory's bandwidth: half of what the SMs hold.
// Assumed.
inline constexpr double saturating_threads = sm_count * 1024.0;
inline constexpr std::size_t pageable_staged =
    65536;  // up to here a pageable upload returns once it is staged

inline constexpr std::size_t page = std::size_t{2} << 20;            // granularity of physical memory
inline constexpr std::size_t default_memory = std::size_t{4} << 30;  // so that small machines can hold it

// Launches that a hardware queue holds; cuLaunchKernel blocks beyond.
inline constexpr std::size_t queue_depth = 1021;

// What a call keeps its caller, on top of what it waits for.
namespace call {
inline constexpr Nanoseconds launch = 2500;
inline constexpr Nanoseconds launch_partition = 470;  // more, on a stream of a green context
inline constexpr Nanoseconds graph_launch = 1050;
// A thread's first call after a while finds cold caches: launch + synchronise after a sleep takes 8.5 us.
inline constexpr Nanoseconds cold = 1300;
inline constexpr Nanoseconds cold_after = 50'000;
inline constexpr Nanoseconds record = 100;  // and a wait for an event
inline constexpr Nanoseconds timed_record = 1240;
inline constexpr Nanoseconds query = 1200;
inline constexpr Nanoseconds stream_memory = 1700;  // stream writes and waits, host functions
inline constexpr Nanoseconds copy = 1500;           // assumed: less than the 1.86 us that a small copy takes
inline constexpr Nanoseconds context = 106'000'000;
inline constexpr Nanoseconds green_context = 1'700'000;
inline constexpr Nanoseconds allocate = 31'000;  // and free: 2 MiB
inline constexpr Nanoseconds free = 27'000;
inline constexpr Nanoseconds allocate_shared = 1'000;  // and free: what shares a page with others; assumed
inline constexpr std::size_t shared_page_limit = std::size_t{1} << 20;

// By size: measured points, and straight lines between them.
struct SizedCost {
    double mebibytes;
    double microseconds;
};
using SizedCosts = std::array<SizedCost, 4>;
inline constexpr SizedCosts physical_create{{{2, 5.9}, {64, 6.1}, {1024, 27}, {8192, 117}}};
inline constexpr SizedCosts map{{{2, 0.5}, {64, 0.4}, {1024, 0.5}, {8192, 0.6}}};
inline constexpr SizedCosts set_access{{{2, 16.3}, {64, 28.8}, {1024, 51.6}, {8192, 210}}};
inline constexpr SizedCosts unmap{{{2, 11.3}, {64, 18.6}, {1024, 26.4}, {8192, 83}}};
inline constexpr SizedCosts physical_release{{{2, 7.1}, {64, 22.7}, {1024, 195}, {8192, 1722}}};
inline constexpr SizedCosts physical_create_host{{{0, 0}, {256, 40000}, {1024, 160000}, {8192, 1280000}}};
inline constexpr SizedCosts host_allocate{{{0, 0}, {256, 81000}, {1024, 324000}, {8192, 2592000}}};
inline constexpr SizedCosts host_register{{{0, 0}, {256, 8000}, {1024, 32000}, {8192, 256000}}};
inline constexpr SizedCosts host_unregister{{{0, 0}, {256, 3250}, {1024, 13000}, {8192, 104000}}};

constexpr Nanoseconds by_size(const SizedCosts& costs, std::size_t bytes) {
    const double size = static_cast<double>(bytes) / (1 << 20);
    std::size_t above = 1;
    while (above + 1 < costs.size() && costs[above].mebibytes < size) ++above;
    const SizedCost& low = costs[above - 1];
    const SizedCost& high = costs[above];
    const double slope = (high.microseconds - low.microseconds) / (high.mebibytes - low.mebibytes);
    const double found = low.microseconds + slope * (size > low.mebibytes ? size - low.mebibytes : 0);
    return static_cast<Nanoseconds>(found * 1000);
}
}  // namespace call

// What a kernel takes whose code cannot be run, unless FIKIT_SIM_KERNEL_TIMES says otherwise.
inline constexpr Nanoseconds opaque_kernel = 5000;

}  // namespace model
}  // namespace fikit::sim
