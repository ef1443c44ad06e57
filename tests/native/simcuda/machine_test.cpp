// Which blocks fit where.
#include "machine.hpp"

#include <memory>

#include "check.hpp"

namespace fikit::sim {
struct Wave {};
}  // namespace fikit::sim

using namespace fikit::sim;

namespace {

const SmSet whole = SmSet{}.set();

std::uint64_t place(Machine& machine, const Wave& wave, const BlockShape& shape, const SmSet& allowed,
                    std::uint64_t pending, unsigned cluster = 1) {
    unsigned deepest = 0;
    const std::uint64_t placed = machine.place(&wave, shape, allowed, pending, cluster, deepest);
    CHECK((placed > 0) == (deepest > 0));
    return placed;
}

SmSet first(std::size_t count) {
    SmSet set;
    for (std::size_t sm = 0; sm < count; ++sm) set.set(sm);
    return set;
}

}  // namespace

TEST(occupancy_is_limited_by_threads_registers_shared_memory_and_slots) {
    CHECK(blocks_per_sm(block_shape(1024, 16, 0)) == 2);
    CHECK(blocks_per_sm(block_shape(32, 16, 0)) == 32);
    CHECK(blocks_per_sm(block_shape(256, 64, 0)) == 4);
    CHECK(blocks_per_sm(block_shape(1024, 64, 0)) == 1);
    CHECK(blocks_per_sm(block_shape(1024, 128, 0)) == 0);
    CHECK(blocks_per_sm(block_shape(128, 16, 100 * 1024)) == 2);
    CHECK(blocks_per_sm(block_shape(128, 16, 227 * 1024)) == 1);
    CHECK(blocks_per_sm(block_shape(33, 16, 0)) == 32);
}

TEST(a_full_wave_keeps_one_group) {
    Machine machine;
    Wave wave;
    const BlockShape shape = block_shape(1024, 16, 0);
    CHECK(place(machine, wave, shape, whole, 100000) == 264);
    CHECK(machine.group_count() == 1);
    CHECK(machine.resident_blocks() == 264);
    machine.release(&wave, shape);
    CHECK(machine.resident_blocks() == 0);
}

TEST(an_uneven_grid_goes_breadth_first_and_the_groups_merge_again) {
    Machine machine;
    Wave wave, other;
    const BlockShape shape = block_shape(1024, 16, 0);
    CHECK(place(machine, wave, shape, whole, 140) == 140);
    CHECK(machine.group_count() == 2);
    CHECK(place(machine, other, shape, whole, 1000) == 264 - 140);
    CHECK(machine.resident_blocks() == 264);
    machine.release(&wave, shape);
    machine.release(&other, shape);
    CHECK(machine.group_count() == 1);
    CHECK(place(machine, wave, shape, whole, 1000) == 264);
}

TEST(a_partition_confines_and_leaves_the_rest) {
    Machine machine;
    Wave inside, outside;
    const BlockShape shape = block_shape(1024, 16, 0);
    machine.add_partition(first(16));
    CHECK(place(machine, inside, shape, first(16), 1000) == 32);
    CHECK(place(machine, outside, shape, whole, 1000) == 264 - 32);
    machine.release(&inside, shape);
    CHECK(place(machine, inside, shape, whole & ~first(16), 1000) == 0);
    machine.release(&outside, shape);
    CHECK(machine.group_count() == 2);
    machine.remove_partition(first(16));
    CHECK(machine.group_count() == 1);
}

TEST(a_cluster_is_placed_whole_or_not_at_all) {
    Machine machine;
    Wave wave, other;
    const BlockShape shape = block_shape(1024, 16, 0);
    machine.add_partition(first(10));
    CHECK(place(machine, wave, shape, first(10), 100, 8) == 16);
    CHECK(place(machine, other, shape, first(10), 100, 8) == 0);
    CHECK(place(machine, other, shape, first(10), 100, 4) == 4);
}

TEST(the_fullest_SM_is_told) {
    Machine machine;
    Wave wave;
    unsigned deepest = 0;
    const BlockShape shape = block_shape(128, 16, 0);
    CHECK(machine.place(&wave, shape, whole, 133, 1, deepest) == 133);
    CHECK(deepest == 2);
}

TEST(any_mixture_of_grids_is_conserved) {
    Machine machine;
    machine.add_partition(first(96));
    machine.add_partition(first(32));
    std::uint64_t state = 1;
    const auto random = [&](std::uint64_t limit) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return (state >> 33) % limit;
    };
    struct Placed {
        Wave wave;
        BlockShape shape;
        std::uint64_t blocks;
    };
    std::vector<std::unique_ptr<Placed>> placed;
    std::uint64_t total = 0;
    for (int round = 0; round < 3000; ++round) {
        if (placed.size() > 6 || (!placed.empty() && random(2) == 0)) {
            const std::size_t index = random(placed.size());
            machine.release(&placed[index]->wave, placed[index]->shape);
            total -= placed[index]->blocks;
            placed.erase(placed.begin() + static_cast<std::ptrdiff_t>(index));
        } else {
            auto next = std::make_unique<Placed>();
            next->shape = block_shape(static_cast<unsigned>(1 + random(1024)), 16,
                                      static_cast<unsigned>(random(65536)));
            const SmSet allowed = random(3) == 0 ? first(96) : random(2) == 0 ? first(32) : whole;
            const std::uint64_t wanted = 1 + random(400);
            next->blocks = place(machine, next->wave, next->shape, allowed, wanted);
            CHECK(next->blocks <= wanted);
            total += next->blocks;
            if (next->blocks > 0) placed.push_back(std::move(next));
        }
        CHECK(machine.resident_blocks() == total);
    }
    for (const auto& each : placed) machine.release(&each->wave, each->shape);
    CHECK(machine.resident_blocks() == 0);
    CHECK(machine.group_count() == 3);
}
