// What the core tells of itself.
#include <sys/resource.h>

#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

constexpr Nanoseconds while_busy = 5'000'000, while_idle = 50'000'000;

int64_t busy(Rig& rig) {
    int64_t told = 0;
    rig.while_turning([&] { told = rig.core().snapshot().busy_ns; });
    return told;
}

void turn_for(Rig& rig, Nanoseconds time) {
    const Nanoseconds end = host_now() + time;
    rig.turn_until([&] { return host_now() >= end; });
}

// Work in flight is time, whoever's it is and wherever its end is seen; memory that goes away later is none.
void busy_is_while_work_is_in_flight(int level) {
    Rig rig;
    Tenant tenant = rig.ready("a", level);
    uint64_t address = 0, charged = 0;
    rig.settle();
    for (int round = 1; round <= 2; ++round) {
        rig.while_turning([&] { CHECK_EQUAL(tenant->memory_allocate(4u << 20, address, charged), 0); });
        const int64_t before = busy(rig);
        hold_all(rig);
        launch(tenant);
        rig.take(tenant);
        turn_for(rig, while_busy);
        const int64_t during = busy(rig);
        CHECK(during - before >= while_busy / 2);
        release_all(rig);
        rig.settle();
        const int64_t after = busy(rig);
        CHECK(after >= during);
        turn_for(rig, while_idle);
        CHECK_EQUAL(tenant->memory_free(address), 0);
        rig.settle();
        CHECK_EQUAL(busy(rig), after);
    }
}

// Each time it may wait long for a processor on a busy machine, and who asks takes it to hang.
TEST(who_asks_is_woken_once_however_many_sessions_there_are) {
    constexpr size_t sessions = 32;
    Rig rig;
    std::vector<Tenant> tenants;
    for (size_t i = 0; i < sessions; ++i) tenants.push_back(rig.attach("s" + std::to_string(i)));
    size_t told = 0;
    long waits = 0;
    rig.while_turning([&] {
        rusage before, after;
        getrusage(RUSAGE_THREAD, &before);
        told = rig.core().snapshot().sessions.size();
        getrusage(RUSAGE_THREAD, &after);
        waits = after.ru_nvcsw - before.ru_nvcsw;
    });
    CHECK_EQUAL(told, sessions);
    CHECK(waits < long{sessions} / 4);
}

TEST(busy_with_high_work) { busy_is_while_work_is_in_flight(0); }
TEST(busy_with_gated_work) { busy_is_while_work_is_in_flight(5); }

}  // namespace
