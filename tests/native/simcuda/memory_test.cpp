// Physical pages, addresses and the heap.
#include "memory.hpp"

#include "check.hpp"
#include "model.hpp"

using namespace fikit::sim;

TEST(pages_are_taken_and_given_back) {
    PhysicalMemory memory(8 * model::page);
    CHECK(memory.valid());
    const auto first = memory.allocate(3 * model::page);
    const auto second = memory.allocate(2 * model::page);
    CHECK(first && second && memory.free() == 3 * model::page);
    memory.release(*first);
    // Six pages are free, in two runs of three.
    const auto third = memory.allocate(5 * model::page);
    CHECK(third && third->size() == 2);
    CHECK(!memory.allocate(2 * model::page));
    memory.release(*third);
    memory.release(*second);
    CHECK(memory.free() == memory.total());
    CHECK(memory.allocate(8 * model::page)->size() == 1);
}

TEST(the_heap_returns_all_it_took) {
    PhysicalMemory memory(64 * model::page);
    AddressSpace space;
    DeviceHeap heap(memory, space, 0);
    std::vector<std::pair<std::uint64_t, std::size_t>> held;
    for (std::size_t index = 0; index < 2000; ++index) {
        const std::size_t bytes = index % 97 == 0 ? 3 * model::page : 1 + index * 37 % 9000;
        const std::uint64_t address = heap.allocate(bytes);
        CHECK(address != 0 && address % 512 == 0);
        CHECK(space.covers(address, bytes));
        held.emplace_back(address, bytes);
        if (held.size() > 12) {
            heap.release(held.front().first, held.front().second);
            held.erase(held.begin());
        }
    }
    for (const auto& [address, bytes] : held) heap.release(address, bytes);
    CHECK(memory.free() == memory.total());
    CHECK(heap.allocate(65 * model::page) == 0);
}

TEST(access_is_checked) {
    std::byte room[64];
    AddressSpace space;
    space.map({1024, 64, room, Access::read});
    CHECK(space.at(1024, 8, false) == room);
    CHECK(space.at(1024, 8, true) == nullptr);
    CHECK(space.at(1080, 16, false) == nullptr);
    CHECK(space.at(1023, 1, false) == nullptr);
    CHECK(space.overlaps(1000, 30) && !space.overlaps(1000, 24) && !space.overlaps(1088, 8));
}
