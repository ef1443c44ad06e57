// From what a block does to how long it takes: the one place where instructions and bytes become time.
//
// A block is bound by one of three things. Its threads run one instruction after the other, each with a
// latency
// (`latency`). The SM issues only so many thread instructions of a class in a cycle, for all its blocks
// together
// (`issue`, so it is multiplied by the blocks that share the SM). Its bytes come from device memory, whose
// bandwidth all kernels share (`bytes`; compute.cpp divides it). Throughput per cycle: CUDA C++ Programming
// Guide, "Arithmetic Instructions", compute capability 9.0.
#pragma once

#include <array>
#include <cstdint>

#include "model.hpp"

namespace fikit::sim {

// Classes of instructions that differ in throughput.
enum class Work : std::uint8_t {
    simple,
    integer,
    convert,
    special,
    wide,
    memory,
    atomic,
    matrix,
    barrier,
    count
};

// What one block did, summed over its threads.
struct BlockWork {
    std::array<std::uint64_t, static_cast<std::size_t>(Work::count)> instructions{};  // of single threads
    std::uint64_t loaded = 0, stored = 0;  // bytes of global memory
    Nanoseconds waited = 0;                // on a clock or asleep
    unsigned threads = 1;
};

struct BlockCost {
    Nanoseconds latency = 0;  // alone on its SM, without its bytes
    double issue = 0;         // nanoseconds of the SM's issue slots
    double bytes = 0;         // to and from device memory
    // How long a block computes while `resident` such blocks share its SM.
    Nanoseconds compute(unsigned resident) const {
        const auto issued = static_cast<Nanoseconds>(issue * resident);
        return issued > latency ? issued : latency;
    }
};

inline BlockCost block_cost(const BlockWork& work) {
    struct Rate {
        double per_cycle;  // thread instructions that an SM issues
        double latency;    // cycles until the next instruction of the thread
    };
    // simple: f16, bf16, f32, moves, predicates, branches; matrix: one mma, counted for each of its 32
    // threads.
    constexpr std::array<Rate, static_cast<std::size_t>(Work::count)> rates{
        {{128, 4}, {64, 4}, {64, 6}, {16, 18}, {64, 8}, {32, 30}, {16, 60}, {16, 33}, {128, 20}}};
    double issue = 0;
    double latency = 0;
    for (std::size_t index = 0; index < rates.size(); ++index) {
        const auto count = static_cast<double>(work.instructions[index]);
        issue += count / rates[index].per_cycle;
        latency += count / work.threads * rates[index].latency;
    }
    return {work.waited + static_cast<Nanoseconds>(latency / model::sm_clock_ghz),
            issue / model::sm_clock_ghz, static_cast<double>(work.loaded + work.stored)};
}

}  // namespace fikit::sim
