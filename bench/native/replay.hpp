// Replays recorded programs on the simulated GPU (replay_gpu.hpp) in virtual time.
//
// A program is one iteration of a recorded workload, or several different ones in turn: their operations with
// the host time of each launch. A tenant repeats it: it launches each operation of an iteration at its time,
// or as soon as it can, waits for all of them, pauses as the recorded program did, and goes on with the next.
// A step lasts to the end of that wait (native/play.cpp does the same on a device). Operations that are
// joined are one graph, and one launch.
#pragma once

#include <string>
#include <vector>

#include "replay_gpu.hpp"
#include "scheduling/policy.hpp"

namespace fikit::replay {

struct Operation {
    uint64_t key = 0;
    Shape shape;
    uint32_t stream = 0;
    Nanoseconds at = 0;        // host time of the launch, from the iteration's start
    Nanoseconds duration = 0;  // recorded
    bool whole = false;
    bool joined = false;  // one graph with the next
};

struct Iteration {
    size_t end = 0;         // its operations reach up to here in the program's
    Nanoseconds pause = 0;  // to the beginning of the next
};

struct Program {
    std::string name;
    std::vector<Operation> operations;
    std::vector<Iteration> iterations;
    uint32_t streams = 1;
};

struct Settings {
    std::string policy = "fikit";
    scheduling::Bounds bounds;
    Nanoseconds seconds = 10'000'000'000, warmup = 500'000'000;
    uint64_t seed = 1;
    // Without a gate: what a fixed rule achieves.
    Nanoseconds in_flight = 0;   // of a low tenant, by recorded durations; 0: no bound
    Nanoseconds long_block = 0;  // kernels with longer blocks go to `long_partition`
    Nanoseconds spared = 0;      // of a high program, by each launch (policy.hpp)
    uint64_t told_every = 1;     // of a high program's waits the policy is told of one in so many; 0: of none
    bool polled = false;         // high programs look at memory that their last kernels write
    uint16_t all_partition = 0, long_partition = 0;
};

// Of a low-priority tenant's operations, over the whole run.
struct Decisions {
    uint64_t whole = 0, confined = 0;  // where they were launched
    uint64_t waited = 0;               // the gate said no to them at first
};

struct TenantResult {
    std::vector<Nanoseconds> iterations;  // lengths of those that ended within the time
    std::vector<size_t> kinds;            // which of the program's each was
    double work = 0;                      // recorded durations of what was done, per nanosecond
    Decisions decisions;
    scheduling::SessionStatistics statistics;
};

struct Result {
    std::vector<TenantResult> high, low;
    Nanoseconds idle = 0;    // no high-priority operation was on the GPU
    Nanoseconds filled = 0;  // of that: a low-priority one was
    uint64_t events = 0;
};

}  // namespace fikit::replay
