// Streams that wait for a word of the tenant's: what is behind them waits, and nobody else does.
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "raw_tenant.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

// Pinned memory whose words streams wait for.
struct Words {
    uint32_t handle = 0;
    HostBuffer buffer{};
    Words(Rig& rig, Tenant& tenant) {
        rig.while_turning([&] { CHECK_EQUAL(tenant->host_allocate(4096, handle, buffer), 0); });
    }
    uint64_t& operator[](size_t index) { return reinterpret_cast<uint64_t*>(buffer.address)[index]; }
    void write(size_t index, uint64_t value) { __atomic_store_n(&(*this)[index], value, __ATOMIC_RELEASE); }
    fikit_value entry(size_t index, uint64_t value, CUstreamBatchMemOpType type, uint32_t flags) const {
        return {static_cast<uint32_t>(type), flags, handle, 0, index * 8, value};
    }
    fikit_value until(size_t index, uint64_t value, uint32_t flags = CU_STREAM_WAIT_VALUE_GEQ) const {
        return entry(index, value, CU_STREAM_MEM_OP_WAIT_VALUE_64, flags);
    }
    fikit_value put(size_t index, uint64_t value) const {
        return entry(index, value, CU_STREAM_MEM_OP_WRITE_VALUE_64, 0);
    }
};

void submit(Tenant& tenant, uint32_t stream, const fikit_value& value) {
    CHECK_EQUAL(tenant->values(stream, &value, 1), 0);
}

uint32_t new_stream(Tenant& tenant) {
    uint32_t stream = 0;
    CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, stream), 0);
    return stream;
}

TEST(what_is_behind_a_wait_waits_for_the_word) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    Words words(rig, tenant);
    const uint32_t stream = new_stream(tenant);
    const fikit_value list[] = {words.put(0, 1), words.until(1, 5), words.put(0, 2)};
    CHECK_EQUAL(tenant->values(stream, list, 3), 0);
    launch(tenant, stream);
    rig.turn_until([&] { return words[0] == 1; });
    rig.settle();
    CHECK_EQUAL(tenant->stream_query(stream), status::not_ready);
    words.write(1, 6);
    rig.while_turning([&] { CHECK_EQUAL(tenant->stream_synchronize(stream), 0); });
    CHECK_EQUAL(words[0], 2u);
}

// More streams wait than there are lanes of the kind, and others wait for them through events and the legacy
// default stream; all of the other session's streams go on.
TEST(endless_waits_hold_up_nobody_else) {
    Rig rig(hand_turned(), 2);
    Tenant tenant = rig.ready("a"), other = rig.ready("b");
    Words words(rig, tenant);
    const uint64_t waits_before = null_driver::count(Function::cuStreamWaitValue64_);
    launch(other);
    for (int i = 0; i < 12; ++i) {
        const uint32_t waits = new_stream(tenant), behind = new_stream(tenant);
        launch(tenant, behind);
        uint32_t event = 0;
        CHECK_EQUAL(tenant->event_create(event), 0);
        submit(tenant, waits, words.until(0, 1));
        launch(tenant, waits);
        CHECK_EQUAL(tenant->event_record(event, waits, false), 0);
        CHECK_EQUAL(tenant->event_wait(event, behind), 0);
        launch(tenant, behind);
        rig.settle();
        works(rig, other);
    }
    uint32_t ordered = 0;
    CHECK_EQUAL(tenant->stream_create(0, 0, ordered), 0);
    submit(tenant, ordered, words.until(0, 1));
    launch(tenant);  // behind it
    rig.settle();
    Tenant late = rig.ready("c");  // loads code, which waits for what runs
    works(rig, late);
    works(rig, other);
    CHECK_EQUAL(tenant->stream_query(0), status::not_ready);
    // Loading and freeing would wait for what waits on the GPU.
    CHECK_EQUAL(null_driver::count(Function::cuStreamWaitValue64_), waits_before);
    words.write(0, 1);
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(now_ns() + 5'000'000'000), 0); });
    works(rig, other);
    works(rig, tenant);
}

// A look at a word on the device takes driver calls: of however many sessions, a turn has few of them.
TEST(endless_waits_of_many_sessions_take_little_of_a_turn) {
    Rig rig;
    std::vector<Tenant> tenants;
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) tenants.push_back(rig.attach(name));
    for (Tenant& tenant : tenants) {
        uint64_t word = 0, charged = 0;
        rig.while_turning([&] { CHECK_EQUAL(tenant->memory_allocate(4096, word, charged), 0); });
        for (int i = 0; i < 16; ++i)
            submit(tenant, new_stream(tenant), {CU_STREAM_MEM_OP_WAIT_VALUE_64, 0, 0, 0, word, 1});
        rig.take(tenant);
    }
    uint64_t all = 0;
    for (int i = 0; i < 40; ++i) {
        const Nanoseconds begun = host_now();
        while (host_now() - begun < 1'000'000) {  // by then each may be looked at again
        }
        const uint64_t before = null_driver::count(Function::cuMemcpyDtoHAsync_);
        rig.turn();
        const uint64_t looks = null_driver::count(Function::cuMemcpyDtoHAsync_) - before;
        CHECK(looks <= 16);
        all += looks;
    }
    CHECK(all > 6 * 16);
}

// What waits counts as on the GPU once it no longer does.
TEST(what_waits_is_not_high_priority_work) {
    Rig rig;
    Tenant high = rig.ready("high", 0), low = rig.ready("low", 9);
    Words words(rig, high);
    submit(high, 0, words.until(0, 1));
    for (int i = 0; i < 10; ++i) launch(high);
    rig.settle();
    works(rig, low);
    words.write(0, 1);
    rig.while_turning([&] { CHECK_EQUAL(high->synchronize(now_ns() + 5'000'000'000), 0); });
}

// Two streams wait for different values of one word, and one for two in turn.
TEST(the_end_of_a_session_ends_its_waits) {
    Rig rig(hand_turned(), 2);
    Tenant other = rig.ready("b");
    {
        Tenant tenant = rig.ready("a");
        Words words(rig, tenant);
        const uint32_t one = new_stream(tenant), two = new_stream(tenant);
        submit(tenant, one, words.until(0, 11, CU_STREAM_WAIT_VALUE_EQ));
        submit(tenant, one, words.until(0, 12, CU_STREAM_WAIT_VALUE_EQ));
        submit(tenant, two, words.until(0, 13, CU_STREAM_WAIT_VALUE_EQ));
        launch(tenant, one);
        launch(tenant, two);
        rig.settle();
        rig.while_turning([&] { CHECK(rig.core().end("a", 999, "as the operator wished")); });
        CHECK_EQUAL(rig.wait_ended().error, 999);
    }
    works(rig, other);
}

// What it writes before it waits is no step, and may be behind another session's work that shares its lane.
TEST(the_end_of_a_session_waits_for_its_words) {
    Rig rig(hand_turned(), 1);
    Tenant other = rig.ready("b", 9);
    hold_all(rig);
    launch(other);
    Tenant tenant = rig.attach("a", 9);
    Words words(rig, tenant);
    const fikit_value list[] = {words.put(0, 1), words.until(1, 1)};
    CHECK_EQUAL(tenant->values(new_stream(tenant), list, 2), 0);
    rig.take(tenant);
    rig.while_turning([&] { CHECK(rig.core().end("a", 999, "as the operator wished")); });
    rig.settle();
    CHECK(rig.core().take_ended().empty());
    release_all(rig);
    CHECK_EQUAL(rig.wait_ended().id, "a");
    works(rig, other);
}

TEST(impossible_waits_are_refused) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    Words words(rig, tenant);
    const fikit_value wrong[] = {
        words.until(512, 0),
        words.put(512, 1),  // behind the end
        {CU_STREAM_MEM_OP_WRITE_VALUE_64, 0, words.handle, 0, 4, 1},
        {CU_STREAM_MEM_OP_WRITE_VALUE_64, 0, words.handle + 1, 0, 0, 1},
        {CU_STREAM_MEM_OP_WRITE_VALUE_64, 0, 0, 0, 1 << 20, 1},
        {99, 0, words.handle, 0, 0, 1},
    };
    for (const fikit_value& value : wrong) {
        submit(tenant, 0, value);
        CHECK_EQUAL(deferred(rig, tenant, CUDA_ERROR_INVALID_VALUE),
                    "stream memory operation: CUDA_ERROR_INVALID_VALUE (1)");
    }
    works(rig, tenant);
}

// The answer to a call that waited would keep the tenant's other threads from all calls, also those that lead
// to the end of the wait.
TEST(code_that_nothing_put_off_needs_is_unloaded_at_once) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    Words words(rig, tenant);
    const uint32_t stream = new_stream(tenant);
    const auto unload = [&] { CHECK_EQUAL(tenant->module_unload(1), 0); };
    submit(tenant, stream, words.until(0, 1));
    submit(tenant, stream, words.put(1, 1));
    rig.while_turning(unload);
    words.write(0, 1);
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(now_ns() + 5'000'000'000), 0); });
}

TEST(code_that_a_launch_put_off_needs_is_not_unloaded_before) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    Words words(rig, tenant);
    const uint32_t stream = new_stream(tenant);
    submit(tenant, stream, words.until(0, 1));
    launch(tenant, stream);
    rig.settle();
    rig.while_turning([&] {
        std::thread later([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            words.write(0, 1);
        });
        CHECK_EQUAL(tenant->module_unload(1), 0);
        CHECK_EQUAL(__atomic_load_n(&words[0], __ATOMIC_ACQUIRE), 1u);
        later.join();
    });
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(now_ns() + 5'000'000'000), 0); });
}

// Pinned memory that no work uses any more is given back whatever streams wait for, but for a word in it.
TEST(pinned_memory_is_freed_beside_a_wait) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    Words waited(rig, tenant), unused(rig, tenant);
    const uint64_t before = null_driver::count(Function::cuMemHostUnregister_);
    submit(tenant, new_stream(tenant), waited.until(0, 1));
    CHECK_EQUAL(tenant->host_free(waited.handle), 0);
    CHECK_EQUAL(tenant->host_free(unused.handle), 0);
    rig.turn_until([&] { return null_driver::count(Function::cuMemHostUnregister_) != before; });
    rig.settle();
    CHECK_EQUAL(null_driver::count(Function::cuMemHostUnregister_), before + 1);
}

TEST(memory_is_freed_in_its_stream_s_order_but_for_a_word_in_it) {
    constexpr uint64_t bytes = 4u << 20;
    Rig rig;
    Tenant tenant = rig.ready("a");
    const uint32_t held = new_stream(tenant), free = new_stream(tenant);
    const auto allocate = [&] {
        uint64_t address = 0, charged = 0;
        rig.while_turning([&] { CHECK_EQUAL(tenant->memory_allocate(bytes, address, charged), 0); });
        return address;
    };
    const uint64_t word = allocate(), one = allocate(), two = allocate();
    const auto before = null_driver::live().mapped_bytes;
    const auto freed = [&] { return before - null_driver::live().mapped_bytes; };
    uint64_t gate = 0;
    const auto kind = static_cast<uint32_t>(CU_STREAM_MEM_OP_WAIT_VALUE_64);
    submit(tenant, new_stream(tenant), {kind, CU_STREAM_WAIT_VALUE_EQ, 0, 0, word, 1});
    CHECK_EQUAL(tenant->close_gate(held, gate), 0);
    CHECK_EQUAL(tenant->memory_free(word, &free), 0);
    CHECK_EQUAL(tenant->memory_free(one, &held), 0);
    rig.settle();
    CHECK_EQUAL(freed(), 0u);
    CHECK_EQUAL(tenant->memory_free(two, &free), 0);
    rig.turn_until([&] { return freed() == bytes; });
    tenant->open_gate(held, gate);
    rig.turn_until([&] { return freed() == 2 * bytes; });
}

// The write of a word is no work, and may be behind another session's on the lane that they share. (The null
// driver has no memory of its own to write to, so here it is another one that is freed.)
TEST(memory_is_freed_once_its_words_are_written) {
    for (const bool in_order : {false, true}) {
        Rig rig(hand_turned(), 1);
        Tenant other = rig.ready("b", 9), tenant = rig.attach("a", 9);
        Words words(rig, tenant);
        const uint32_t stream = new_stream(tenant);
        uint64_t memory = 0, charged = 0;
        rig.while_turning([&] { CHECK_EQUAL(tenant->memory_allocate(4u << 20, memory, charged), 0); });
        hold_all(rig);
        launch(other);
        submit(tenant, stream, words.put(0, 1));
        CHECK_EQUAL(tenant->memory_free(memory, in_order ? &stream : nullptr), 0);
        rig.take(tenant);
        rig.settle();
        CHECK_EQUAL(memory_of(rig, "a"), charged);
        release_all(rig);
        rig.settle();
        CHECK_EQUAL(memory_of(rig, "a"), 0u);
    }
}

// Programs at random: fills on streams that host functions hold up, and that wait for each other through
// events and the legacy default stream. Whatever returns when, all is issued, in the order that it has.
TEST(nothing_overtakes_what_it_is_behind) {
    constexpr uint32_t streams = 6;  // 0 the legacy one, 1 and 2 ordered with it
    std::mt19937 random(7);
    Rig rig;
    RawTenant tenant(rig, "a", 0);
    const uint64_t memory = tenant.allocate(1 << 20);
    for (uint32_t stream = 1; stream < streams; ++stream)
        CHECK(tenant.stream_create(stream, stream > 2 ? FIKIT_STREAM_NON_BLOCKING : 0));
    std::array<uint64_t, streams> steps{};
    uint64_t number = 0;
    for (int round = 0; round < 60; ++round) {
        // Of each fill, which fills come before it.
        std::vector<std::set<uint64_t>> before;
        std::array<std::set<uint64_t>, streams> last;
        std::map<uint32_t, std::set<uint64_t>> recorded;
        const uint64_t first = number;
        const auto join = [](std::set<uint64_t>& to, const std::set<uint64_t>& from) {
            to.insert(from.begin(), from.end());
        };
        const auto order = [&](uint32_t stream) {
            if (stream == 0)
                for (const uint32_t other : {1u, 2u}) join(last[0], last[other]);
            else if (stream <= 2)
                join(last[stream], last[0]);
        };
        null_driver::record(true);
        for (unsigned records = 0; records < 60; ++records) {
            const auto stream = static_cast<uint32_t>(random() % streams);
            const auto event = static_cast<uint32_t>(100 * round) + static_cast<uint32_t>(random() % 8);
            ++steps[stream];
            order(stream);
            switch (random() % 6) {
                case 0:
                    CHECK(tenant.step(FIKIT_OP_HOST_FUNCTION, stream));
                    break;
                case 1:
                    if (recorded.contains(event)) {  // CUDA's events are renewed; here each is recorded once
                        --steps[stream];
                        break;
                    }
                    CHECK(tenant.event(FIKIT_OP_EVENT_RECORD, stream, event));
                    recorded[event] = last[stream];
                    break;
                case 2:
                    CHECK(tenant.event(FIKIT_OP_EVENT_WAIT, stream, event));
                    join(last[stream], recorded[event]);
                    break;
                default: {
                    fikit_fill fill{};
                    fill.record.stream = stream;
                    fill.device = memory;
                    fill.count = ++number;
                    fill.width = 1;
                    CHECK(tenant.write(FIKIT_OP_FILL, fill));
                    before.push_back(last[stream]);
                    last[stream] = {number};
                    join(last[stream], before.back());
                }
            }
            if (random() % 4 == 0) rig.turn(static_cast<int>(random() % 4));
        }
        std::vector<uint32_t> holding(streams);
        std::iota(holding.begin(), holding.end(), 0u);
        for (int turns = 0; turns < 400; ++turns) {
            const uint32_t stream = holding[random() % streams];
            const uint64_t mark = __atomic_load_n(
                reinterpret_cast<const uint64_t*>(reinterpret_cast<const uint8_t*>(tenant.inbox) +
                                                  FIKIT_MARKS_OFFSET + size_t{stream} * FIKIT_MARK_STRIDE),
                __ATOMIC_ACQUIRE);
            tenant.host_done(stream, mark);
            rig.turn(static_cast<int>(random() % 3));
        }
        for (uint32_t stream = 0; stream < streams; ++stream) tenant.host_done(stream, UINT64_MAX);
        rig.turn_until([&] { return tenant.is_read(); });
        rig.settle();
        for (uint32_t stream = 0; stream < streams; ++stream) tenant.host_done(stream, 0);
        null_driver::record(false);
        std::set<uint64_t> seen;
        for (const null_driver::Call& call : null_driver::take_calls()) {
            if (call.function != Function::cuMemsetD8Async_) continue;
            for (const uint64_t earlier : before[call.value - first - 1]) CHECK(seen.contains(earlier));
            seen.insert(call.value);
        }
        CHECK_EQUAL(seen.size(), number - first);
        CHECK(!tenant.ended());
    }
}

}  // namespace
