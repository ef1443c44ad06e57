// A thread block: its warps' turns, its clock, its barriers; see engine.hpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ptx/engine.hpp"

namespace fikit::sim::ptx {

std::uint64_t shared_end(const Context& context, std::uint32_t alignment) {
    const std::uint64_t fixed = shared_start + context.block->launch.kernel.static_shared;
    return (fixed + alignment - 1) / alignment * alignment;
}

BlockRun::BlockRun(KernelRun& run, std::uint64_t block, unsigned on)
    : launch(run),
      number(block),
      sm(on),
      multiplicity(run.kernel.uniform ? run.shape.blocks() * run.shape.threads() : 1) {
    const auto& grid = launch.shape.grid;
    position = {static_cast<u32>(block % grid[0]), static_cast<u32>(block / grid[0] % grid[1]),
                static_cast<u32>(block / grid[0] / grid[1])};
    if (!launch.kernel.uniform) {
        const std::size_t fixed = (std::size_t{launch.kernel.static_shared} + 127) / 128 * 128;
        shared_.resize(shared_start + fixed + launch.shape.dynamic_shared);
    }
    start_warps();
    if (launch.cluster_blocks() > 1) {
        cluster_ = launch.cluster_of(position);
        cluster_->blocks[cluster_rank()] = this;
    }
}

BlockRun::~BlockRun() {
    if (cluster_) cluster_->blocks[cluster_rank()] = nullptr;
}

void BlockRun::start_warps() {
    const std::uint32_t threads = launch.kernel.uniform ? 1 : launch.shape.threads();
    live_threads_ = threads;
    work.threads = threads;
    warps_.resize((threads + lanes - 1) / lanes);
    const Function& entry = *launch.kernel.body;
    const auto& shape = launch.shape.block;
    for (std::uint32_t which = 0; which < warps_.size(); ++which) {
        Warp& warp = warps_[which];
        warp.index = which;
        const std::uint32_t left = threads - which * lanes;
        warp.exists = left >= lanes ? all_lanes : (Mask{1} << left) - 1;
        Frame* frame = make_frame(warp, entry);
        if (frame == nullptr) {
            fault_ = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
            return;
        }
        frame->live = warp.exists;
        for (std::uint32_t lane = 0; lane < lanes; ++lane) {
            const std::uint32_t thread = which * lanes + lane;
            const std::uint32_t at[3] = {thread % shape[0], thread / shape[0] % shape[1],
                                         thread / shape[0] / shape[1]};
            for (unsigned axis = 0; axis < 3; ++axis) {
                reinterpret_cast<u32*>(frame->registers + entry.thread_index[axis])[lane] = at[axis];
            }
        }
        Group group;
        group.mask = warp.exists;
        group.frame = frame;
        warp.groups.push_back(group);
    }
}

Nanoseconds BlockRun::clock() const {
    if (supposed >= 0) return supposed;
    if (launch.kernel.uniform) return now_;
    return now_ + block_cost(work).latency - work.waited - computed_before_;
}

std::uint64_t BlockRun::clock_cycles() const {
    return static_cast<std::uint64_t>(static_cast<double>(clock()) * model::sm_clock_ghz);
}

Progress BlockRun::resume(GlobalMemory& memory, Nanoseconds now, std::uint64_t instructions) {
    memory_ = &memory;
    // A block's clock never goes back, so it may be ahead of the launch's.
    const Nanoseconds before = clock();
    now_ = std::max(now, before);
    if (std::exchange(resting_, false)) work.waited += now_ - before;
    computed_before_ = block_cost(work).latency - work.waited;
    stretches_.fill({});
    const std::uint64_t end = spent_ + instructions;
    while (fault_ == CUDA_SUCCESS) {
        for (; next_warp_ < warps_.size() && fault_ == CUDA_SUCCESS; ++next_warp_) {
            if (spent_ >= end) return {Progress::State::running, clock()};
            run_warp(warps_[next_warp_]);
            if (memory.give_way()) stretches_.fill({});
        }
        if (fault_ != CUDA_SUCCESS) break;
        if (live_threads_ == 0) return {Progress::State::finished, clock()};
        next_warp_ = 0;
        if (std::exchange(round_began_, retired_) != retired_) continue;
        // Nobody could run: who sleeps shortest is next.
        Nanoseconds soonest = std::numeric_limits<Nanoseconds>::max();
        bool for_peers = false;
        for (const Warp& warp : warps_) {
            for (const Group& group : warp.groups) {
                if (group.state == Group::State::sleeping) soonest = std::min(soonest, group.wake);
                for_peers = for_peers || group.state == Group::State::cluster;
            }
        }
        resting_ = for_peers || soonest != std::numeric_limits<Nanoseconds>::max();
        if (for_peers) return {Progress::State::for_peers, soonest};
        if (resting_) return {Progress::State::waiting, soonest};
        // Threads that wait for each other for ever would hang the hardware until somebody ends them.
        fault_ = CUDA_ERROR_LAUNCH_TIMEOUT;
    }
    return {Progress::State::faulted, clock(), fault_};
}

// op.a: which barrier, or none for the warpgroup's own; op.b: how many threads take part, or none; op.extra:
// see lower_barrier.cpp.
void BlockRun::arrive(Warp& warp, std::size_t index, const Op& op, Context& context) {
    Group& group = warp.groups[index];
    const auto first = static_cast<unsigned>(std::countr_zero(group.mask));
    const bool named = op.a != no_place;
    const u32 which = named ? context.at<u32>(op.a)[first] : named_barriers + warp.index / 4;
    if (named && which >= named_barriers) {
        fault_ = CUDA_ERROR_ILLEGAL_INSTRUCTION;
        return;
    }
    Barrier& barrier = barriers_[which];
    const Mask present = warp.exists & ~warp.exited;
    if (op.b != no_place) {
        barrier.expected = context.at<u32>(op.b)[first];
        // Counted by whole warps: those who have left count with those who are here.
        barrier.arrived += group.mask == present ? lanes : static_cast<u32>(std::popcount(group.mask));
    } else {
        barrier.arrived += static_cast<u32>(std::popcount(group.mask));
    }
    if (op.c != no_place) {
        const Mask holds = context.predicate(op.c) & group.mask;
        barrier.counted += static_cast<u32>(std::popcount(holds));
        barrier.all = barrier.all && holds == group.mask;
        barrier.any = barrier.any || holds != 0;
    }
    if ((op.flags & flag::negate) != 0) {  // bar.arrive does not wait
        ++group.pc;
    } else {
        group.state = Group::State::barrier;
        group.barrier = which;
    }
    recheck_barriers();
}

void BlockRun::recheck_barriers() {
    for (std::uint32_t which = 0; which < barriers_.size(); ++which) {
        const Barrier& barrier = barriers_[which];
        if (barrier.arrived == 0) continue;
        const std::uint32_t expected = barrier.expected != 0    ? barrier.expected
                                       : which < named_barriers ? live_threads_
                                                                : live_in_warpgroup(which - named_barriers);
        if (barrier.arrived >= expected) complete(which);
    }
}

std::uint32_t BlockRun::live_in_warpgroup(std::uint32_t which) const {
    std::uint32_t threads = 0;
    for (std::size_t index = 4 * std::size_t{which};
         index < std::min<std::size_t>(warps_.size(), 4 * which + 4); ++index)
        threads += static_cast<std::uint32_t>(std::popcount(warps_[index].exists & ~warps_[index].exited));
    return threads;
}

void BlockRun::complete(std::uint32_t which) {
    const Barrier barrier = barriers_[which];
    barriers_[which] = {};
    for (Warp& warp : warps_) {
        for (Group& group : warp.groups) {
            if (group.state != Group::State::barrier || group.barrier != which) continue;
            const Op& op = group.frame->function->code[group.pc];
            if (op.run != nullptr) {  // bar.red: the result goes to op.d
                Context context;
                bind(context, group);
                context.block = this;
                context.warp = &warp;
                Op result = op;
                result.offset = barrier.counted;
                result.width = static_cast<std::uint8_t>((barrier.all ? 1 : 0) | (barrier.any ? 2 : 0));
                op.run(context, result, group.mask);
            }
            group.state = Group::State::ready;
            ++group.pc;
        }
    }
}

}  // namespace fikit::sim::ptx
