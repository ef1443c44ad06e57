// What makes two launches the same kernel for the profile, and how long it knows them.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

// What the first session has used.
SessionUsage usage(Rig& rig) {
    SessionUsage told;
    rig.while_turning([&] { told = rig.core().snapshot().sessions.front().usage; });
    return told;
}

// Attributes that change how a kernel runs make it another one for the profile.
TEST(attributes_tell_kernels_apart) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    static constexpr uint64_t parameters[2] = {};
    const auto launched = [&](uint32_t id, std::array<uint32_t, 3> value) {
        fikit_attribute attribute{id, 0, {}};
        std::memcpy(attribute.value, value.data(), sizeof value);
        LaunchShape shape = shape_of(tenant.function);
        shape.attributes = 1;
        CHECK_EQUAL(tenant->launch(shape, &attribute, parameters), 0);
        rig.settle();
    };
    launch(tenant);
    rig.settle();
    launched(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, {1});
    launched(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, {0});  // as without
    launched(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, {2, 1, 1});
    launched(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, {4, 1, 1});
    launched(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, {1});
    std::set<std::string> names;
    rig.while_turning([&] {
        for (const KernelMeasurement& each : rig.core().take_profiles()) names.insert(each.name.function);
    });
    CHECK(names == std::set<std::string>({"kernel", "kernel [cooperative]", "kernel [cluster 2x1x1]",
                                          "kernel [cluster 4x1x1]", "kernel [programmatic]"}));
}

// What a partition has no room for (a cluster's blocks need SMs next to each other) waits for the whole GPU,
// and goes nowhere else from then on. The tenant does not hear of it.
TEST(what_a_partition_refuses_goes_to_the_whole_gpu) {
    using null_driver::Function;
    Settings settings = hand_turned();
    settings.bounds.partitions[0] = 96;
    Rig rig(settings);
    Tenant high = rig.ready("high", scheduling::highest_level), low = rig.ready("low");
    // The lanes of the partition are the last but the monitor.
    const std::set<CUstream> confined(rig.streams().end() - 3, rig.streams().end() - 1);
    for (const bool known : {false, true}) {
        launch(high);
        rig.settle();
        if (!known) null_driver::fail(Function::cuLaunchKernel_, CUDA_ERROR_INVALID_CLUSTER_SIZE, 0, 1);
        const uint64_t before = launches();
        null_driver::record(true);
        launch(low);
        rig.turn_until([&] { return launches() - before == (known ? 1u : 2u); });
        rig.settle();
        uint32_t issued = 0;
        for (const null_driver::Call& call : null_driver::take_calls()) {
            if (call.function != Function::cuLaunchKernel_) continue;
            CHECK(!confined.contains(call.stream));
            ++issued;
        }
        CHECK_EQUAL(issued, 1u);
        CHECK_EQUAL(low->channel().take_deferred(), 0);
        null_driver::record(false);
    }
    rig.while_turning([&] {
        for (const SessionSnapshot& each : rig.core().snapshot().sessions)
            CHECK_EQUAL(each.usage.launches, 2u);
    });
}

// The stream that a process uses first is its quickest (bench/DESIGN.md): it is the one of a first session of
// high priority, not one that serves nobody.
TEST(no_stream_is_used_before_that_of_a_first_session_of_high_priority) {
    using null_driver::Function;
    Rig rig;
    Tenant high = rig.ready("high", scheduling::highest_level);
    null_driver::record(true);
    launch(high);
    rig.settle();
    const auto used = [](const std::vector<null_driver::Call>& calls) {
        std::set<CUstream> streams;
        for (const null_driver::Call& call : calls)
            if (call.function == Function::cuLaunchKernel_) streams.insert(call.stream);
        return streams;
    };
    const std::set<CUstream> by_session = used(null_driver::take_calls());
    CHECK_EQUAL(by_session.size(), 1u);
    CHECK(by_session == used(rig.calls_at_start()));
}

// Others have taken the place in the profile of what is in flight, and of what waits at the gate: neither is
// taken for one of them.
TEST(who_has_lost_its_place_is_found_anew) {
    Rig rig;
    Tenant high = rig.ready("high", 0), low = rig.ready("low");
    const auto profiles = [&] {
        std::vector<KernelMeasurement> taken;
        rig.while_turning([&] { taken = rig.core().take_profiles(); });
        return taken;
    };
    std::vector<KernelMeasurement> others(4 * Profile::capacity);
    for (uint32_t i = 0; i < others.size(); ++i) {
        others[i].name = {1, "other"};
        others[i].shape.grid[0] = i + 1;
        others[i].samples = others[i].median = others[i].p95 = 5;
    }
    hold_all(rig);
    launch(high, 0, 2);
    launch(low, 0, 3);
    rig.turn(100);
    rig.while_turning([&] { rig.core().load_profiles(others); });
    release_all(rig);
    rig.settle();
    CHECK_EQUAL(profiles().size(), 0u);
    launch(high, 0, 2);
    rig.settle();
    launch(low, 0, 3);
    rig.settle();
    const auto known = profiles();
    CHECK_EQUAL(known.size(), 2u);
    for (const KernelMeasurement& each : known) {
        CHECK_EQUAL(each.name.function, "kernel");
        CHECK_EQUAL(each.samples, 1u);
    }
}

// A program whose kernels are new all the time does not keep who asks for them.
TEST(what_is_learnt_meanwhile_is_told_next_time) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    uint32_t grid = 0;
    const auto launch_new = [&] {
        for (int i = 0; i < 512; ++i) launch(tenant, 0, ++grid);
        rig.take(tenant);
    };
    launch_new();
    std::vector<KernelMeasurement> taken;
    std::atomic<bool> over{false};
    std::thread asker([&] {
        taken = rig.core().take_profiles();
        over = true;
    });
    while (!over && grid < 200'000) {
        launch_new();
        std::this_thread::yield();  // where there are fewer processors than threads, it is to come to ask
    }
    CHECK(grid < 200'000);
    asker.join();
    CHECK(!taken.empty());
}

// What is held takes so long at least.
void run_for(Rig& rig, float milliseconds) {
    const auto end = host_now() + static_cast<Nanoseconds>(milliseconds * 1e6f);
    rig.turn_until([&] { return host_now() >= end; });
    release_all(rig);
    rig.settle();
}

// A program launches its first kernels far ahead: what they take is known once those before them are over.
TEST(launches_that_were_issued_before_their_kernel_was_known_are_charged_too) {
    Rig rig;
    Tenant tenant = rig.ready("a", 0);
    null_driver::set_elapsed(0.1f);
    hold_all(rig);
    for (int i = 0; i < 40; ++i) launch(tenant);
    run_for(rig, 40 * 0.1f);
    const SessionUsage told = usage(rig);
    CHECK_EQUAL(told.launches, 40);
    CHECK(std::abs(told.gpu_ns - 40 * 91'000) < 40 * 3'000);
}

// A kernel whose length the key does not tell counts as what it takes behind those that it comes behind: also
// where it is not measured, and to whom it is charged.
TEST(a_kernel_of_several_lengths_counts_as_what_it_takes_there) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    // Behind such a row a launch lasts so long: for how long it counts, and whether it was measured.
    const auto charged = [&](uint32_t row, float milliseconds) {
        null_driver::set_elapsed(0.02f);
        for (uint32_t i = 0; i < 4; ++i) launch(tenant, 0, row + i);
        rig.settle();
        const SessionUsage before = usage(rig);
        null_driver::set_elapsed(milliseconds);
        hold_all(rig);
        launch(tenant);
        run_for(rig, 0.4f);
        const SessionUsage after = usage(rig);
        return std::pair(after.gpu_ns - before.gpu_ns, after.measured > before.measured);
    };
    for (int i = 0; i < 40; ++i) {
        charged(10, 0.1f);
        charged(20, 0.3f);
    }
    const auto unmeasured = [&](uint32_t row) {
        for (int i = 0; i < 8; ++i)
            if (const auto [time, measured] = charged(row, 0.2f); !measured) return time;
        return int64_t{0};
    };
    CHECK(std::abs(unmeasured(10) - 91'000) < 3'000);  // 10 us of it are the timers'
    CHECK(std::abs(unmeasured(20) - 291'000) < 3'000);
    std::vector<KernelMeasurement> told;
    rig.while_turning([&] { told = rig.core().take_profiles(); });
    CHECK_EQUAL(told.size(), 9u);
}

// What is known of a kernel comes from other data: it took 100 ms.
TEST(nobody_is_charged_for_more_time_than_there_was) {
    Rig rig;
    Tenant tenant = rig.ready("a");
    null_driver::set_elapsed(100);
    for (int i = 0; i < 40; ++i) launch(tenant);
    rig.settle();
    null_driver::set_elapsed(0.02f);
    const Nanoseconds began = host_now();
    const SessionUsage before = usage(rig);
    for (int i = 0; i < 40; ++i) launch(tenant);
    rig.settle();
    const SessionUsage after = usage(rig);
    CHECK(after.measured - before.measured < 40);
    const auto measured = static_cast<Nanoseconds>(after.measured - before.measured) * 20'000;
    CHECK(after.gpu_ns - before.gpu_ns < host_now() - began + measured);
}
}  // namespace
