// Which pinned memory lies together. The integration test pinned_rules holds what an H200 said.
#include "pinned_chunks.hpp"

#include "check.hpp"

using fikit::PinnedChunks;

namespace {

constexpr unsigned portable = CU_MEMHOSTALLOC_PORTABLE, combined = CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr std::uint64_t chunk = 2 << 20;

struct Chunks : PinnedChunks {
    Chunks() = default;
    ~Chunks() { clear(); }
    Chunks(const Chunks&) = delete;
    Chunks& operator=(const Chunks&) = delete;

    unsigned add(std::uint64_t bytes, unsigned flags, const void* context = nullptr) {
        return PinnedChunks::add(context, bytes, flags, place);
    }
    std::uint64_t place = 0;
};

}  // namespace

TEST(all_of_a_chunk_is_as_portable_as_its_first) {
    Chunks chunks;
    CHECK(chunks.add(100, portable) == portable);
    const std::uint64_t first = chunks.place;
    CHECK(chunks.add(1, 0) == portable && chunks.place == first + 512);
    chunks.remove(first);
    CHECK(chunks.add(512, 0) == portable && chunks.place == first);
    chunks.remove(first);
    chunks.remove(first + 512);
    CHECK(chunks.add(100, 0) == 0 && chunks.place == first);
    CHECK(chunks.add(100, portable) == 0);
}

TEST(write_combined_memory_and_contexts_lie_apart) {
    Chunks chunks;
    const int context = 0;
    CHECK(chunks.add(100, portable) == portable);
    CHECK(chunks.add(100, combined) == combined);
    CHECK(chunks.add(100, combined | portable) == combined);
    CHECK(chunks.add(100, 0, &context) == 0);
    CHECK(chunks.add(100, 0) == portable);
}

TEST(what_does_not_fit_begins_a_chunk) {
    Chunks chunks;
    CHECK(chunks.add(chunk - 512, portable) == portable);
    const std::uint64_t first = chunks.place;
    CHECK(chunks.add(513, 0) == 0 && chunks.place == first + chunk);
    CHECK(chunks.add(512, 0) == portable && chunks.place == first + chunk - 512);
    // An empty one's place is the next one's, whoever needs it.
    chunks.remove(first);
    chunks.remove(first + chunk - 512);
    CHECK(chunks.add(100, combined) == combined && chunks.place == first);
    CHECK(chunks.add(chunk - 1, 0) == 0 && chunks.place == first + 2 * chunk);
}

TEST(large_pinned_memory_is_alone) {
    Chunks chunks;
    CHECK(chunks.add(100, portable) == portable);
    for (const std::uint64_t bytes : {chunk, ~std::uint64_t{0}})
        CHECK(chunks.add(bytes, 0) == 0 && chunks.place == 0);
    chunks.remove(0);
    CHECK(chunks.add(100, 0) == portable);
}
