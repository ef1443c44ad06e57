// See replay_multiprocessors.hpp.
#include "replay_multiprocessors.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace fikit::replay {

namespace model = sim::model;

unsigned Resources::room(const Resources& block, unsigned most) const {
    unsigned found = 0;
    for (unsigned more = std::bit_floor(most); more > 0; more /= 2)
        if (found + more <= most && holds(block.lanes_ * (found + more))) found += more;
    return found;
}

Multiprocessors::Multiprocessors(std::vector<uint16_t> partitions) {
    partitions.push_back(model::sm_count);
    std::sort(partitions.begin(), partitions.end());
    partitions.erase(std::unique(partitions.begin(), partitions.end()), partitions.end());
    if (partitions.front() == 0 || partitions.back() > model::sm_count || partitions.size() > areas)
        throw std::invalid_argument("there are up to 7 partitions, each of fewer SMs than all");
    uint16_t from = 0;
    for (unsigned area = 0; area < partitions.size(); from = partitions[area++]) {
        counts_[0] |= static_cast<uint64_t>(partitions[area] - from) << (8 * area);
        below_[partitions[area]] = area == 7 ? ~uint64_t{0} : (uint64_t{1} << (8 * (area + 1))) - 1;
    }
    free_[0] = {model::threads_per_sm, model::registers_per_sm, model::shared_per_sm, model::blocks_per_sm};
}

// The first so many SMs of those counted.
uint64_t Multiprocessors::first_of(uint64_t counts, unsigned number) {
    uint64_t chosen = 0;
    for (unsigned area = 0; number > 0; ++area) {
        const auto taken = std::min<uint64_t>(number, counts >> (8 * area) & 0xff);
        chosen |= taken << (8 * area);
        number -= static_cast<unsigned>(taken);
    }
    return chosen;
}

// Makes these SMs of a group one of their own.
unsigned Multiprocessors::part(unsigned group, uint64_t counts) {
    const unsigned made = size_++;
    counts_[group] -= counts;
    counts_[made] = counts;
    marks_[made] = marks_[group];
    waves_[made] = waves_[group];
    free_[made] = free_[group];
    residents_[made].size = residents_[group].size;
    std::copy_n(residents_[group].items.begin(), residents_[group].size, residents_[made].items.begin());
    return made;
}

void Multiprocessors::put(unsigned group, const Wave& wave, const Resources& block, unsigned blocks) {
    free_[group].take(block, blocks);
    marks_[group] += wave.mark * blocks;
    waves_[group] |= bit(wave.number);
    Residents& on = residents_[group];
    on.items[on.size++] = {wave.number, static_cast<uint16_t>(blocks)};
}

Multiprocessors::Placed Multiprocessors::place(const Wave& wave, const Resources& block, unsigned per_sm,
                                               uint16_t from, uint16_t to, uint32_t pending) {
    const uint64_t allowed = below_[to] & ~below_[from];
    const unsigned size = size_;
    uint32_t total = 0;
    for (unsigned group = 0; group < size; ++group) {
        const unsigned eligible = free_[group].holds(block) ? sum(counts_[group] & allowed) : 0;
        eligible_[group] = static_cast<uint8_t>(eligible);
        rooms_[group] = eligible > 0 ? 1 : 0;
        total += eligible;
    }
    if (total == 0) return {};
    // The level to which every SM is filled, and what is left over for one more block on some of them.
    unsigned level = 0;
    uint32_t left = pending;
    if (pending >= total) {
        total = 0;
        for (unsigned group = 0; group < size; ++group) {
            if (eligible_[group] == 0) continue;
            const unsigned room = residents_[group].size == 0 ? per_sm : free_[group].room(block, per_sm);
            rooms_[group] = static_cast<uint8_t>(room);
            total += room * eligible_[group];
            level = std::max(level, room);
        }
        left = 0;
        if (pending < total) {
            left = pending;
            for (level = 0;; ++level) {
                uint32_t layer = 0;
                for (unsigned group = 0; group < size; ++group)
                    if (rooms_[group] > level) layer += eligible_[group];
                if (layer > left) break;
                left -= layer;
            }
        }
    }
    const Placed placed{std::min(pending, total), level + (left > 0 ? 1 : 0)};
    for (unsigned group = 0; group < size; ++group) {
        unsigned blocks = std::min<unsigned>(rooms_[group], level);
        const bool more = left > 0 && rooms_[group] > level;
        if (blocks == 0 && !more) continue;
        if (const uint64_t outside = counts_[group] & ~allowed; outside != 0) part(group, outside);
        if (more) {
            if (left < eligible_[group]) {
                const uint64_t rest = counts_[group] - first_of(counts_[group], left);
                const unsigned other = part(group, rest);
                if (level > 0) put(other, wave, block, level);
            }
            blocks = level + 1;
            left -= std::min<uint32_t>(left, eligible_[group]);
        }
        put(group, wave, block, blocks);
    }
    return placed;
}

// The last group takes its number.
void Multiprocessors::remove(unsigned group) {
    const unsigned last = --size_;
    if (group == last) return;
    counts_[group] = counts_[last];
    marks_[group] = marks_[last];
    waves_[group] = waves_[last];
    free_[group] = free_[last];
    residents_[group].size = residents_[last].size;
    std::copy_n(residents_[last].items.begin(), residents_[last].size, residents_[group].items.begin());
}

void Multiprocessors::release(const Wave& wave, const Resources& block) {
    for (unsigned group = size_; group-- > 0;) {
        if ((waves_[group] & bit(wave.number)) == 0) continue;
        Residents& on = residents_[group];
        uint64_t others = 0;
        unsigned blocks = 0;
        for (unsigned at = 0; at < on.size;) {
            if (on.items[at].wave == wave.number) {
                blocks = on.items[at].blocks;
                on.items[at] = on.items[--on.size];
            } else {
                others |= bit(on.items[at++].wave);
            }
        }
        if (blocks == 0) continue;
        waves_[group] = others;
        free_[group].give(block, blocks);
        marks_[group] -= wave.mark * blocks;
        for (unsigned other = 0; other < size_; ++other) {
            if (other == group || marks_[other] != marks_[group]) continue;
            counts_[other] += counts_[group];
            remove(group);
            break;
        }
    }
}

}  // namespace fikit::replay
