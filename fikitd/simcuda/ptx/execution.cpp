// See execution.hpp.
#include "ptx/execution.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "ptx/engine.hpp"
#include "ptx/limits.hpp"

namespace fikit::sim {

namespace {

// So many warp instructions of a block before the next has its turn, and of a launch before the device
// looks at its other work.
constexpr std::uint64_t block_turn = std::uint64_t{1} << 16;
constexpr std::uint64_t launch_turn = std::uint64_t{1} << 22;
// How long a launch whose blocks all wait for others' writes pauses.
constexpr Nanoseconds spin_pause = 1000;
// At most so many bytes of state, of blocks that have begun and not ended.
constexpr std::size_t live_bytes = std::size_t{512} << 20;

std::uint64_t next_grid_id() {
    static std::uint64_t id = 0;
    return ++id;
}

}  // namespace

// A warp instruction keeps one of four schedulers busy for a cycle; the rarer units take longer.
Nanoseconds compute_time(const Cost& cost) {
    constexpr std::array<std::uint64_t, ptx::cost_classes> cycles = {1, 1, 2, 8, 4, 2, 8, 8, 1, 8};
    std::uint64_t sum = 0;
    for (std::size_t kind = 0; kind < cycles.size(); ++kind) sum += cost.instructions[kind] * cycles[kind];
    const double bytes = static_cast<double>(cost.loaded + cost.stored);
    return static_cast<Nanoseconds>(static_cast<double>(sum) / (4 * model::sm_clock_ghz) +
                                    bytes * model::sm_count / model::device_memory);
}

KernelRun::KernelRun(const ptx::Kernel& what, std::vector<std::byte> given, const LaunchShape& how,
                     const std::vector<std::uint64_t>& variables, Nanoseconds base)
    : kernel(what),
      shape(how),
      timer_base(base),
      parameters(std::move(given)),
      accesses(AccessLog::instance().begin(what.name)),
      grid_id(next_grid_id()),
      variables_(variables) {
    if (shape.cooperative) workspace.resize(64);
}

const std::byte* KernelRun::constants(const ptx::Function& function) {
    if (function.patches.empty()) return function.constants.data();
    for (const auto& [known, constants] : bound_) {
        if (known == &function) return constants.data();
    }
    std::vector<std::byte> constants = function.constants;
    for (const ptx::Function::Patch& patch : function.patches) {
        const std::uint64_t address = variables_[patch.variable] + patch.addend;
        for (unsigned lane = 0; lane < ptx::lanes; ++lane) {
            std::memcpy(constants.data() + patch.offset + lane * sizeof address, &address, sizeof address);
        }
    }
    return bound_.emplace_back(&function, std::move(constants)).second.data();
}

void KernelRun::flush() {
    if (output.empty()) return;
    std::fwrite(output.data(), 1, output.size(), stdout);
    std::fflush(stdout);
    output.clear();
}

BlockExecution::BlockExecution(KernelRun& run, std::uint64_t block, unsigned sm)
    : run_(std::make_unique<ptx::BlockRun>(run, block, sm)) {}
BlockExecution::~BlockExecution() = default;
BlockExecution::BlockExecution(BlockExecution&&) noexcept = default;
BlockExecution& BlockExecution::operator=(BlockExecution&&) noexcept = default;

Progress BlockExecution::resume(GlobalMemory& memory, Nanoseconds now, std::uint64_t instructions) {
    return run_->resume(memory, now, instructions);
}
const Cost& BlockExecution::cost() const { return run_->cost; }

Execution::Execution(const ptx::Kernel& kernel, std::vector<std::byte> parameters, const LaunchShape& shape,
                     const std::vector<std::uint64_t>& variables, Nanoseconds timer_base)
    : run_(kernel, std::move(parameters), shape, variables, timer_base) {}
Execution::~Execution() { run_.flush(); }

Progress Execution::resume(GlobalMemory& memory, Nanoseconds now) {
    if (ends_at_ < 0) {
        const Progress progress = resume_blocks(memory, now);
        if (progress.state != State::finished) return progress;
        run_.flush();
        if (run_.kernel.uniform) return progress;
        ends_at_ = now + busy_ / static_cast<Nanoseconds>(run_.shape.blocks());
    }
    if (now < ends_at_) return {State::waiting, ends_at_};
    return {State::finished, now};
}

Progress Execution::resume_blocks(GlobalMemory& memory, Nanoseconds now) {
    const std::uint64_t blocks = run_.kernel.uniform ? 1 : run_.shape.blocks();
    const std::size_t warps = (run_.shape.threads() + ptx::lanes - 1) / ptx::lanes;
    const std::size_t state = warps * (run_.kernel.body->frame_bytes + std::size_t{4096});
    const std::size_t most =
        std::clamp<std::size_t>(live_bytes / state, 1, std::size_t{model::sm_count} * model::blocks_per_sm);
    std::uint64_t left = launch_turn;
    for (;;) {
        bool ran = false;
        Nanoseconds soonest = std::numeric_limits<Nanoseconds>::max();
        for (std::size_t index = 0; index < live_.size() || (next_block_ < blocks && live_.size() < most);
             ++index) {
            if (index == live_.size()) {
                const auto sm = static_cast<unsigned>(next_block_ % model::sm_count);
                live_.push_back({BlockExecution(run_, next_block_++, sm), now});
            }
            Live& live = live_[index];
            if (live.until > now) {
                soonest = std::min(soonest, live.until);
                continue;
            }
            const std::uint64_t before = live.block.cost().total();
            const Progress progress = live.block.resume(memory, now, block_turn);
            const std::uint64_t used = live.block.cost().total() - before;
            left -= std::min(left, used);
            switch (progress.state) {
                case State::faulted:
                    run_.flush();
                    return progress;
                case State::finished:
                    for (std::size_t kind = 0; kind < cost_.instructions.size(); ++kind) {
                        cost_.instructions[kind] += live.block.cost().instructions[kind];
                    }
                    cost_.loaded += live.block.cost().loaded;
                    cost_.stored += live.block.cost().stored;
                    busy_ += compute_time(live.block.cost());
                    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index--));
                    ran = true;
                    break;
                case State::waiting:
                    live.until = progress.until;
                    soonest = std::min(soonest, live.until);
                    break;
                case State::running:
                    ran = true;
                    break;
            }
        }
        if (live_.empty() && next_block_ == blocks) return {State::finished, now};
        if (left == 0) return {State::waiting, now + spin_pause};
        if (!ran && soonest != std::numeric_limits<Nanoseconds>::max()) return {State::waiting, soonest};
    }
}

}  // namespace fikit::sim
