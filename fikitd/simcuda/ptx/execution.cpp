// See execution.hpp.
#include "ptx/execution.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include "ptx/engine.hpp"
#include "ptx/limits.hpp"

namespace fikit::sim {

namespace {

// So many warp instructions of a block (limits::fair_access) before the next has its turn: going from block
// to block costs as much as thousands. And so many turns of each before the device looks at its other work.
constexpr std::uint64_t block_turn = std::uint64_t{1} << 18;
// But so many while one sleeps: it may have slept enough long before, and hold what the others look for.
constexpr std::uint64_t beside_sleeper = 8192;
constexpr unsigned launch_turns = 64;
// How long a launch whose blocks all wait for others' writes pauses.
constexpr Nanoseconds spin_pause = 1000;
// At most so many bytes of state, of blocks that have begun and not ended.
constexpr std::size_t live_bytes = std::size_t{512} << 20;
constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();

std::uint64_t next_grid_id() {
    static std::uint64_t id = 0;
    return ++id;
}

}  // namespace

KernelRun::KernelRun(const ptx::Kernel& what, std::vector<std::byte> given, const LaunchShape& how,
                     const std::vector<std::uint64_t>& variables, Nanoseconds base)
    : kernel(what),
      shape(how),
      timer_base(base),
      parameters(std::move(given)),
      accesses(AccessLog::instance().begin(what.name)),
      grid_id(next_grid_id()),
      stack(static_cast<std::uint32_t>(
          std::clamp<std::size_t>(how.stack, what.program->local_bytes, ptx::limits::local_bytes))),
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
std::uint64_t BlockExecution::retired() const { return run_->retired(); }
Nanoseconds BlockExecution::clock() const { return run_->clock(); }
const BlockWork& BlockExecution::work() const { return run_->work; }

Execution::Execution(const ptx::Kernel& kernel, std::vector<std::byte> parameters, const LaunchShape& shape,
                     const std::vector<std::uint64_t>& variables, Nanoseconds timer_base)
    : run_(kernel, std::move(parameters), shape, variables, timer_base) {}
Execution::~Execution() { run_.flush(); }

// Runs one of the live blocks for its turn; false: it only waits.
bool Execution::run_block(std::size_t index, GlobalMemory& memory, Nanoseconds now,
                          std::uint64_t instructions, Progress& progress) {
    Live& live = live_[index];
    const std::uint64_t before = live.block.retired();
    const Nanoseconds began = std::max(now, live.block.clock());
    const std::uint64_t turn = sleeps_ ? beside_sleeper : block_turn;
    progress = live.block.resume(memory, now, std::min(instructions, turn));
    retired_ += live.block.retired() - before;
    const bool ran = live.block.retired() != before;
    live.for_peers = progress.state == State::for_peers;
    live.until = now;
    if (live.for_peers || progress.state == State::waiting) {
        live.until = progress.until;
        live.due = progress.until == never ? never : progress.until - live.block.clock() + passed_;
    } else {
        lasted_ = std::max(lasted_, live.block.clock() - began);
    }
    if (progress.state != State::finished) return ran;
    const BlockWork& work = live.block.work();
    for (std::size_t kind = 0; kind < work.instructions.size(); ++kind) {
        sum_.instructions[kind] += work.instructions[kind];
    }
    sum_.loaded += work.loaded;
    sum_.stored += work.stored;
    sum_.waited += work.waited;
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
    return true;
}

// All blocks begin with the first, as far as there is memory for them: each writes what it writes, and what
// one costs is what the machine goes by.
Progress Execution::resume(GlobalMemory& memory, Nanoseconds now, std::uint64_t instructions) {
    const std::uint64_t blocks = run_.kernel.uniform ? 1 : run_.shape.blocks();
    const std::size_t warps = (run_.shape.threads() + ptx::lanes - 1) / ptx::lanes;
    const std::size_t state = warps * (run_.kernel.body->frame_bytes + std::size_t{4096});
    const std::size_t most = std::max<std::size_t>(live_bytes / state, model::sm_count);
    const std::uint64_t end = instructions == unbounded ? unbounded : retired_ + instructions;
    for (unsigned turn = 0; turn < launch_turns; ++turn) {
        const auto may_begin = [&] {
            return next_block_ < blocks && (live_.size() < most || next_block_ % run_.cluster_blocks() != 0);
        };
        while (at_ < live_.size() || may_begin()) {
            if (retired_ >= end) return {State::running, now};
            if (at_ == live_.size()) {
                const auto sm = static_cast<unsigned>(next_block_ % model::sm_count);
                live_.push_back({BlockExecution(run_, run_.in_order(next_block_++), sm), now});
            }
            const std::size_t before = live_.size();
            if (live_[at_].until <= now || live_[at_].for_peers) {
                Progress progress{};
                ran_ = run_block(at_, memory, now, end - retired_, progress) || ran_;
                if (progress.state == State::faulted) {
                    run_.flush();
                    return progress;
                }
            }
            if (live_.size() == before) ++at_;
        }
        at_ = 0;
        if (live_.empty() && next_block_ == blocks) {
            run_.flush();
            return {State::finished, now};
        }
        // Who sleeps wakes when others have run for as long: they may wait for it.
        passed_ += std::exchange(lasted_, 0);
        const bool ran = std::exchange(ran_, false);
        Nanoseconds soonest = never;
        sleeps_ = false;
        for (const Live& live : live_) {
            sleeps_ = sleeps_ || live.until > now;
            if (!ran || (live.until > now && live.due <= passed_)) soonest = std::min(soonest, live.until);
        }
        if (soonest != never) return {State::waiting, soonest};
        if (!ran) {
            // Blocks of a cluster that wait for each other for ever; see BlockRun::resume().
            run_.flush();
            return {State::faulted, now, CUDA_ERROR_LAUNCH_TIMEOUT};
        }
    }
    return {State::waiting, now + spin_pause};
}

BlockWork Execution::work() const {
    const std::uint64_t blocks = run_.kernel.uniform ? 1 : run_.shape.blocks();
    // One thread of a uniform kernel stands for all of its block; their accesses to one place are one.
    const std::uint64_t times = run_.kernel.uniform ? run_.shape.threads() : 1;
    BlockWork mean = sum_;
    for (std::uint64_t& count : mean.instructions) count = count * times / blocks;
    mean.loaded /= blocks;
    mean.stored /= blocks;
    mean.waited /= static_cast<Nanoseconds>(blocks);
    mean.threads = run_.shape.threads();
    return mean;
}

}  // namespace fikit::sim
