// High-priority programs that have more to launch than the core takes at a time: what that spares them, what
// holds them up, and what the policy is told of it.
#include <time.h>

#include <atomic>
#include <thread>

#include "rig.hpp"

// The time that all here go by is the tests' own: who asks for it takes a little, and the machine, which may
// have others to serve, none.
namespace {
std::atomic<int64_t> time_now{1'000'000'000'000};
void pass(int64_t nanoseconds) { time_now += nanoseconds; }
}  // namespace

extern "C" int clock_gettime(clockid_t, timespec* now) noexcept {
    const int64_t read = time_now.fetch_add(10);
    *now = {read / 1'000'000'000, read % 1'000'000'000};
    return 0;
}

using namespace fikit;
using namespace fikit::test;

namespace {

// How many gated launches come ahead of the last of a row of high ones, which is there with the fifth of
// them?
size_t gated_launches_ahead_of(unsigned row) {
    Settings settings = hand_turned();
    settings.policy = "fikit";
    settings.bounds.in_flight = settings.bounds.delay_least = 1'000'000'000;
    Rig rig(settings);
    Tenant low = rig.ready("low", 5), high = rig.ready("high", 0);
    for (int i = 0; i < 40; ++i) {  // until it is known
        launch(low);
        rig.settle();
    }
    uint64_t low_launches = 0;
    null_driver::set_on_launch([&] {
        if (++low_launches != 5) return;
        for (unsigned i = 0; i < row; ++i) launch(high, 0, 7);
        null_driver::record(true);
    });
    for (int i = 0; i < 200; ++i) launch(low);
    rig.settle();
    const auto calls = null_driver::take_calls();
    null_driver::set_on_launch(nullptr);
    size_t ahead = 0;
    for (const auto& call : calls) {
        if (call.function != Function::cuLaunchKernel_) continue;
        if (call.value != 7)
            ++ahead;
        else if (--row == 0)
            break;
    }
    return ahead;
}

// A launch of high priority is looked at after each gated one, however many of those fit the bound: the
// dispatch thread's own time must not become its delay. Nor does it where a program launches faster than
// that.
TEST(high_priority_is_not_kept_waiting_by_the_gate) {
    for (const unsigned row : {1u, 100u}) CHECK(gated_launches_ahead_of(row) <= 3);
}

// What lies in the ring because as much as may be is in flight comes later than by itself: that is a delay,
// too.
TEST(what_finds_no_room_is_late) {
    Settings settings = hand_turned();
    settings.in_flight_limit = 32;
    settings.policy = "fikit";
    Rig rig(settings);
    Tenant high = rig.ready("high", 0), low = rig.ready("low");
    for (size_t at = 8; at < rig.streams().size(); ++at) null_driver::hold(rig.streams()[at]);
    launch(low);  // the streams before are those of the high level
    rig.turn(20);
    for (int row = 0; row < 8; ++row) {  // until it is known to wait, and after how many
        for (int i = 0; i < 100; ++i) launch(high);
        rig.while_turning([&] { CHECK_EQUAL(high->synchronize(), 0); });
    }
    hold_all(rig);
    for (int i = 0; i < 100; ++i) launch(high);
    rig.settle();  // by now it has found that there is no room
    std::thread releaser([&] {
        // Who comes to wait for what is over was not delayed.
        while (__atomic_load_n(&high.outbox->waiters, __ATOMIC_ACQUIRE) == 0) std::this_thread::yield();
        pass(30'000'000);
        release_all(rig);
    });
    rig.while_turning([&] { CHECK_EQUAL(high->synchronize(), 0); });
    releaser.join();
    Snapshot snapshot;
    rig.while_turning([&] { snapshot = rig.core().snapshot(); });
    CHECK(snapshot.sessions[0].gate.delays.worst > 20'000'000);
}

// The bound is what launches, of 3 us each, spare an unmodified program.
struct Sparing : Rig {
    static Settings settings() {
        Settings settings = hand_turned();
        settings.policy = "fikit";
        settings.bounds.delay_least = 1;
        settings.bounds.delay_share = 1e-6;
        return settings;
    }
    Sparing() : Rig(settings(), 4, 2, [] { pass(3000); }) { unmodified = true; }
    // On the tenant's steps, which launch so and wait for it.
    template <class Launches>
    Nanoseconds bound_of(Tenant& tenant, Launches launches) {
        for (int step = 0; step < 60; ++step) {
            launches();
            while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
            pass(1'000'000);
        }
        Snapshot snapshot;
        while_turning([&] { snapshot = core().snapshot(); });
        CHECK(snapshot.sessions.back().gate.steps > 50);
        return snapshot.sessions.back().gate.bound;
    }
};

// What launches spare a program is the time that it goes on meanwhile: where it has them ready faster than
// they can be issued that is none.
TEST(a_row_of_launches_spares_nothing) {
    Sparing rig;
    null_driver::set_elapsed(0.01f);  // kernels are short: the GPU is not what anything waits for
    for (const bool in_a_row : {false, true}) {
        Tenant tenant = rig.ready(in_a_row ? "row" : "single", 0);
        const Nanoseconds bound = rig.bound_of(tenant, [&] {
            for (int i = 0; i < 100; ++i) {
                launch(tenant);
                if (!in_a_row) rig.turn();
            }
        });
        CHECK(in_a_row ? bound < 100 : bound > 1000);
    }
}

// The policy is told on which stream a launch is: what the GPU is behind with on another is in nobody's way
// there, so the launches before a wait for both spare their program something.
TEST(streams_of_a_high_session_are_told_apart) {
    Sparing rig;
    null_driver::set_elapsed(10.0f);  // kernels are long
    for (const bool apart : {false, true}) {
        Tenant tenant = rig.ready(apart ? "two streams" : "one stream", 0);
        uint32_t one = 0, other = 0;
        rig.while_turning([&] {
            CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, one), 0);
            CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, other), 0);
        });
        const Nanoseconds bound = rig.bound_of(tenant, [&] {
            for (int i = 0; i < 50; ++i) {
                launch(tenant, one);
                rig.turn();
            }
            launch(tenant, apart ? other : one);
        });
        CHECK(apart ? bound > 1000 : bound < 100);
    }
}

}  // namespace
