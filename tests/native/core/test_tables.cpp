// What the core keeps: kernel names, device memory, lanes, the trace.
#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "arena.hpp"
#include "check.hpp"
#include "kernel_names.hpp"
#include "lanes.hpp"
#include "null_driver.hpp"
#include "trace.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

Driver null_table() {
    Driver driver;
    CHECK_EQUAL(driver.load(FIKIT_NULL_DRIVER), "");
    return driver;
}

// Random allocations against a model: no overlap, all within the arena, what is charged adds up, and in the
// end one hole is left.
TEST(random_allocations_match_a_model) {
    constexpr CUdeviceptr base = 1ull << 40;
    constexpr uint64_t size = 1ull << 30;
    null_driver::reset();
    const Driver driver = null_table();
    const auto before = null_driver::live();
    Arena arena(driver, 0, base, size);
    std::mt19937 random(7);
    std::map<CUdeviceptr, uint64_t> model;
    for (int step = 0; step < 20'000; ++step) {
        if (model.empty() || random() % 5 < 3) {
            const uint64_t wanted =
                random() % 4 == 0 ? 1 + random() % (64u << 20) : 1 + random() % (256u << 10);
            CUdeviceptr address = 0;
            uint64_t charged = 0;
            const CUresult result = arena.allocate(wanted, 0, address, charged);
            if (result == CUDA_ERROR_OUT_OF_MEMORY) continue;
            CHECK_EQUAL(result, CUDA_SUCCESS);
            CHECK(charged >= wanted && address % Arena::small_align == 0);
            CHECK(address >= base && address + charged <= base + size);
            const auto next = model.lower_bound(address);
            CHECK(next == model.end() || address + charged <= next->first);
            if (next != model.begin()) CHECK(std::prev(next)->first + std::prev(next)->second <= address);
            model[address] = charged;
        } else {
            auto chosen = model.lower_bound(base + random() % size);
            if (chosen == model.end()) chosen = model.begin();
            CHECK_EQUAL(arena.release(chosen->first, step), CUDA_SUCCESS);
            CHECK_EQUAL(arena.release(chosen->first, step), CUDA_ERROR_INVALID_VALUE);  // twice
            model.erase(chosen);
        }
        uint64_t charged = 0;
        for (const auto& [address, bytes] : model) charged += step % 100 == 0 ? bytes : 0;
        CHECK(arena.used_bytes() >= charged);
        CHECK_EQUAL(null_driver::live().mapped_bytes - before.mapped_bytes,
                    arena.used_bytes() + arena.kept_bytes());
        if (random() % 50 == 0) arena.trim(random() % 2 == 0 ? INT64_MAX : step - 100);
    }
    std::vector<CUdeviceptr> left;
    for (const auto& [address, bytes] : model) left.push_back(address);
    CHECK_EQUAL(arena.released_by(left), arena.used_bytes());
    std::shuffle(left.begin(), left.end(), random);
    while (!left.empty()) {
        const auto most = static_cast<std::ptrdiff_t>(std::min<size_t>(left.size(), 1 + random() % 40));
        const uint64_t used = arena.used_bytes();
        const std::vector<CUdeviceptr> some(left.end() - most, left.end());
        const uint64_t expected = arena.released_by(some);
        for (const CUdeviceptr address : some) CHECK_EQUAL(arena.release(address, 0), CUDA_SUCCESS);
        CHECK_EQUAL(used - arena.used_bytes(), expected);
        left.resize(left.size() - some.size());
    }
    CHECK_EQUAL(arena.used_bytes(), 0u);
    CUdeviceptr address = 0;
    uint64_t charged = 0;
    CHECK_EQUAL(arena.allocate(size, 0, address, charged), CUDA_SUCCESS);
    CHECK_EQUAL(address, base);
    arena.clear();
    CHECK_EQUAL(null_driver::live().allocations, before.allocations);
}

TEST(quotas_and_exhaustion) {
    null_driver::reset();
    const Driver driver = null_table();
    Arena arena(driver, 0, 1ull << 40, 8u << 20);
    CUdeviceptr address = 0, small = 0;
    uint64_t charged = 0;
    CHECK_EQUAL(arena.allocate(0, 0, address, charged), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(arena.allocate(UINT64_MAX, 0, address, charged), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(arena.allocate(100, 1u << 20, address, charged), CUDA_ERROR_OUT_OF_MEMORY);  // below a slab
    CHECK_EQUAL(arena.allocate(100, 2u << 20, small, charged), CUDA_SUCCESS);
    CHECK_EQUAL(charged, 512u);
    CHECK_EQUAL(arena.allocate(512, 2u << 20, address, charged), CUDA_SUCCESS);  // of the same slab
    CHECK_EQUAL(address, small + 512);
    CHECK_EQUAL(arena.used_bytes(), Arena::granule);
    CHECK_EQUAL(arena.allocate(3u << 20, 4u << 20, address, charged), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(arena.allocate(7u << 20, 0, address, charged), CUDA_ERROR_OUT_OF_MEMORY);  // addresses
    CHECK_EQUAL(arena.release(small + 64, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(arena.release(small + (4u << 20), 0), CUDA_ERROR_INVALID_VALUE);
    for (const auto function : {null_driver::Function::cuMemCreate_, null_driver::Function::cuMemMap_,
                                null_driver::Function::cuMemSetAccess_}) {
        const auto before = null_driver::live();
        null_driver::fail(function, CUDA_ERROR_OUT_OF_MEMORY, 0, 1);
        CHECK_EQUAL(arena.allocate(4u << 20, 0, address, charged), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQUAL(null_driver::live().allocations, before.allocations);
        CHECK_EQUAL(null_driver::live().mappings, before.mappings);
    }
    CHECK_EQUAL(arena.allocate(6u << 20, 0, address, charged), CUDA_SUCCESS);  // nothing was lost
}

CUstream handle(uintptr_t number) { return reinterpret_cast<CUstream>(number); }

TEST(lanes_keep_priorities_apart) {
    Lanes lanes;
    lanes.add(handle(1), -5, 0);
    lanes.add(handle(2), -5, 0);
    lanes.add(handle(3), -2, 0);
    lanes.add(handle(4), 0, 0);
    CHECK_EQUAL(lanes.partitions().size(), 0u);
    lanes.add(handle(6), 0, 64);
    lanes.add(handle(5), 0, 96);
    CHECK(lanes.partitions() == (std::vector<uint32_t>{96, 64}));
    CHECK_EQUAL(lanes.greatest_priority(), -5);
    const auto busier = [&](int priority, int least, uint32_t multiprocessors = 0) {
        Lane* lane = lanes.choose(priority, least, multiprocessors);
        ++lane->busy;
        return lane->stream;
    };
    CHECK(lanes.choose(-5, -4, 0)->stream == handle(1) && lanes.choose(-5, -4, 0)->stream == handle(1));
    CHECK(busier(-5, -4) == handle(1) && busier(-5, -4) == handle(2));
    CHECK(busier(-5, -4) == handle(1));                   // not of less than is allowed, though that is idle
    CHECK(lanes.choose(-4, -4, 0)->stream == handle(3));  // unless there is no other; never of a higher one
    CHECK(busier(-2, 0) == handle(3) && busier(-2, 0) == handle(4));  // what is idle, of a lower urgency, too
    CHECK(busier(-2, 0) == handle(3));                                // the nearest of those that are as busy
    CHECK(lanes.choose(-1, 0, 0)->stream == handle(4));
    CHECK(lanes.choose(-5, -4, 96)->stream == handle(5));
    CHECK(lanes.choose(-5, 0, 64)->stream == handle(6));
}

TEST(names_are_found_again_and_bounded) {
    KernelNames names;
    const uint32_t first = names.index_of({1, "kernel"});
    CHECK(first != KernelNames::unnamed);
    CHECK_EQUAL(names.index_of({1, "kernel"}), first);
    CHECK(names.index_of({2, "kernel"}) != first);
    CHECK_EQUAL(names[first].function, "kernel");
    for (uint64_t module = 0; module < 2 * KernelNames::most; ++module) names.index_of({module, "k"});
    CHECK_EQUAL(names.size(), KernelNames::most);
    CHECK_EQUAL(names.index_of({0, "new"}), KernelNames::unnamed);
    CHECK_EQUAL(names.index_of({1, "kernel"}), first);
    KernelNames long_ones;
    const std::string text(1u << 20, 'x');
    for (uint64_t module = 0; module < 64; ++module) long_ones.index_of({module, text});
    CHECK_EQUAL(long_ones.size(), 1 + (KernelNames::most_bytes >> 20));
}

TEST(readers_of_a_trace_have_their_own_places) {
    Trace trace;
    trace.make_room();
    trace.start();
    const auto add = [&](uint32_t number) {
        TraceRecord record;
        record.stream = number;
        trace.add(record);
    };
    uint64_t one = trace.cursor(), dropped = 1;
    add(1);
    uint64_t other = trace.cursor();
    add(2);
    CHECK_EQUAL(trace.read(one, 10, dropped).size(), 2u);
    CHECK_EQUAL(dropped, 0u);
    CHECK_EQUAL(trace.read(one, 10, dropped).size(), 0u);
    const auto later = trace.read(other, 10, dropped);
    CHECK_EQUAL(later.size(), 1u);
    CHECK_EQUAL(later[0].stream, 2u);
    for (uint32_t number = 0; number < Trace::capacity + 5; ++number) add(number);
    CHECK_EQUAL(trace.read(one, 3, dropped).front().stream, 5u);
    CHECK_EQUAL(dropped, 5u);
    uint64_t beyond = UINT64_MAX;
    CHECK_EQUAL(trace.read(beyond, 10, dropped).size(), 0u);
    CHECK_EQUAL(beyond, trace.cursor());
}

// What a reader gets is whole and in order, or counted as dropped, while another thread overwrites it.
TEST(a_trace_is_read_while_it_is_written) {
    Trace trace;
    trace.make_room();
    std::atomic<bool> over{false};
    std::thread writer([&] {
        for (uint64_t number = 0; number < 6 * Trace::capacity; ++number) {
            TraceRecord record;
            record.stream = record.name = record.multiprocessors = static_cast<uint32_t>(number);
            record.bytes = record.blocks = number;
            trace.add(record);
        }
        over = true;
    });
    uint64_t cursor = 0, expected = 0;
    for (bool last = false; !last;) {
        last = over;
        uint64_t dropped = 0;
        for (const TraceRecord& record : trace.read(cursor, SIZE_MAX, dropped)) {
            expected += std::exchange(dropped, 0);
            CHECK_EQUAL(record.bytes, expected);
            CHECK_EQUAL(record.blocks, expected);
            CHECK_EQUAL(record.stream, static_cast<uint32_t>(expected));
            CHECK_EQUAL(record.name, record.stream);
            CHECK_EQUAL(record.multiprocessors, record.stream);
            ++expected;
        }
        expected += dropped;
        CHECK_EQUAL(cursor, expected);
    }
    writer.join();
    CHECK_EQUAL(cursor, 6 * Trace::capacity);
}

}  // namespace
