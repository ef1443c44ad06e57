// Runs a uniform kernel: one execution stands for every thread of every block.
//
// An execution is resumable. It runs until it has to wait for a clock (a timed loop, nanosleep) and
// says until when; the device resumes it at that simulated time, so that its stores land then.
// Loops that only wait for a clock are solved for their end, not iterated: their predicate is a
// function of time, found by bisection.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "cost.hpp"
#include "ptx_module.hpp"

namespace fikit::sim {

// What a kernel sees of memory.
class GlobalMemory {
  public:
    virtual ~GlobalMemory() = default;
    // The host's view of [address, address + bytes), or null where that is not all mapped for this
    // access.
    virtual std::byte* at(std::uint64_t address, std::size_t bytes, bool write) = 0;
};

struct LaunchShape {
    std::array<std::uint32_t, 3> grid{1, 1, 1};
    std::array<std::uint32_t, 3> block{1, 1, 1};
    std::uint64_t blocks() const { return std::uint64_t{grid[0]} * grid[1] * grid[2]; }
    std::uint32_t threads() const { return block[0] * block[1] * block[2]; }
};

class Execution {
  public:
    enum class State { waiting, finished, faulted };
    struct Progress {
        State state;
        Nanoseconds until = 0;          // waiting: when to resume
        CUresult fault = CUDA_SUCCESS;  // faulted
    };

    // `variables` are the device addresses of the module's variables; `timer_base` is what
    // %globaltimer reads at simulated time 0.
    Execution(const ptx::Kernel& kernel, std::vector<std::byte> parameters, const LaunchShape& shape,
              const std::vector<std::uint64_t>& variables, Nanoseconds timer_base);

    Progress resume(GlobalMemory& memory, Nanoseconds now);
    // What one block did; what it waited is the caller's to measure.
    BlockWork work() const;

  private:
    std::uint64_t read(const ptx::Operand& operand) const;
    std::uint64_t compute(const ptx::Instruction& instruction) const;
    bool guard_holds(const ptx::Instruction& instruction) const;
    CUresult access(const ptx::Instruction& instruction, GlobalMemory& memory);
    std::uint64_t combine(const ptx::Instruction& instruction, std::uint64_t old) const;
    bool loop_ends_at(std::size_t first, std::size_t last, Nanoseconds time);
    Nanoseconds loop_end(std::size_t first, std::size_t last);

    const ptx::Kernel& kernel_;
    const std::vector<std::uint64_t>& variables_;
    std::vector<std::byte> parameters_;
    LaunchShape shape_;
    std::uint64_t threads_total_;
    Nanoseconds timer_base_;
    Nanoseconds now_ = 0;
    std::vector<std::uint64_t> registers_;
    std::size_t next_ = 0;
    std::uint64_t retired_ = 0;
};

}  // namespace fikit::sim
