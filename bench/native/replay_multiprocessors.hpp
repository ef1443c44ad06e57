// The SMs of the replay's GPU: which blocks are where, as in simcuda/machine.hpp, made for speed.
//
// SMs that hold the same blocks are one group. Partitions are nested, so the SMs fall into areas, each
// between one partition's border and the next; a group knows how many SMs of each area it has, and is split
// by a border only when a kernel that is confined to a partition arrives.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "machine.hpp"

namespace fikit::replay {

// What a block takes of an SM, or what is free on one: threads, registers, shared memory and blocks, each in
// the unit in which it is allocated, side by side in one word. None reaches the highest bit of its 16.
class Resources {
  public:
    constexpr Resources() = default;
    constexpr Resources(unsigned threads, unsigned registers, unsigned shared, unsigned blocks)
        : lanes_(threads | uint64_t{registers / sim::model::register_allocation_unit} << 16 |
                 uint64_t{shared / sim::model::shared_allocation_unit} << 32 | uint64_t{blocks} << 48) {}
    constexpr explicit Resources(const sim::BlockShape& shape)
        : Resources(shape.threads, shape.registers, shape.shared, 1) {}

    // A lane's highest bit stays 0 where there is not enough of it.
    bool holds(const Resources& block) const { return (~(lanes_ + (borrows - block.lanes_)) & borrows) == 0; }
    void take(const Resources& block, unsigned times) { lanes_ -= block.lanes_ * times; }
    void give(const Resources& block, unsigned times) { lanes_ += block.lanes_ * times; }

    unsigned lane(unsigned number) const { return lanes_ >> (16 * number) & 0xffff; }

    static constexpr uint64_t borrows = 0x8000'8000'8000'8000;
    uint64_t lanes_ = 0;
};

// What a block takes, some of each, made for finding how many fit: dividing takes longer than all else that
// this needs. Multiplied by 2^32 / taken, rounded up, all numbers of 15 bits give what dividing them would.
class Block : public Resources {
  public:
    constexpr Block() = default;
    Block(const Resources& resources) : Resources(resources) {
        for (unsigned number = 0; number < inverse_.size(); ++number)
            if (const uint64_t taken = lane(number); taken > 0)
                inverse_[number] = ((uint64_t{1} << 32) + taken - 1) / taken;
    }
    unsigned room(const Resources& free) const {
        uint64_t blocks = free.lane(3);
        for (unsigned number = 0; number < inverse_.size(); ++number)
            blocks = std::min(blocks, free.lane(number) * inverse_[number] >> 32);
        return static_cast<unsigned>(blocks);
    }

  private:
    std::array<uint64_t, 3> inverse_{};  // of threads, registers and shared memory
};

class Multiprocessors {
  public:
    static constexpr unsigned areas = 8;

    // `partitions`: numbers of SMs of the partitions there are, each less than all; at most areas - 1.
    explicit Multiprocessors(std::vector<uint16_t> partitions);

    // What is placed together: the number of its wave, and a random number that tells it from all others.
    struct Wave {
        uint16_t number = 0;
        uint64_t mark = 0;
    };
    struct Placed {
        uint32_t blocks = 0;
        unsigned deepest = 0;  // so many of them are on the fullest SM
    };
    // Places up to `pending` blocks on the SMs from `from` to `to`, the borders of partitions, breadth first.
    Placed place(Wave wave, const Block& block, uint16_t from, uint16_t to, uint32_t pending);
    // Frees what the wave holds, and joins the groups that have become equal.
    void release(Wave wave, Resources block);

    unsigned groups() const { return size_; }

  private:
    static constexpr unsigned most = sim::model::sm_count, none = most;
    // What a group has of each wave, by its number: blocks on each of its SMs. Such a row is copied in a few
    // instructions, and no search finds a wave in it. It is so many bytes long, or several times that.
    static constexpr unsigned chunk = 64;
    struct Room {  // what a group has for the blocks in hand
        unsigned group = 0;
        uint32_t sms = 0;     // so many SMs,
        unsigned blocks = 0;  // and so many blocks on each, where that matters
    };

    static constexpr uint64_t ones = 0x0101'0101'0101'0101;
    static unsigned sum(uint64_t counts) { return static_cast<unsigned>(counts * ones >> 56); }
    static uint64_t first_of(uint64_t counts, unsigned number);
    uint8_t& blocks(unsigned group, uint16_t wave) { return rows_[group * width_ + wave]; }
    void widen(uint16_t wave);
    void copy(unsigned from, unsigned to);
    unsigned part(unsigned group, uint64_t counts);
    void keep(unsigned group, uint64_t allowed);
    void put(unsigned group, Wave wave, Resources block, unsigned times);
    void remove(unsigned group);

    unsigned areas_ = 1;                      // that there are
    std::array<uint64_t, most + 1> below_{};  // by a border: all bits of the areas below it
    unsigned size_ = 1;
    // By group.
    std::array<uint64_t, most> counts_{};  // SMs, a byte for each area
    std::array<uint64_t, most> marks_{};   // the sum over the blocks on an SM: equal where these are
    std::array<Resources, most> free_{};
    unsigned width_ = chunk;  // of each group's row
    std::vector<uint8_t> rows_ = std::vector<uint8_t>(size_t{most} * chunk);
    std::array<Room, most> rooms_{};        // place()'s own
    std::array<unsigned, most> holders_{};  // release()'s own
};

}  // namespace fikit::replay
