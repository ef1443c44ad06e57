// The core end to end, turned by hand: what it issues, in which order, and what it refuses.
#include <set>

#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

// Position of the n-th call of the function on the stream (nullptr: any), or the number of calls.
size_t position(const std::vector<null_driver::Call>& calls, Function function, CUstream stream = nullptr,
                size_t skip = 0) {
    for (size_t at = 0; at < calls.size(); ++at)
        if (calls[at].function == function && (stream == nullptr || calls[at].stream == stream) &&
            skip-- == 0)
            return at;
    return calls.size();
}

TEST(launch_and_synchronize) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    const uint64_t before = launches();
    for (int i = 0; i < 1000; ++i) launch(tenant);
    rig.while_turning([&] { CHECK_EQUAL(tenant->stream_synchronize(0), 0); });
    CHECK_EQUAL(launches() - before, 1000u);
    rig.settle();
    rig.while_turning([&] {
        const Snapshot now = rig.core().snapshot();
        CHECK_EQUAL(now.sessions.size(), 1u);
        CHECK_EQUAL(now.sessions[0].usage.launches, 1000u);
    });
}

// The legacy default stream waits for the session's blocking streams and they for it, by an event each way;
// streams made non-blocking are left alone, and so are the streams of other sessions.
TEST(legacy_stream_orders_blocking_streams) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    Tenant other = rig.ready("b", 0);
    uint32_t blocking = 0, free_running = 0;
    CHECK_EQUAL(tenant->stream_create(0, 0, blocking), 0);
    CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, free_running), 0);
    rig.settle();
    hold_all(rig);
    null_driver::record(true);
    launch(tenant, blocking);
    launch(tenant, free_running);
    launch(other, 0);
    rig.turn(4);
    const auto lanes = launch_streams(null_driver::take_calls());
    CHECK_EQUAL(lanes.size(), 3u);
    CHECK(lanes[0] != lanes[1] && lanes[1] != lanes[2] && lanes[0] != lanes[2]);

    launch(tenant, 0);
    rig.turn(4);
    auto calls = null_driver::take_calls();
    const CUstream legacy = launch_streams(calls).at(0);
    CHECK_EQUAL(number_of(calls, Function::cuStreamWaitEvent_), 1u);
    const size_t recorded = position(calls, Function::cuEventRecord_, lanes[0]);
    const size_t waited = position(calls, Function::cuStreamWaitEvent_, legacy);
    CHECK(recorded < waited && waited < position(calls, Function::cuLaunchKernel_));
    CHECK_EQUAL(calls[recorded].subject, calls[waited].subject);

    launch(tenant, 0);  // nothing new on the blocking stream: no further event
    launch(tenant, blocking);
    launch(tenant, blocking);  // ordered behind the legacy stream already
    launch(tenant, free_running);
    rig.turn(4);
    calls = null_driver::take_calls();
    CHECK_EQUAL(number_of(calls, Function::cuStreamWaitEvent_), 1u);
    CHECK(position(calls, Function::cuStreamWaitEvent_, lanes[0]) <
          position(calls, Function::cuLaunchKernel_, lanes[0]));
    release_all(rig);
    rig.settle();
    // All done: nothing to be ordered behind.
    null_driver::take_calls();
    launch(tenant, 0);
    rig.settle();
    CHECK_EQUAL(number_of(null_driver::take_calls(), Function::cuStreamWaitEvent_), 0u);
}

// The order holds also when the session's priority changed, and with it all its lanes, while work is on.
TEST(legacy_order_survives_a_priority_change) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    uint32_t blocking = 0;
    CHECK_EQUAL(tenant->stream_create(0, 0, blocking), 0);
    rig.settle();
    hold_all(rig);
    null_driver::record(true);
    launch(tenant, blocking);
    rig.turn(4);
    const CUstream lane = launch_streams(null_driver::take_calls()).at(0);
    const int level = 3;
    rig.while_turning([&] { CHECK(rig.core().change("a", {.level = level})); });
    null_driver::take_calls();
    uint32_t event = 0;
    CHECK_EQUAL(tenant->event_create(event), 0);
    CHECK_EQUAL(tenant->event_record(event, 0, false), 0);  // of the legacy stream: behind the launch
    rig.turn(4);
    const auto calls = null_driver::take_calls();
    CHECK(position(calls, Function::cuEventRecord_, lane) < calls.size());
    CHECK_EQUAL(number_of(calls, Function::cuStreamWaitEvent_), 1u);
    CHECK_EQUAL(tenant->event_query(event), status::not_ready);
    release_all(rig);
    rig.settle();
    CHECK_EQUAL(tenant->event_query(event), 0);
}

// What each of the streams launched last went to.
std::vector<CUstream> lanes_of(Rig& rig, Tenant& tenant, const std::vector<uint32_t>& streams) {
    std::vector<CUstream> lanes;
    for (const uint32_t stream : streams) {
        null_driver::take_calls();
        launch(tenant, stream, 1);
        rig.take(tenant);
        rig.turn(4);
        const auto launched = launch_streams(null_driver::take_calls());
        lanes.insert(lanes.end(), launched.begin(), launched.end());
    }
    return lanes;
}

std::vector<uint32_t> free_running(Tenant& tenant, size_t number) {
    std::vector<uint32_t> streams(number);
    for (uint32_t& stream : streams)
        CHECK_EQUAL(tenant->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, stream), 0);
    return streams;
}

// A kernel that runs for long holds up no stream that had nothing in flight, whatever lane that used before.
TEST(streams_leave_a_lane_that_is_busy) {
    Rig rig(hand_turned(), 2);
    Tenant tenant = rig.ready("a", 0);
    const auto streams = free_running(tenant, 6);
    null_driver::record(true);
    lanes_of(rig, tenant, streams);
    rig.settle();
    const CUstream lane = lanes_of(rig, tenant, {streams[5]}).at(0);
    rig.settle();
    null_driver::hold(lane);
    launch(tenant, streams[5], 1);
    rig.take(tenant);
    for (size_t number = 0; number < 5; ++number) {
        launch(tenant, streams[number], 1);
        rig.while_turning([&] {
            CHECK_EQUAL(
                tenant->channel().wait_until([&] { return tenant->channel().mark(streams[number]) >= 2; },
                                             now_ns() + 1'000'000'000),
                0);
        });
    }
    null_driver::release(lane);
    rig.settle();
}

// Gated work of many streams has the lanes of lower levels, too; that of the highest level keeps to its own.
TEST(many_streams_have_idle_lanes_of_lower_levels) {
    for (const int level : {5, 0}) {
        Rig rig(hand_turned(), 2);
        Tenant tenant = rig.ready("a", level);
        const auto streams = free_running(tenant, 4);
        hold_all(rig);
        null_driver::record(true);
        const auto lanes = lanes_of(rig, tenant, streams);
        CHECK_EQUAL(lanes.size(), 4u);
        const std::set<CUstream> distinct(lanes.begin(), lanes.end());
        CHECK_EQUAL(distinct.size(), level == 0 ? 2u : 4u);
        release_all(rig);
        rig.settle();
        // One of its own level again, now that they are idle.
        CHECK(lanes_of(rig, tenant, {streams[3]}).at(0) == lanes[level == 0 ? 3 : 0]);
    }
}

TEST(impossible_launches_are_refused_by_name) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    const uint64_t before = launches();
    static constexpr uint64_t parameters[8] = {};
    const auto refused = [&](LaunchShape shape, Status error, const char* text) {
        CHECK_EQUAL(tenant->launch(shape, nullptr, parameters), 0);
        rig.while_turning([&] {
            CHECK_EQUAL(tenant->channel().wait_until([&] { return tenant->channel().mark(0) >= 1; },
                                                     now_ns() + 1'000'000'000),
                        0);
        });
        CHECK_STARTS(deferred(rig, tenant, error), text);
    };
    LaunchShape shape = shape_of(tenant.function);
    shape.grid[1] = 0;
    refused(shape, CUDA_ERROR_INVALID_VALUE, "launch of kernel: a grid dimension is 0");
    shape = shape_of(tenant.function);
    shape.grid[2] = 65536;
    refused(shape, CUDA_ERROR_INVALID_VALUE, "launch of kernel: the grid is too large");
    shape = shape_of(tenant.function);
    shape.block[2] = 0;
    refused(shape, CUDA_ERROR_INVALID_VALUE, "launch of kernel: a block dimension is 0");
    shape = shape_of(tenant.function);
    shape.block[0] = null_driver::max_threads + 1;
    refused(shape, CUDA_ERROR_INVALID_VALUE, "launch of kernel: the block has more threads than");
    shape = shape_of(tenant.function);
    shape.block[0] = shape.block[1] = shape.block[2] = 0x10000;  // the product wraps in 32 bits
    refused(shape, CUDA_ERROR_INVALID_VALUE, "launch of kernel: the block has more threads than");
    shape = shape_of(tenant.function);
    shape.parameter_bytes = 8;
    refused(shape, CUDA_ERROR_INVALID_VALUE, "launch of kernel: the parameters have the wrong size");
    refused(shape_of(tenant.function + 1), CUDA_ERROR_INVALID_HANDLE, "launch: function 2 does not exist");
    refused(shape_of(FIKIT_MAX_FUNCTIONS - 1), CUDA_ERROR_INVALID_HANDLE, "launch: function 65535");
    fikit_attribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
    shape = shape_of(tenant.function);
    shape.attributes = 1;
    CHECK_EQUAL(tenant->launch(shape, &attribute, parameters), 0);
    CHECK_STARTS(deferred(rig, tenant, CUDA_ERROR_NOT_SUPPORTED), "launch attribute 1 is not supported");
    CHECK_EQUAL(launches(), before);
    // The session goes on, and its steps were counted.
    launch(tenant);
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
    CHECK_EQUAL(launches(), before + 1);
}

TEST(allowed_attributes_are_passed_on) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    fikit_attribute attributes[2] = {};
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;  // the session's own: dropped
    LaunchShape shape = shape_of(tenant.function);
    shape.attributes = 2;
    static constexpr uint64_t parameters[2] = {};
    null_driver::record(true);
    CHECK_EQUAL(tenant->launch(shape, attributes, parameters), 0);
    rig.settle();
    const auto calls = null_driver::take_calls();
    const size_t at = position(calls, Function::cuLaunchKernelEx_);
    CHECK(at < calls.size());
    CHECK_EQUAL(calls[at].value, 1u);
}

TEST(unknown_streams_end_the_session) {
    Rig rig;
    Tenant tenant = rig.ready("a"), other = rig.ready("b");
    launch(tenant, 17);
    const EndedSession ended = rig.wait_ended();
    CHECK_EQUAL(ended.id, "a");
    CHECK_EQUAL(ended.error, CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(ended.reason, "stream 17 does not exist");
    CHECK_EQUAL(tenant->synchronize(), CUDA_ERROR_INVALID_HANDLE);
    char text[FIKIT_ERROR_TEXT] = "";
    CHECK_EQUAL(tenant->channel().failed(&text), CUDA_ERROR_INVALID_HANDLE);
    CHECK_STARTS(text, "stream 17 does not exist");
    launch(other);
    rig.while_turning([&] { CHECK_EQUAL(other->synchronize(), 0); });
}

// One thread destroys a stream while another synchronises all: the record that asks for the mark comes late.
TEST(destroyed_streams_can_still_be_waited_for) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    uint32_t stream = 0;
    CHECK_EQUAL(tenant->stream_create(0, 0, stream), 0);
    rig.settle();
    hold_all(rig);
    launch(tenant, stream);
    CHECK_EQUAL(tenant->stream_destroy(stream), 0);
    CHECK_EQUAL(tenant->stream_query(stream), status::not_ready);
    rig.settle();
    release_all(rig);
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
    rig.settle();
    CHECK_EQUAL(tenant->stream_query(stream), 0);
}

TEST(bad_records_end_only_their_session) {
    Rig rig;
    Tenant tenant = rig.ready("a"), other = rig.ready("b");
    void* room = nullptr;
    CHECK_EQUAL(tenant->channel().reserve(FIKIT_RECORD_ALIGN, room), 0);
    *static_cast<fikit_record*>(room) = {.bytes = 64, .op = 99, .flags = 0, .stream = 0, .reserved = 0};
    tenant->channel().commit();
    const EndedSession ended = rig.wait_ended();
    CHECK_EQUAL(ended.error, CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(ended.reason, "unknown operation");
    launch(other);
    rig.while_turning([&] { CHECK_EQUAL(other->synchronize(), 0); });
}

// What two events read around an empty kernel, beyond the kernel itself, is taken off every duration.
TEST(durations_are_free_of_the_timers_share) {
    Rig rig;  // calibrated with 10 us around a kernel of 1.2
    Tenant tenant = rig.ready("a", 0);
    null_driver::set_elapsed(0.05f);
    for (int i = 0; i < 8; ++i) {
        launch(tenant);
        rig.settle();
    }
    std::vector<KernelMeasurement> profiles;
    rig.while_turning([&] { profiles = rig.core().take_profiles(); });
    CHECK_EQUAL(profiles.size(), 1u);
    CHECK_EQUAL(profiles[0].name.function, "kernel");
    CHECK(profiles[0].median > 41'000 && profiles[0].median < 41'400);
}

// Every launch of a measured session is, however many others use timers, and however long it has to wait for
// one; a launch that waits holds nobody else up.
TEST(a_measured_session_waits_for_timers) {
    Rig rig;
    std::vector<Tenant> floods;
    for (const char* id : {"x", "y", "z"}) floods.push_back(rig.ready(id, 0));
    std::vector<Tenant> measured;
    const std::pair<const char*, int> names[] = {{"m0", 0}, {"m1", 0}, {"m2", 5}};
    for (const auto& [id, level] : names) measured.push_back(rig.ready(id, level));
    rig.while_turning([&] {
        for (const auto& [id, level] : names) CHECK(rig.core().change(id, {.measured = true}));
        rig.core().set_trace(true);
    });
    hold_all(rig);
    const uint64_t before = launches();
    for (int i = 0; i < 250; ++i)
        for (Tenant& tenant : floods) launch(tenant);
    rig.turn(40);
    CHECK_EQUAL(launches() - before, 750u);
    for (int i = 0; i < 200; ++i)
        for (Tenant& tenant : measured) launch(tenant);
    rig.turn(40);
    CHECK(launches() - before < 750u + 600);
    release_all(rig);
    rig.settle();
    CHECK_EQUAL(launches() - before, 750u + 600);
    Snapshot all;
    rig.while_turning([&] { all = rig.core().snapshot(); });
    for (const SessionSnapshot& session : all.sessions)
        if (session.id[0] == 'm') CHECK_EQUAL(session.usage.measured, 200u);
}

// Neither a trace of any length nor the names in it are read on the dispatch thread.
TEST(a_trace_is_read_without_the_loop) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    rig.while_turning([&] { rig.core().set_trace(true); });
    constexpr uint64_t many = 20'000;
    for (uint64_t i = 0; i < many; ++i) {
        launch(tenant);
        if (i % 100 == 0) rig.settle();
    }
    rig.settle();
    uint64_t cursor = 0, dropped = 0;
    const std::vector<NamedTrace> read = rig.core().read_trace(cursor, many, dropped);  // nobody turns it
    CHECK_EQUAL(read.size(), many);
    CHECK_EQUAL(dropped, 0u);
    CHECK_EQUAL(read.back().session, "a");
    CHECK_EQUAL(read.back().name, "kernel");
}

// The driver's calls are no part of it.
TEST(a_trace_tells_of_as_much_waiting_as_the_account) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    rig.while_turning([&] { rig.core().set_trace(true); });
    for (int i = 0; i < 20; ++i) launch(tenant);
    rig.settle();
    Snapshot all;
    rig.while_turning([&] { all = rig.core().snapshot(); });
    uint64_t cursor = 0, dropped = 0;
    Nanoseconds waited = 0;
    for (const NamedTrace& each : rig.core().read_trace(cursor, 100, dropped))
        waited += each.record.issued - each.record.arrived;
    CHECK_EQUAL(all.sessions.at(0).usage.launches, 20u);
    CHECK_EQUAL(waited, all.sessions.at(0).usage.gate_wait_ns);
}

// However many others have come and gone, a session that lives is told of by its name.
TEST(a_trace_names_who_lives) {
    Settings settings = hand_turned();
    settings.remembered_sessions = 2;
    Rig rig(settings);
    Tenant tenant = rig.ready("a", 0);
    rig.while_turning([&] { rig.core().set_trace(true); });
    for (const char* id : {"b", "c", "d", "e"}) {
        Tenant other = rig.ready(id);
        launch(other);
        rig.settle();
        rig.while_turning([&] { CHECK(rig.core().end(id, 0, "over")); });
        rig.wait_ended();
    }
    launch(tenant);
    rig.settle();
    uint64_t cursor = 0, dropped = 0;
    std::vector<std::string> named;
    for (const NamedTrace& each : rig.core().read_trace(cursor, 100, dropped)) named.push_back(each.session);
    CHECK(named == std::vector<std::string>({"", "", "d", "e", "a"}));
}

// What the daemon asks for takes as many turns as there are pieces of it.
TEST(long_answers_are_given_in_pieces) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    for (uint32_t grid = 1; grid <= 100; ++grid) launch(tenant, 0, grid);
    rig.settle();
    const auto turns_of = [&](auto action) {
        std::atomic<bool> over{false};
        std::thread asker([&] {
            action();
            over = true;
        });
        int turns = 0;
        for (; !over; std::this_thread::yield()) turns += rig.core().turn();
        asker.join();
        return turns;
    };
    std::vector<KernelMeasurement> taken;
    CHECK(turns_of([&] { taken = rig.core().take_profiles(); }) >= 100 / 16);
    CHECK_EQUAL(taken.size(), 100u);
    CHECK(turns_of([&] { rig.core().forget_profiles(); }) >= 100);
    CHECK(turns_of([&] { rig.core().snapshot(); }) >= 1);
    rig.while_turning([&] { taken = rig.core().take_profiles(); });
    CHECK_EQUAL(taken.size(), 0u);
}

TEST(a_flood_is_bounded) {
    Settings settings = hand_turned();
    settings.in_flight_limit = 32;
    Rig rig(settings);
    Tenant tenant = rig.ready("a", 0);
    hold_all(rig);
    const uint64_t before = launches();
    for (int i = 0; i < 100; ++i) launch(tenant);
    rig.turn(20);
    CHECK_EQUAL(launches() - before, 32u);
    release_all(rig);
    rig.settle();
    CHECK_EQUAL(launches() - before, 100u);
}

TEST(pause_holds_back_what_was_not_issued) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    bool paused = true;
    rig.while_turning([&] { CHECK(rig.core().change("a", {.paused = paused})); });
    const uint64_t before = launches();
    for (int i = 0; i < 5; ++i) launch(tenant);
    rig.turn(10);
    CHECK_EQUAL(launches(), before);
    paused = false;
    rig.while_turning([&] { CHECK(rig.core().change("a", {.paused = paused})); });
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(), 0); });
    CHECK_EQUAL(launches(), before + 5);
    rig.while_turning([&] { CHECK(!rig.core().change("nobody", {.paused = paused})); });
}

}  // namespace
