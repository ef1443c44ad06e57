// How the core learns what is over: marks, who is woken by them, and how often it looks.
#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

// Waking a sleeper costs as much as several launches: only a step that somebody may wait for does it.
TEST(only_marks_that_were_asked_for_wake_the_tenant) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    uint32_t slow = 0, quick = 0;
    CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, slow), 0);
    CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, quick), 0);
    null_driver::record(true);
    launch(tenant, slow);
    rig.settle();
    const CUstream lane = launch_streams(null_driver::take_calls()).at(0);
    null_driver::record(false);
    null_driver::hold(lane);
    launch(tenant, slow);
    std::thread waiting([&] { CHECK_EQUAL(tenant->stream_synchronize(slow), 0); });
    rig.turn_until([&] { return __atomic_load_n(&tenant.outbox->waiters, __ATOMIC_ACQUIRE) == 1; });
    const auto wakes = [&] { return __atomic_load_n(&tenant.inbox->wakes, __ATOMIC_ACQUIRE); };
    const uint32_t before = wakes();
    for (int i = 0; i < 500; ++i) launch(tenant, quick);
    rig.settle();
    CHECK_EQUAL(wakes(), before);
    null_driver::release(lane);
    rig.turn_until([&] { return wakes() == before + 1; });
    waiting.join();
}

// A mark takes the dispatch thread time: while one is under way, what follows is not marked one by one. The
// GPU writes none that nobody asked for, and the tenant is told all the same.
TEST(a_stream_has_one_mark_under_way) {
    Rig rig;
    for (const int level : {0, 9}) {
        Tenant tenant = rig.ready(std::to_string(level), level);
        for (int i = 0; i < 40; ++i) {  // until it is known, so that no timer's event is counted
            launch(tenant);
            rig.settle();
        }
        hold_all(rig);
        null_driver::record(true);
        for (int i = 0; i < 5; ++i) {
            launch(tenant);
            rig.settle();
        }
        const auto calls = null_driver::take_calls();
        CHECK_EQUAL(number_of(calls, Function::cuLaunchKernel_), 5u);
        CHECK_EQUAL(number_of(calls, Function::cuEventRecord_), 1u);
        release_all(rig);
        rig.settle();  // the first mark is there: now the other four launches get theirs
        const auto later = null_driver::take_calls();
        CHECK_EQUAL(number_of(later, Function::cuEventRecord_), 1u);
        CHECK_EQUAL(number_of(calls, Function::cuStreamWriteValue64_) +
                        number_of(later, Function::cuStreamWriteValue64_),
                    0u);
        CHECK_EQUAL(tenant->channel().mark(0), 45u);
        null_driver::record(false);
    }
}

// More streams than there are events: the GPU writes what those without are at.
TEST(marks_without_an_event_are_written) {
    Rig rig;
    std::vector<Tenant> tenants;
    for (const char* name : {"a", "b", "c"}) tenants.push_back(rig.ready(name, 0));
    hold_all(rig);
    null_driver::record(true);
    for (Tenant& tenant : tenants) {
        for (int i = 0; i < 240; ++i) {
            uint32_t stream = 0;
            CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, stream), 0);
            launch(tenant, stream);
        }
        rig.settle();
    }
    CHECK_EQUAL(number_of(null_driver::take_calls(), Function::cuStreamWriteValue64_), 3 * 240u - 512u);
    null_driver::record(false);
    release_all(rig);
    for (int again = 0; again < 2; ++again) {  // the events are there again
        for (Tenant& tenant : tenants) rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
        for (Tenant& tenant : tenants) launch(tenant, 1);
    }
}

// Of a high session's launches that come faster than the loop takes them what is over is seen meanwhile,
// though a mark may be under way: the policy would take it for work in flight.
TEST(a_row_of_launches_has_marks) {
    Rig rig;
    Tenant high = rig.ready("high", 0);
    std::vector<Tenant> others;
    for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) others.push_back(rig.ready(name, 9));
    for (int i = 0; i < 40; ++i) {  // until it is known: then one launch in 65 has a timer's events
        launch(high);
        rig.settle();
    }
    hold_all(rig);
    for (int i = 0; i < 250; ++i) launch(high);
    for (Tenant& other : others) launch(other);
    null_driver::record(true);
    rig.turn(10);
    const auto calls = null_driver::take_calls();
    null_driver::record(false);
    unsigned unmarked = 0, most = 0, launched = 0;
    for (const auto& call : calls) {
        if (call.function == Function::cuEventRecord_) unmarked = 0;
        if (call.function != Function::cuLaunchKernel_) continue;
        ++launched;
        most = std::max(most, ++unmarked);
    }
    CHECK(launched > 200);
    CHECK(most <= 40);
    release_all(rig);
    rig.settle();
}

// However many streams have marks under way, looking at them leaves time for launches.
TEST(looks_are_few) {
    constexpr int streams = 200;
    Settings settings = hand_turned();
    settings.time_scale = 1000;  // a stream is looked at once a millisecond, were it the only one
    Rig rig(settings);
    Tenant tenant = rig.ready("a", 0);
    hold_all(rig);
    const uint64_t marked = null_driver::count(Function::cuEventRecord_);
    for (int i = 0; i < streams; ++i) {
        uint32_t stream = 0;
        CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, stream), 0);
        launch(tenant, stream);
    }
    rig.turn_until([&] { return null_driver::count(Function::cuEventRecord_) >= marked + streams; });
    const uint64_t looked = null_driver::count(Function::cuEventQuery_);
    const Nanoseconds begin = host_now();
    rig.turn_until([&] { return host_now() - begin > 20'000'000; });
    const uint64_t looks = null_driver::count(Function::cuEventQuery_) - looked;
    CHECK(looks <= 2 * streams);
    release_all(rig);
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
}

}  // namespace
