// What a pool says of its memory. The integration test pool_rules holds what an H200 said.
#include "pool_room.hpp"

#include <map>

#include "check.hpp"

using fikit::PoolRoom;

namespace {

constexpr std::uint64_t mib = 1 << 20, chunk = PoolRoom::chunk;

struct Room : PoolRoom {
    explicit Room(std::uint64_t most = 0) { limit(most); }
    ~Room() { clear(); }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

    static constexpr std::uint64_t none = ~std::uint64_t{0};
    std::uint64_t add(std::uint64_t bytes) {
        std::uint64_t place = 0;
        return PoolRoom::add(bytes, place) ? place : none;
    }
};

}  // namespace

TEST(a_pool_grows_by_chunks_and_keeps_what_it_may) {
    Room room;
    const std::uint64_t first = room.add(20 * mib), second = room.add(20 * mib);
    CHECK(first == 0 && second == 20 * mib);
    CHECK(room.used() == 40 * mib && room.reserved() == 2 * chunk);
    room.remove(second);
    room.trim(2 * chunk);
    CHECK(room.reserved() == 2 * chunk);
    room.trim(2 * chunk - 1);
    CHECK(room.reserved() == chunk);
    room.trim(0);
    CHECK(room.reserved() == chunk && room.used() == 20 * mib);
    room.remove(first);
    room.trim(0);
    CHECK(room.reserved() == 0 && room.used() == 0);
    CHECK(room.reserved_high() == 2 * chunk && room.used_high() == 40 * mib);
    room.forget_reserved_high();
    room.forget_used_high();
    CHECK(room.reserved_high() == 0 && room.used_high() == 0);
}

TEST(a_pool_is_limited_in_chunks) {
    Room room(chunk + 1);
    CHECK(room.add(2 * chunk) == 0);
    CHECK(room.add(1) == Room::none);
    room.remove(0);
    CHECK(room.add(20 * mib) == 0 && room.add(30 * mib) == 20 * mib && room.add(15 * mib) == Room::none);
    CHECK(room.used() == 50 * mib);
}

TEST(an_idle_chunk_serves_elsewhere) {
    Room room(2 * chunk);
    CHECK(room.add(40 * mib) == 0 && room.add(mib) == 40 * mib);
    room.remove(0);
    // The first chunk is idle; what fits only behind the second takes its memory.
    CHECK(room.add(41 * mib) == 41 * mib);
    CHECK(room.reserved() == 2 * chunk);
    CHECK(room.add(mib) == Room::none);
}

TEST(what_is_not_to_be_had_leaves_nothing) {
    Room room;
    const std::uint64_t first = room.add(40 * mib);
    CHECK(room.add(40 * mib) == 40 * mib);
    room.remove(first);
    CHECK(room.reserved() == 3 * chunk);
    room.undo(room.add(400 * mib));
    CHECK(room.reserved() == 3 * chunk && room.used() == 40 * mib);
}

TEST(of_free_pieces_the_smallest_is_taken_and_then_the_oldest) {
    Room room;
    for (const std::uint64_t size : {3, 1, 2, 1, 2, 1}) room.add(size * mib);
    room.remove(7 * mib);
    room.remove(4 * mib);
    room.remove(0);
    CHECK(room.add(2 * mib) == 7 * mib);
    CHECK(room.add(2 * mib) == 4 * mib);
    CHECK(room.add(2 * mib) == 0);
}

TEST(a_larger_piece_with_memory_goes_before_a_smaller_one_without) {
    for (const bool smaller_first : {true, false}) {
        Room room;
        const std::uint64_t sizes[] = {smaller_first ? 40 * mib : 60 * mib, mib,
                                       smaller_first ? 60 * mib : 40 * mib, mib};
        std::uint64_t at[4];
        for (unsigned piece = 0; piece < 4; ++piece) at[piece] = room.add(sizes[piece]);
        const std::uint64_t smaller = at[smaller_first ? 0 : 2], larger = at[smaller_first ? 2 : 0];
        room.remove(smaller);
        room.trim(0);
        room.remove(larger);
        CHECK(room.add(30 * mib) == larger);
    }
}

// Its ends are what is free beside it; what comes last leaves nothing behind.
TEST(what_is_freed_is_one_with_what_is_free_beside_it) {
    Room room;
    for (unsigned piece = 0; piece < 5; ++piece) CHECK(room.add(mib) == piece * mib);
    room.remove(mib);
    room.remove(3 * mib);
    CHECK(room.add(2 * mib) == 5 * mib);
    room.remove(2 * mib);
    CHECK(room.add(3 * mib) == mib);
    room.remove(4 * mib);
    room.remove(5 * mib);
    CHECK(room.add(8 * mib) == 4 * mib);
}

TEST(sizes_that_nobody_has_are_refused) {
    for (const std::uint64_t most : {std::uint64_t{0}, chunk, ~std::uint64_t{0}}) {
        Room room(most);
        for (const std::uint64_t bytes : {~std::uint64_t{0}, ~std::uint64_t{0} - 511, std::uint64_t{1} << 63,
                                          PoolRoom::largest + 1, std::uint64_t{0}})
            CHECK(room.add(bytes) == Room::none);
        CHECK(room.used() == 0 && room.add(1) == 0);
        room.remove(512);
        room.remove(0);
        room.remove(0);
        CHECK(room.used() == 0);
    }
}

TEST(pieces_never_overlap_and_nothing_is_lost) {
    Room room(20 * chunk);
    std::map<std::uint64_t, std::uint64_t> held;
    std::uint64_t random = 1, used = 0;
    const auto next = [&](std::uint64_t below) {
        random = random * 6364136223846793005 + 1442695040888963407;
        return (random >> 33) % below;
    };
    for (unsigned turn = 0; turn < 5000; ++turn) {
        if (next(5) < 2 && !held.empty()) {
            const auto gone = std::next(held.begin(), static_cast<std::ptrdiff_t>(next(held.size())));
            room.remove(gone->first);
            used -= gone->second;
            held.erase(gone);
            room.trim(next(3) * 10 * chunk);
        } else {
            const std::uint64_t bytes = 1 + next(next(2) == 0 ? 2 * chunk : 2000), place = room.add(bytes);
            if (place == Room::none) continue;
            used += bytes;
            const auto after = held.emplace(place, bytes).first;
            CHECK(std::next(after) == held.end() || std::next(after)->first >= place + bytes);
            CHECK(after == held.begin() || std::prev(after)->first + std::prev(after)->second <= place);
        }
        CHECK(room.used() == used && room.reserved() >= used && room.reserved() <= 20 * chunk);
    }
    while (!held.empty()) {
        room.remove(held.begin()->first);
        held.erase(held.begin());
    }
    room.trim(0);
    CHECK(room.used() == 0 && room.reserved() == 0);
}
