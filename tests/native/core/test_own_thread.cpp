// The core on its own thread, with tenants on theirs: sleeping and waking, closing, many at once. What these
// can show is best seen under the thread sanitizer.
#include <poll.h>

#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

Settings own_thread() {
    Settings settings = hand_turned();
    settings.own_thread = true;
    settings.spin_host_ns = 20'000;  // so that it really goes to sleep
    return settings;
}

EndedSession next_ended(Core& core) {
    pollfd entry{core.notification(), POLLIN, 0};
    CHECK(poll(&entry, 1, 10'000) == 1);
    const auto ended = core.take_ended();
    CHECK_EQUAL(ended.size(), 1u);
    return ended.front();
}

TEST(doorbells_wake_a_parked_core) {
    Rig rig(own_thread());
    Tenant tenant;
    CHECK_EQUAL(rig.attach("a", 5, tenant), "");
    for (int round = 0; round < 20; ++round) {
        uint32_t event = 0;
        const auto parked = [&] {
            return (__atomic_load_n(&tenant.inbox->parked, __ATOMIC_ACQUIRE) & 1) != 0;
        };
        while (!parked()) std::this_thread::yield();
        CHECK_EQUAL(tenant->event_create(event), 0);
        CHECK_EQUAL(tenant->event_record(event, 0, false), 0);
        CHECK_EQUAL(tenant->event_synchronize(event, now_ns() + 5'000'000'000), 0);
    }
}

// A ring that is full is emptied by a quarter before its tenant is woken, not by a record.
TEST(a_flood_is_woken_seldom) {
    constexpr uint32_t count = 20'000, record_bytes = 128;
    const Settings settings = own_thread();
    Rig rig(settings);
    Tenant tenant = rig.ready("a", 0);
    const uint32_t before = __atomic_load_n(&tenant.inbox->wakes, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count; ++i) launch(tenant);
    const uint32_t wakes = __atomic_load_n(&tenant.inbox->wakes, __ATOMIC_ACQUIRE) - before;
    CHECK(wakes <= count * record_bytes / (settings.ring_bytes / 4));
    CHECK_EQUAL(tenant->synchronize(now_ns() + 5'000'000'000), 0);
}

TEST(a_closed_lifeline_ends_the_session) {
    Rig rig(own_thread());
    const auto before = null_driver::live();
    Tenant tenant = rig.ready("a");
    launch(tenant);
    tenant.producer.reset();
    const EndedSession ended = next_ended(rig.core());
    CHECK_EQUAL(ended.id, "a");
    CHECK_EQUAL(ended.reason, "closed");
    // Unregistering waits until nothing is in flight, and a spare channel takes the used one's place.
    const int64_t deadline = now_ns() + 5'000'000'000;
    while (null_driver::live().registrations != before.registrations && now_ns() < deadline)
        std::this_thread::yield();
    rig.turn_until([&] { return null_driver::live().registrations == before.registrations; });
}

TEST(many_tenants_at_once) {
    constexpr int tenants = 6, rounds = 200;
    Rig rig(own_thread());
    std::vector<Tenant> all;
    for (int number = 0; number < tenants; ++number)
        all.push_back(rig.ready(std::to_string(number), number % 2 == 0 ? 0 : 5));
    const uint64_t before = launches();
    std::vector<std::thread> threads;
    for (Tenant& tenant : all)
        threads.emplace_back([&tenant] {
            uint32_t stream = 0;
            CHECK_EQUAL(tenant->stream_create(0, 0, stream), 0);
            for (int round = 0; round < rounds; ++round) {
                uint64_t address = 0, charged = 0;
                if (round % 50 == 0) CHECK_EQUAL(tenant->memory_allocate(5000, address, charged), 0);
                for (int i = 0; i < 5; ++i) launch(tenant, i % 2 == 0 ? stream : 0);
                if (address != 0) CHECK_EQUAL(tenant->memory_free(address), 0);
                if (round % 10 == 0) CHECK_EQUAL(tenant->synchronize(now_ns() + 20'000'000'000), 0);
            }
            CHECK_EQUAL(tenant->stream_destroy(stream), 0);
            CHECK_EQUAL(tenant->synchronize(now_ns() + 20'000'000'000), 0);
        });
    std::thread control([&] {
        for (int i = 0; i < 30; ++i) {
            const int level = i % 3;
            const double weight = 1.0 + i;
            rig.core().change("1", {.level = level, .weight = weight});
            rig.core().snapshot();
            rig.core().take_profiles();
            rig.core().set_trace(i % 2 == 0);
            uint64_t cursor = 0, dropped = 0;
            rig.core().read_trace(cursor, 100, dropped);
        }
    });
    for (std::thread& thread : threads) thread.join();
    control.join();
    CHECK_EQUAL(launches() - before, static_cast<uint64_t>(tenants * rounds * 5));
}

}  // namespace
