// Where lanes of a warp wait for each other: at one instruction, or at several that are one to the PTX ISA.
#include <algorithm>

#include "ptx/engine.hpp"

namespace fikit::sim::ptx {

// Lanes may meet at a warp's barrier (bar.warp.sync) from different places in the code.
bool BlockRun::release_warp_barrier(Warp& warp) {
    Mask here = 0;
    Mask wanted = 0;
    const auto waits = [](const Group& group) {
        return group.state == Group::State::gathering &&
               group.frame->function->code[group.pc].cost == Work::barrier;
    };
    for (const Group& group : warp.groups) {
        if (!waits(group)) continue;
        Context context;
        bind(context, group);
        here |= group.mask;
        const u32* members = context.at<u32>(group.frame->function->code[group.pc].c);
        each_lane(group.mask, [&](unsigned lane) { wanted |= members[lane]; });
    }
    if (here == 0 || (wanted & warp.exists & ~warp.exited & ~here) != 0) return false;
    for (Group& group : warp.groups) {
        if (!waits(group)) continue;
        group.state = Group::State::ready;
        ++group.pc;
    }
    return true;
}

// As they may for votes, shuffles and their like, by the PTX ISA: what counts are qualifiers and mask.
bool BlockRun::meet_apart(Warp& warp) {
    for (const Group& first : warp.groups) {
        const Op& op = first.frame->function->code[first.pc];
        if (first.state != Group::State::gathering || op.c == no_place) continue;
        Context context;
        bind(context, first);
        const u32 wanted = context.at<u32>(op.c)[std::countr_zero(first.mask)];
        std::vector<Apart> parts;
        std::vector<std::size_t> groups;
        Mask here = 0;
        for (std::size_t index = 0; index < warp.groups.size(); ++index) {
            const Group& group = warp.groups[index];
            const Op& other = group.frame->function->code[group.pc];
            if (group.state != Group::State::gathering || !may_meet(op, other)) continue;
            Apart part{{}, &other, 0};
            bind(part.context, group);
            const u32* members = part.context.at<u32>(other.c);
            each_lane(group.mask, [&](unsigned lane) {
                part.mask |= static_cast<Mask>(members[lane] == wanted) << lane;
            });
            if (part.mask == 0) continue;
            here |= part.mask;
            parts.push_back(part);
            groups.push_back(index);
        }
        if (parts.size() < 2 || (wanted & warp.exists & ~warp.exited & ~here) != 0) continue;
        run_apart(parts);
        for (std::size_t index = 0; index < parts.size(); ++index) {
            Group done = warp.groups[groups[index]];
            warp.groups[groups[index]].mask &= ~parts[index].mask;
            done.mask = parts[index].mask;
            done.state = Group::State::ready;
            ++done.pc;
            warp.groups.push_back(done);
        }
        std::erase_if(warp.groups, [](const Group& group) { return group.mask == 0; });
        return true;
    }
    return false;
}

// The lanes of the mask whose members are all in it: each lane names its own.
Mask BlockRun::gathered(const Warp& warp, const Context& context, const Op& op, Mask mask) {
    const Mask missing = warp.exists & ~warp.exited & ~mask;
    if (missing == 0) return mask;
    if (op.c == no_place) return 0;
    const u32* members = context.at<u32>(op.c);
    Mask complete = 0;
    each_lane(mask,
              [&](unsigned lane) { complete |= static_cast<Mask>((members[lane] & missing) == 0) << lane; });
    return complete;
}

}  // namespace fikit::sim::ptx
