// See replay_multiprocessors.hpp.
#include "replay_multiprocessors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace fikit::replay {

namespace model = sim::model;

namespace {

// All bits or none. What could go either way is worked out without a branch here: a wrong guess of the
// processor's costs more than what it would skip.
unsigned all(bool condition) { return -static_cast<unsigned>(condition); }

}  // namespace

Multiprocessors::Multiprocessors(std::vector<uint16_t> partitions) {
    partitions.push_back(model::sm_count);
    std::sort(partitions.begin(), partitions.end());
    partitions.erase(std::unique(partitions.begin(), partitions.end()), partitions.end());
    if (partitions.front() == 0 || partitions.back() > model::sm_count || partitions.size() > areas)
        throw std::invalid_argument("there are up to 7 partitions, each of fewer SMs than all");
    areas_ = static_cast<unsigned>(partitions.size());
    uint16_t from = 0;
    for (unsigned area = 0; area < partitions.size(); from = partitions[area++]) {
        counts_[0] |= static_cast<uint64_t>(partitions[area] - from) << (8 * area);
        below_[partitions[area]] = area == 7 ? ~uint64_t{0} : (uint64_t{1} << (8 * (area + 1))) - 1;
    }
    free_[0] = {model::threads_per_sm, model::registers_per_sm, model::shared_per_sm, model::blocks_per_sm};
}

// The first so many SMs of those counted: of all areas at a time, what the areas below leave of them.
uint64_t Multiprocessors::first_of(uint64_t counts, unsigned number) {
    using Bytes [[gnu::vector_size(8)]] = uint8_t;
    const auto there = std::bit_cast<Bytes>(counts), below = std::bit_cast<Bytes>(counts * ones << 8);
    const Bytes all = Bytes{} + static_cast<uint8_t>(number), left = all - (all < below ? all : below);
    return std::bit_cast<uint64_t>(there < left ? there : left);
}

// Makes room in the rows for waves up to this one.
void Multiprocessors::widen(uint16_t wave) {
    const unsigned width = (wave / chunk + 1) * chunk;
    std::vector<uint8_t> rows(size_t{most} * width);
    for (unsigned group = 0; group < size_; ++group)
        std::copy_n(&rows_[group * width_], width_, &rows[group * width]);
    rows_.swap(rows);
    width_ = width;
}

// What is on the SMs of a group.
void Multiprocessors::copy(unsigned from, unsigned to) {
    marks_[to] = marks_[from];
    free_[to] = free_[from];
    for (unsigned at = 0; at < width_; at += chunk)
        std::memcpy(&blocks(to, 0) + at, &blocks(from, 0) + at, chunk);
}

// Makes these SMs of a group one of their own.
unsigned Multiprocessors::part(unsigned group, uint64_t counts) {
    const unsigned made = size_++;
    counts_[group] -= counts;
    counts_[made] = counts;
    copy(group, made);
    return made;
}

void Multiprocessors::put(unsigned group, Wave wave, Resources block, unsigned times) {
    free_[group].take(block, times);
    marks_[group] += wave.mark * times;
    blocks(group, wave.number) = static_cast<uint8_t>(times);
}

// The group's SMs elsewhere become one of their own.
inline void Multiprocessors::keep(unsigned group, uint64_t allowed) {
    if (const uint64_t outside = counts_[group] & ~allowed; outside != 0) [[unlikely]]
        part(group, outside);
}

Multiprocessors::Placed Multiprocessors::place(Wave wave, const Block& block, uint16_t from, uint16_t to,
                                               uint32_t pending) {
    const uint64_t allowed = below_[to] & ~below_[from];
    unsigned found = 0;
    uint32_t total = 0;
    for (unsigned group = 0; group < size_; ++group) {
        const unsigned sms = sum(counts_[group] & allowed) & all(free_[group].holds(block));
        rooms_[found].group = group;
        rooms_[found].sms = sms;
        found += sms > 0;
        total += sms;
    }
    if (found == 0) return {};
    if (wave.number >= width_) [[unlikely]]
        widen(wave.number);
    if (pending < total) {  // a block on some of them
        uint32_t left = pending;
        for (Room* room = rooms_.data(); left > 0; ++room) {
            const unsigned group = room->group;
            keep(group, allowed);
            if (left < room->sms) part(group, counts_[group] - first_of(counts_[group], left));
            put(group, wave, block, 1);
            left -= std::min(left, room->sms);
        }
        return {pending, pending > 0};
    }
    const uint32_t sms = total;
    unsigned level = 0;
    total = 0;
    for (unsigned at = 0; at < found; ++at) {
        Room& room = rooms_[at];
        room.blocks = block.room(free_[room.group]);
        total += room.blocks * room.sms;
        level = std::max(level, room.blocks);
    }
    if (pending >= total) {  // as many as fit
        for (unsigned at = 0; at < found; ++at) {
            keep(rooms_[at].group, allowed);
            put(rooms_[at].group, wave, block, rooms_[at].blocks);
        }
        return {total, level};
    }
    // The level to which every SM is filled, and what is left over for one more block on some of them.
    std::array<uint8_t, model::blocks_per_sm + 1> full{};  // SMs that are full at that level
    for (unsigned at = 0; at < found; ++at) full[rooms_[at].blocks] += static_cast<uint8_t>(rooms_[at].sms);
    level = 0;
    uint32_t left = pending;
    for (uint32_t layer = sms; layer <= left; layer -= full[level]) {
        left -= layer;
        ++level;
    }
    const Placed placed{pending, level + (left > 0)};
    for (unsigned at = 0; at < found; ++at) {
        const Room room = rooms_[at];
        unsigned times = std::min(room.blocks, level);
        keep(room.group, allowed);
        if (left > 0 && room.blocks > level) {
            if (left < room.sms) {
                const uint64_t counts = counts_[room.group];
                put(part(room.group, counts - first_of(counts, left)), wave, block, level);
            }
            times = level + 1;
            left -= std::min(left, room.sms);
        }
        put(room.group, wave, block, times);
    }
    return placed;
}

// The last group takes its number.
void Multiprocessors::remove(unsigned group) {
    const unsigned last = --size_;
    if (group == last) return;
    counts_[group] = counts_[last];
    copy(last, group);
}

void Multiprocessors::release(Wave wave, Resources block) {
    unsigned found = 0;
    for (unsigned group = size_; group-- > 0;) {
        holders_[found] = group;
        found += blocks(group, wave.number) > 0;
    }
    for (unsigned at = 0; at < found; ++at) {
        const unsigned group = holders_[at];
        const unsigned times = std::exchange(blocks(group, wave.number), uint8_t{0});
        const uint64_t marks = marks_[group] - wave.mark * times;
        // The first group that is equal: a border may have left several. It is not this one, whose marks are
        // still those from before.
        unsigned same = none;
        for (unsigned other = size_; other-- > 0;) same = marks_[other] == marks ? other : same;
        if (same == none) {
            free_[group].give(block, times);
            marks_[group] = marks;
        } else {
            counts_[same] += counts_[group];
            remove(group);
        }
    }
}

}  // namespace fikit::replay
