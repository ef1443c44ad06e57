// What the core keeps: kernel profiles, device memory, lanes.
#include <map>
#include <random>

#include "arena.hpp"
#include "check.hpp"
#include "lanes.hpp"
#include "null_driver.hpp"
#include "profile.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

void durations_give_median_and_percentile() {
    KernelEntry entry;
    CHECK(!entry.known());
    for (const Nanoseconds duration : {300, 100, 200}) entry.measured(duration);
    CHECK(entry.known());
    CHECK_EQUAL(entry.median, 200u);
    CHECK_EQUAL(entry.p95, 300u);
    KernelEntry many;
    for (Nanoseconds duration = 1; duration <= 40; ++duration) many.measured(duration * 1000);
    CHECK_EQUAL(many.median, 32'000u);  // of the last sixteen: 25 to 40
    CHECK_EQUAL(many.p95, 40'000u);
    KernelEntry extreme;
    extreme.measured(-5);
    CHECK_EQUAL(extreme.median, 1u);
    extreme.measured(int64_t{1} << 40);
    CHECK_EQUAL(extreme.p95, UINT32_MAX);
    many.waves = 4;
    many.tell();
    CHECK_EQUAL(many.work.expected, 32'000);
    CHECK_EQUAL(many.work.longest, 40'000);
    CHECK_EQUAL(many.work.shortest, 26'000);
    CHECK_EQUAL(many.work.block, 10'000);
    many.waves = 0;  // not computed yet
    many.tell();
    CHECK_EQUAL(many.work.block, 40'000);
}

// New kernels are measured often, settled ones ever more rarely, and one that changes is looked at again.
void sampling_becomes_rare() {
    KernelEntry entry;
    const auto samples_in = [&](int launches, Nanoseconds duration) {
        int samples = 0;
        for (int launch = 0; launch < launches; ++launch)
            if (entry.sample_now()) {
                ++samples;
                entry.measured(duration);
            }
        return samples;
    };
    CHECK_EQUAL(samples_in(3, 10'000), 3);
    CHECK(samples_in(10'000, 10'000) < 60);
    CHECK_EQUAL(entry.interval, KernelEntry::rarest);
    samples_in(5000, 50'000);
    CHECK_EQUAL(entry.median, 50'000u);
}

void a_full_profile_refuses_new_kernels() {
    Profile profile;
    bool fresh = false;
    KernelEntry* first = nullptr;
    for (uint32_t grid = 1; grid <= Profile::capacity / 2; ++grid) {
        KernelShape shape;
        shape.grid[0] = grid;
        KernelEntry* entry = profile.find(Profile::key_of(77, shape), fresh);
        CHECK(entry != nullptr && fresh);
        if (first == nullptr) first = entry;
    }
    KernelShape shape;
    shape.grid[0] = 1;
    CHECK(profile.find(Profile::key_of(77, shape), fresh) == first);
    CHECK(!fresh);
    shape.grid[0] = Profile::capacity;
    CHECK(profile.find(Profile::key_of(77, shape), fresh) == nullptr);
    first->measured(5);
    profile.forget();
    CHECK_EQUAL(first->samples, 0u);
    CHECK(!first->known());
    uint32_t entries = 0;
    profile.each([&](const KernelEntry&) { ++entries; });
    CHECK_EQUAL(entries, Profile::capacity / 2);
}

void keys_tell_shapes_apart() {
    KernelShape shape;
    const uint64_t plain = Profile::key_of(1, shape);
    for (uint32_t* word : {&shape.grid[0], &shape.grid[1], &shape.grid[2], &shape.block[0], &shape.block[1],
                           &shape.block[2], &shape.shared_bytes}) {
        const uint32_t before = *word;
        *word = 7;
        CHECK(Profile::key_of(1, shape) != plain);
        *word = before;
    }
    CHECK(Profile::key_of(2, shape) != plain);
    CHECK(hash_bytes("abc", 3) != hash_bytes("abd", 3));
    CHECK(hash_bytes("abc\0", 4) != hash_bytes("abc", 3));
}

Driver null_table() {
    Driver driver;
    CHECK_EQUAL(driver.load(FIKIT_NULL_DRIVER), "");
    return driver;
}

// Random allocations against a model: no overlap, all within the arena, what is charged adds up, and in the
// end one hole is left.
void random_allocations_match_a_model() {
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
    for (const auto& [address, bytes] : model) CHECK_EQUAL(arena.release(address, 0), CUDA_SUCCESS);
    CHECK_EQUAL(arena.used_bytes(), 0u);
    CUdeviceptr address = 0;
    uint64_t charged = 0;
    CHECK_EQUAL(arena.allocate(size, 0, address, charged), CUDA_SUCCESS);
    CHECK_EQUAL(address, base);
    arena.clear();
    CHECK_EQUAL(null_driver::live().allocations, before.allocations);
}

void quotas_and_exhaustion() {
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

void lanes_keep_priorities_apart() {
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
    Lane* first = lanes.borrow(-5, 0);
    Lane* second = lanes.borrow(-5, 0);
    Lane* third = lanes.borrow(-5, 0);
    CHECK(first != second && third->users == 2 && third->cuda_priority == -5);
    CHECK(lanes.borrow(-4, 0)->stream == handle(3));  // the nearest lower urgency, never a higher one
    CHECK(lanes.borrow(-1, 0)->stream == handle(4));
    CHECK(lanes.borrow(-5, 96)->stream == handle(5));
    CHECK(lanes.borrow(-5, 64)->stream == handle(6));
    Lanes::give_back(first);
    CHECK(first == nullptr);
    Lanes::give_back(first);  // of nothing
    Lanes::give_back(third);
    CHECK(lanes.borrow(-5, 0)->stream == handle(1));
}

}  // namespace

int main(int count, char** arguments) {
    static constexpr Case cases[] = {
        CASE(durations_give_median_and_percentile), CASE(sampling_becomes_rare),
        CASE(a_full_profile_refuses_new_kernels),   CASE(keys_tell_shapes_apart),
        CASE(random_allocations_match_a_model),     CASE(quotas_and_exhaustion),
        CASE(lanes_keep_priorities_apart),
    };
    return run_cases(cases, count, arguments);
}
