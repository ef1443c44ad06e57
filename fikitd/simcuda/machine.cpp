// See machine.hpp.
#include "machine.hpp"

#include <algorithm>

namespace fikit::sim {

namespace {

constexpr unsigned round_up(unsigned value, unsigned unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

unsigned warps_with(unsigned registers) {
    const unsigned per_warp =
        round_up(std::max(registers, 1U) * model::warp_size, model::register_allocation_unit);
    return model::registers_per_sm / model::sm_quarters / per_warp * model::sm_quarters;
}

BlockShape block_shape(unsigned threads, unsigned registers, unsigned shared) {
    const unsigned warps = (threads + model::warp_size - 1) / model::warp_size;
    const unsigned most = warps_with(registers);
    const unsigned per_warp = most > 0 ? model::registers_per_sm / most : model::registers_per_sm + 1;
    return {warps * model::warp_size, warps * per_warp,
            round_up(shared + model::shared_reserved_per_block, model::shared_allocation_unit)};
}

unsigned blocks_per_sm(const BlockShape& shape) {
    if (shape.threads == 0 || shape.registers == 0 || shape.shared == 0) return 0;
    return std::min({model::blocks_per_sm, model::threads_per_sm / shape.threads,
                     model::registers_per_sm / shape.registers, model::shared_per_sm / shape.shared});
}

Machine::Machine() {
    groups_.push_back({SmSet{}.set(),
                       model::sm_count,
                       model::threads_per_sm,
                       model::registers_per_sm,
                       model::shared_per_sm,
                       model::blocks_per_sm,
                       {}});
}

unsigned Machine::capacity(const Group& group, const BlockShape& shape) {
    return std::min({group.blocks, group.threads / shape.threads, group.registers / shape.registers,
                     group.shared / shape.shared});
}

void Machine::take(Group& group, const Wave* wave, const BlockShape& shape, unsigned blocks) {
    group.threads -= blocks * shape.threads;
    group.registers -= blocks * shape.registers;
    group.shared -= blocks * shape.shared;
    group.blocks -= blocks;
    group.residents.push_back({wave, blocks});
}

void Machine::split(std::size_t index, const SmSet& part) {
    Group rest = groups_[index];
    Group& inside = groups_[index];
    inside.members &= part;
    inside.count = static_cast<unsigned>(inside.members.count());
    rest.members &= ~part;
    rest.count = static_cast<unsigned>(rest.members.count());
    groups_.push_back(std::move(rest));
}

void Machine::add_partition(const SmSet& partition) {
    partitions_.push_back(partition);
    for (std::size_t index = groups_.size(); index-- > 0;) {
        const SmSet inside = groups_[index].members & partition;
        if (inside.any() && inside != groups_[index].members) split(index, partition);
    }
}

void Machine::remove_partition(const SmSet& partition) {
    const auto found = std::find(partitions_.begin(), partitions_.end(), partition);
    if (found != partitions_.end()) partitions_.erase(found);
    merge();
}

std::uint64_t Machine::place(const Wave* wave, const BlockShape& shape, const SmSet& allowed,
                             std::uint64_t pending, unsigned cluster, unsigned& deepest) {
    std::vector<unsigned>& room = room_;
    room.assign(groups_.size(), 0);
    std::uint64_t total = 0;
    deepest = 0;
    for (std::size_t index = 0; index < groups_.size(); ++index) {
        if ((groups_[index].members & allowed).none()) continue;
        room[index] = capacity(groups_[index], shape);
        total += std::uint64_t{room[index]} * groups_[index].count;
        deepest = std::max(deepest, room[index]);
    }
    const std::uint64_t fitting = total - total % cluster;
    if (fitting == 0) return deepest = 0;
    pending = std::min(pending, fitting);

    // The level to which every SM is filled, and what is left over for one more block on some of
    // them.
    unsigned level = deepest;
    std::uint64_t left = 0;
    if (pending < total) {
        left = pending;
        for (level = 0; level < deepest; ++level) {
            std::uint64_t layer = 0;
            for (std::size_t index = 0; index < room.size(); ++index) {
                if (room[index] > level) layer += groups_[index].count;
            }
            if (layer > left) break;
            left -= layer;
        }
        deepest = level + (left > 0 ? 1 : 0);
    }
    const std::size_t groups = groups_.size();
    for (std::size_t index = 0; index < groups; ++index) {
        unsigned blocks = std::min(room[index], level);
        if (left > 0 && room[index] > level) {
            if (left < groups_[index].count) {
                SmSet part;
                for (std::size_t sm = 0, taken = 0; taken < left; ++sm) {
                    if (groups_[index].members[sm]) {
                        part.set(sm);
                        ++taken;
                    }
                }
                split(index, part);
                if (level > 0) take(groups_.back(), wave, shape, level);
            }
            blocks = level + 1;
            left -= groups_[index].count;
        }
        if (blocks > 0) take(groups_[index], wave, shape, blocks);
    }
    return pending;
}

void Machine::release(const Wave* wave, const BlockShape& shape) {
    for (Group& group : groups_) {
        for (std::size_t index = 0; index < group.residents.size(); ++index) {
            if (group.residents[index].wave != wave) continue;
            const unsigned blocks = group.residents[index].blocks;
            group.threads += blocks * shape.threads;
            group.registers += blocks * shape.registers;
            group.shared += blocks * shape.shared;
            group.blocks += blocks;
            group.residents.erase(group.residents.begin() + static_cast<std::ptrdiff_t>(index));
            break;
        }
    }
    merge();
}

bool Machine::same_partitions(const Group& left, const Group& right) const {
    return std::all_of(partitions_.begin(), partitions_.end(), [&](const SmSet& partition) {
        return (left.members & partition).any() == (right.members & partition).any();
    });
}

void Machine::merge() {
    for (std::size_t left = 0; left < groups_.size(); ++left) {
        for (std::size_t right = groups_.size(); right-- > left + 1;) {
            Group& into = groups_[left];
            Group& from = groups_[right];
            if (into.residents != from.residents || !same_partitions(into, from)) continue;
            into.members |= from.members;
            into.count += from.count;
            groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(right));
        }
    }
}

std::uint64_t Machine::resident_blocks() const {
    std::uint64_t total = 0;
    for (const Group& group : groups_) {
        for (const Resident& resident : group.residents)
            total += std::uint64_t{resident.blocks} * group.count;
    }
    return total;
}

}  // namespace fikit::sim
