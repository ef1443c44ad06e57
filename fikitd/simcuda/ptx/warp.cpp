// The loop that runs warps; see engine.hpp.
#include <algorithm>
#include <limits>

#include "ptx/engine.hpp"
#include "ptx/limits.hpp"

namespace fikit::sim::ptx {

namespace {

// An end of a loop later than this is no end.
constexpr Nanoseconds far_future = std::int64_t{1} << 60;
constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();

inline Mask guarded(const Context& context, const Op& op, Mask mask) {
    if (op.guard == no_place) return mask;
    const Mask value = context.predicate(op.guard);
    return mask & (op.guard_negated ? ~value : value);
}

}  // namespace

Frame* BlockRun::make_frame(Warp& warp, const Function& function) {
    const std::size_t registers = (std::size_t{function.frame_bytes} + 63) / 64 * 64;
    const std::size_t bytes = registers + std::size_t{function.parameter_bytes} * lanes;
    Frame* frame = nullptr;
    // A frame that is free (of nobody) and of this function is used again.
    for (auto& candidate : warp.frames) {
        if (candidate->live == 0 && candidate->function == &function) {
            frame = candidate.get();
            break;
        }
    }
    if (frame == nullptr) {
        warp.frame_bytes += bytes + sizeof(Frame);
        if (warp.frame_bytes > limits::frame_bytes_per_warp) return nullptr;
        warp.frames.push_back(std::make_unique<Frame>());
        frame = warp.frames.back().get();
        frame->storage = std::make_unique_for_overwrite<std::byte[]>(bytes + 64);
        auto start = reinterpret_cast<std::uintptr_t>(frame->storage.get());
        start = (start + 63) / 64 * 64;
        frame->registers = reinterpret_cast<std::byte*>(start);
        frame->parameters = frame->registers + registers;
        frame->function = &function;
        frame->constants = launch.constants(function);
        // What a program reads without having written it is the same in every run.
        std::fill_n(frame->registers, bytes, std::byte{0});
    }
    return frame;
}

void BlockRun::bind(Context& context, const Group& group) const {
    context.bases[0] = group.frame->registers;
    context.bases[1] = const_cast<std::byte*>(group.frame->constants);
    context.frame = group.frame;
    context.active = group.mask;
}

// Lanes of `taken` stay in the group; the others become one of their own, at the next instruction.
void BlockRun::split(Warp& warp, std::size_t group, Mask taken) {
    Group rest = warp.groups[group];
    rest.mask &= ~taken;
    ++rest.pc;
    warp.groups[group].mask &= taken;
    warp.groups.push_back(rest);
}

// Groups at one instruction of one frame become one again.
void BlockRun::settle(Warp& warp) {
    auto& groups = warp.groups;
    for (std::size_t left = 0; left < groups.size(); ++left) {
        for (std::size_t right = groups.size(); right-- > left + 1;) {
            Group& into = groups[left];
            const Group& from = groups[right];
            const auto joins = [](const Group& group) {
                return group.state == Group::State::ready || group.state == Group::State::gathering;
            };
            if (into.frame != from.frame || into.pc != from.pc || !joins(into) || !joins(from)) continue;
            into.mask |= from.mask;
            into.state = Group::State::ready;
            into.turns = std::min(into.turns, from.turns);
            groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(right));
        }
    }
}

Group* BlockRun::pick(Warp& warp) {
    auto& groups = warp.groups;
    if (groups.size() > 1) settle(warp);
    Group* best = nullptr;
    for (Group& group : groups) {
        if (group.state == Group::State::sleeping && group.wake <= clock()) group.state = Group::State::ready;
        if (group.state == Group::State::cluster && !waits_for_cluster(warp, group.mask)) {
            group.state = Group::State::ready;
            ++group.pc;
        }
        if (group.state != Group::State::ready) continue;
        const bool better = best == nullptr || group.turns < best->turns ||
                            (group.turns == best->turns &&
                             (group.frame->depth > best->frame->depth ||
                              (group.frame->depth == best->frame->depth && group.pc < best->pc)));
        if (better) best = &group;
    }
    return best == nullptr && (release_warp_barrier(warp) || meet_apart(warp)) ? pick(warp) : best;
}

// Whether anything but a loop is ahead: an end, a call, a barrier, or an access to memory, which may fault or
// find what others wrote.
static bool may_end(const Function& function, std::uint32_t pc) {
    std::vector<bool> seen(function.code.size());
    std::vector<std::uint32_t> ahead{pc};
    while (!ahead.empty()) {
        const std::uint32_t at = ahead.back();
        ahead.pop_back();
        if (at >= seen.size()) return true;
        if (seen[at]) continue;
        seen[at] = true;
        const Op& op = function.code[at];
        const bool branch = op.kind == Kind::branch;
        if (!branch && op.kind != Kind::compute) return true;
        if (branch) ahead.push_back(op.extra);
        if (!branch || op.guard != no_place) ahead.push_back(at + 1);
    }
    return false;
}

void BlockRun::run_warp(Warp& warp) {
    std::uint32_t turn = limits::warp_turn;
    while (turn > 0 && fault_ == CUDA_SUCCESS) {
        const std::uint64_t before = spent_;
        Group* group = pick(warp);
        if (group == nullptr) return;
        run_group(warp, static_cast<std::size_t>(group - warp.groups.data()));
        const std::uint64_t used = spent_ - before + 1;
        turn -= static_cast<std::uint32_t>(std::min<std::uint64_t>(used, turn));
        if (retired_ < looks_at_) continue;
        looks_at_ = retired_ + limits::watchdog_look;
        const bool leaves = std::any_of(warp.groups.begin(), warp.groups.end(), [](const Group& one) {
            return may_end(*one.frame->function, one.pc);
        });
        if (!leaves || retired_ > limits::watchdog) fault_ = CUDA_ERROR_LAUNCH_TIMEOUT;
    }
}

void BlockRun::run_group(Warp& warp, std::size_t index) {
    Context context;
    context.warp = &warp;
    context.block = this;
    // Where another group of this call waits to be joined.
    std::uint32_t limit = ~std::uint32_t{0};
    {
        const Group& group = warp.groups[index];
        for (const Group& other : warp.groups) {
            if (&other == &group || other.frame != group.frame || other.pc <= group.pc) continue;
            if (other.state != Group::State::ready && other.state != Group::State::gathering) continue;
            limit = std::min(limit, other.pc);
        }
        bind(context, group);
    }
    const bool alone = warp.groups.size() == 1;
    context.patience = limits::warp_turn;
    const Op* code = context.frame->function->code.data();
    std::uint32_t pc = warp.groups[index].pc;
    const Mask active = context.active;
    std::uint32_t executed = 0;
    // Leaves the loop with the group at `at`.
    const auto stop = [&](std::uint32_t at) {
        const std::uint32_t used = limits::warp_turn - context.patience;
        warp.groups[index].pc = at;
        retired_ += executed;
        spent_ += used;
        if (alone) return;
        Group& group = warp.groups[index];
        group.spent += used;
        if (group.spent < limits::fair_turn) return;
        group.spent = 0;
        ++group.turns;
    };
    for (;;) {
        if (pc >= limit || context.patience == 0) {
            stop(pc);
            return;
        }
        --context.patience;
        ++executed;
        const Op& op = code[pc];
        const Mask mask = guarded(context, op, active);
        if (mask == 0) {
            ++pc;
            continue;
        }
        work.instructions[static_cast<std::size_t>(op.cost)] +=
            mask == all_lanes ? lanes : static_cast<unsigned>(std::popcount(mask));
        if (op.kind == Kind::compute) [[likely]] {
            op.run(context, op, mask);
            ++pc;
            continue;
        }
        if (op.kind == Kind::checked) {
            op.run(context, op, mask);
            ++pc;
            if (context.fault == CUDA_SUCCESS) continue;
            fault_ = context.fault;
            stop(pc);
            return;
        }
        if (op.kind == Kind::branch && mask == active) {
            if (op.clock_loop && op.extra <= pc && wait_for_clock(warp, index, context, op.extra, pc)) {
                stop(op.extra);
                return;
            }
            pc = op.extra;
            if (!alone) {
                // It may have jumped over, or back before, a group that it should join.
                stop(pc);
                return;
            }
            continue;
        }
        stop(pc);
        regroup(warp, index, op, context, mask);
        return;
    }
}

// What changes the groups: the lanes of `mask` are at an operation that leads elsewhere, or waits.
void BlockRun::regroup(Warp& warp, std::size_t index, const Op& op, Context& context, Mask mask) {
    const Mask active = context.active;
    if (op.kind == Kind::gather) {
        const Mask complete = gathered(warp, context, op, mask);
        if (complete != mask) {
            if (mask != active) split(warp, index, mask);
            Group waiting = warp.groups[index];
            waiting.state = Group::State::gathering;
            waiting.mask = mask & ~complete;
            if (complete == 0) {
                warp.groups[index] = waiting;
                return;
            }
            warp.groups[index].mask = complete;
            warp.groups.push_back(waiting);
        }
        op.run(context, op, complete);
        fault_ = context.fault;
        ++warp.groups[index].pc;
        return;
    }
    if (mask != active) split(warp, index, mask);
    Group& group = warp.groups[index];
    switch (op.kind) {
        case Kind::branch:
            group.pc = op.extra;
            return;
        case Kind::branch_indexed: {
            const auto& targets = context.frame->function->jumps[op.extra];
            const u32 first = part(warp, index, context.at<u32>(op.a));
            if (first >= targets.size()) {
                fault_ = CUDA_ERROR_ILLEGAL_INSTRUCTION;
                return;
            }
            warp.groups[index].pc = targets[first];
            return;
        }
        case Kind::call:
            call(warp, index, op, context);
            return;
        case Kind::leave:
            leave(warp, index);
            return;
        case Kind::exit:
            exit_lanes(warp, index);
            return;
        case Kind::trap:
        case Kind::breakpoint:
            fault_ = CUDA_ERROR_LAUNCH_FAILED;
            return;
        case Kind::barrier:
            arrive(warp, index, op, context);
            return;
        case Kind::cluster_arrive:
            ++group.pc;
            arrive_in_cluster(warp, mask);
            return;
        case Kind::cluster_wait:
            if (waits_for_cluster(warp, mask))
                group.state = Group::State::cluster;
            else
                ++group.pc;
            return;
        case Kind::sleep: {
            u32 longest = 0;
            const u32* wished = context.at<u32>(op.a);
            each_lane(mask, [&](unsigned lane) { longest = std::max(longest, wished[lane]); });
            ++group.pc;
            if (longest == 0) return;
            group.state = Group::State::sleeping;
            group.wake = clock() + longest;
            return;
        }
        default:
            fault_ = CUDA_ERROR_ILLEGAL_INSTRUCTION;
            return;
    }
}

// Where the first lane of the group goes; those that go elsewhere become a group of their own.
template <typename Place>
Place BlockRun::part(Warp& warp, std::size_t index, const Place* places) {
    const Mask mask = warp.groups[index].mask;
    const Place first = places[std::countr_zero(mask)];
    Mask same = 0;
    each_lane(mask, [&](unsigned lane) { same |= places[lane] == first ? Mask{1} << lane : 0; });
    if (same != mask) {
        Group rest = warp.groups[index];
        rest.mask = mask & ~same;
        warp.groups[index].mask = same;
        warp.groups.push_back(rest);
    }
    return first;
}

void BlockRun::call(Warp& warp, std::size_t index, const Op& op, Context& context) {
    const Call& what = context.frame->function->calls[op.extra];
    std::int32_t target = what.function;
    const Program& program = *launch.kernel.program;
    if (target < 0) {
        const u64 first = part(warp, index, context.at<u64>(op.a));
        const u64 ordinal = (first & window::mask) >> 4;
        if ((first & ~window::mask) != window::code || (first & 15) != 0 || ordinal == 0 ||
            ordinal > program.functions.size()) {
            fault_ = CUDA_ERROR_INVALID_PC;
            return;
        }
        target = static_cast<std::int32_t>(ordinal - 1);
    }
    const Function& function = *program.functions[static_cast<std::size_t>(target)];
    const Mask mask = warp.groups[index].mask;
    Frame* caller = warp.groups[index].frame;
    if (!function.defined || function.entry || !same_formals(what.arguments, function.inputs) ||
        !same_formals(what.results, function.outputs)) {
        fault_ = CUDA_ERROR_ILLEGAL_INSTRUCTION;
        return;
    }
    const std::uint32_t local_base = caller->stack_end();
    Frame* frame = caller->depth < limits::call_depth ? make_frame(warp, function) : nullptr;
    if (frame == nullptr) {
        fault_ = CUDA_ERROR_HARDWARE_STACK_ERROR;
        return;
    }
    if (function.local_bytes > 0 && local_base + function.local_bytes > launch.stack) {
        fault_ = CUDA_ERROR_ILLEGAL_ADDRESS;
        return;
    }
    frame->caller = caller;
    frame->call = &what;
    frame->return_to = warp.groups[index].pc + 1;
    frame->depth = caller->depth + 1;
    frame->local_base = local_base;
    frame->allocated = 0;
    frame->live = mask;
    for (std::size_t which = 0; which < what.arguments.size(); ++which) {
        const Formal& from = what.arguments[which];
        const Formal& to = function.inputs[which];
        if (from.place != no_place) {
            std::copy_n(context.at<std::byte>(from.place), from.bytes, frame->registers + to.place);
            continue;
        }
        each_lane(mask, [&](unsigned lane) {
            std::copy_n(caller->parameters + lane * caller->function->parameter_bytes + from.offset,
                        from.bytes, frame->parameters + lane * function.parameter_bytes + to.offset);
        });
    }
    Group& group = warp.groups[index];
    group.frame = frame;
    group.pc = 0;
}

void BlockRun::leave(Warp& warp, std::size_t index) {
    Group& group = warp.groups[index];
    Frame* frame = group.frame;
    if (frame->caller == nullptr) {
        exit_lanes(warp, index);
        return;
    }
    Frame* caller = frame->caller;
    for (std::size_t which = 0; which < frame->call->results.size(); ++which) {
        const Formal& to = frame->call->results[which];
        const Formal& from = frame->function->outputs[which];
        if (to.place != no_place) {
            const unsigned bytes = to.bytes == sizeof(Mask) ? 0 : to.bytes / lanes;
            if (bytes == 0) {
                Mask& into = *reinterpret_cast<Mask*>(caller->registers + to.place);
                into = (into & ~group.mask) |
                       (*reinterpret_cast<Mask*>(frame->registers + from.place) & group.mask);
            }
            each_lane(group.mask, [&](unsigned lane) {
                std::copy_n(frame->registers + from.place + lane * bytes, bytes,
                            caller->registers + to.place + lane * bytes);
            });
            continue;
        }
        each_lane(group.mask, [&](unsigned lane) {
            std::copy_n(frame->parameters + lane * frame->function->parameter_bytes + from.offset, from.bytes,
                        caller->parameters + lane * caller->function->parameter_bytes + to.offset);
        });
    }
    group.frame = caller;
    group.pc = frame->return_to;
    frame->live &= ~group.mask;
    if (frame->live == 0) frame->caller = nullptr;
}

void BlockRun::exit_lanes(Warp& warp, std::size_t index) {
    const Mask mask = warp.groups[index].mask;
    for (Frame* frame = warp.groups[index].frame; frame != nullptr;) {
        Frame* caller = frame->caller;
        frame->live &= ~mask;
        if (frame->live == 0) frame->caller = nullptr;
        frame = caller;
    }
    warp.exited |= mask;
    live_threads_ -= static_cast<std::uint32_t>(std::popcount(mask));
    leave_cluster(mask);
    warp.groups.erase(warp.groups.begin() + static_cast<std::ptrdiff_t>(index));
    // Whoever waited for these lanes looks again.
    for (Group& group : warp.groups) {
        if (group.state == Group::State::gathering) group.state = Group::State::ready;
    }
    recheck_barriers();
}

bool BlockRun::leaves_at(Context& context, std::uint32_t first, std::uint32_t last, Nanoseconds time) {
    supposed = time;
    const Op* code = context.frame->function->code.data();
    for (std::uint32_t at = first; at <= last; ++at) {
        const Op& op = code[at];
        const Mask mask = guarded(context, op, context.active);
        if (op.kind == Kind::branch) {
            if (at == last) return mask != context.active;
            if (mask != 0) return true;
        } else if (mask != 0) {
            op.run(context, op, mask);
        }
    }
    return true;
}

// At the end of a turn of a loop that waits for a clock: sleeps until the first time at which a lane
// leaves it. Only registers that the loop sets itself before reading them change.
bool BlockRun::wait_for_clock(Warp& warp, std::size_t index, Context& context, std::uint32_t first,
                              std::uint32_t last) {
    const Nanoseconds start = clock();
    Nanoseconds low = start;
    Nanoseconds high = start + 1;
    while (high != never && !leaves_at(context, first, last, high)) {
        low = high;
        high = high - start > far_future ? never : start + (high - start) * 2;
    }
    while (high - low > 1 && high != never) {
        const Nanoseconds middle = low + (high - low) / 2;
        (leaves_at(context, first, last, middle) ? high : low) = middle;
    }
    supposed = -1;
    if (high == never) {
        fault_ = CUDA_ERROR_LAUNCH_TIMEOUT;
        return true;
    }
    warp.groups[index].state = Group::State::sleeping;
    warp.groups[index].wake = high;
    return true;
}

}  // namespace fikit::sim::ptx
