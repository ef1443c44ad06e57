// The SMs of a simulated device: which blocks fit where.
//
// SMs that hold the same blocks are kept as one group, so placing or ending a wave of a uniform
// kernel over the whole device costs a few operations instead of 132. A group is split when a grid
// does not fill it evenly, or when a partition (green context) cuts through it, and groups in equal
// state are merged again. Invariants: the groups are disjoint and cover the device; a partition
// contains a group wholly or not at all.
#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace fikit::sim {

using SmSet = std::bitset<model::sm_count>;

// What one block takes of an SM.
struct BlockShape {
    unsigned threads = 0;    // whole warps
    unsigned registers = 0;  // as allocated
    unsigned shared = 0;     // as allocated, with the reserved part
};

// How many warps have room for so many registers in each thread (cuda_occupancy.h); 0: not even one.
unsigned warps_with(unsigned registers);
// What a block of `threads` threads, `registers` per thread and `shared` bytes takes.
BlockShape block_shape(unsigned threads, unsigned registers, unsigned shared);
// How many such blocks one empty SM holds; 0 when not even one fits.
unsigned blocks_per_sm(const BlockShape& shape);

// Blocks that were placed together and end together; the machine only compares its address.
struct Wave;

class Machine {
  public:
    Machine();

    // Registers a partition, so that groups respect its border from now on.
    void add_partition(const SmSet& partition);
    void remove_partition(const SmSet& partition);

    // Places up to `pending` blocks inside `allowed` for `wave`, breadth first and in whole clusters (borders
    // of GPCs are not modelled); returns how many, and in `deepest` how many of them the fullest SM got.
    std::uint64_t place(const Wave* wave, const BlockShape& shape, const SmSet& allowed,
                        std::uint64_t pending, unsigned cluster, unsigned& deepest);
    // Frees what `wave` held.
    void release(const Wave* wave, const BlockShape& shape);

    std::size_t group_count() const { return groups_.size(); }
    std::uint64_t resident_blocks() const;

  private:
    struct Resident {
        const Wave* wave;
        unsigned blocks;  // on each SM of the group
        bool operator==(const Resident&) const = default;
    };
    struct Group {
        SmSet members;
        unsigned count;
        unsigned threads, registers, shared, blocks;  // free, on each SM
        std::vector<Resident> residents;
    };

    static unsigned capacity(const Group& group, const BlockShape& shape);
    static void take(Group& group, const Wave* wave, const BlockShape& shape, unsigned blocks);
    bool same_partitions(const Group& left, const Group& right) const;
    void split(std::size_t index, const SmSet& part);
    void merge();

    std::vector<Group> groups_;
    std::vector<SmSet> partitions_;
    std::vector<unsigned> room_;  // place()'s own
};

}  // namespace fikit::sim
