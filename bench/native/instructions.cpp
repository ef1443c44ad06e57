// What callgrind counts: three functions, each entered with everything prepared, so that
// --toggle-collect=fikit_bench_* collects nothing else (bench/instruction_counts.py).
//
//   bench_instructions producer|high|gated|strict|fikit LAUNCHES
#include <memory>

#include "rig.hpp"
#include "scheduling/policies.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

constexpr uint32_t parameter_bytes = 64;

Settings roomy() {
    Settings settings = hand_turned();
    settings.ring_bytes = 16u << 20;
    return settings;
}

}  // namespace

// What a high session does between two launches of others.
inline void high_work(scheduling::Policy& policy, uint32_t number, Nanoseconds now) {
    scheduling::Work work;
    work.key = 1 + number % 16;
    work.blocks = 64;
    work.expected = work.shortest = work.block = 4000;
    work.known = true;
    policy.issued(4, work, now);
    if (number % 16 == 15) policy.awaited(4, now);
    policy.completed(4, work, 0, now + 4500);
}

extern "C" {

[[gnu::noinline]] void fikit_bench_producer(Producer& producer, uint32_t function, uint32_t launches) {
    LaunchShape shape = shape_of(function, 0);
    shape.parameter_bytes = parameter_bytes;
    uint64_t parameters[parameter_bytes / 8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (uint32_t number = 0; number < launches; ++number) {
        parameters[0] = number;
        CHECK(producer.launch(shape, nullptr, parameters) == status::success);
    }
}

// Turns the loop until all that lies in the ring has been launched.
[[gnu::noinline]] void fikit_bench_core(Core& core, uint64_t upto) {
    while (launches() < upto) core.turn();
}

// Four sessions that always have a known operation waiting; each launch completes before the fourth after it.
// With `high`, session 4 is of level 0, launches sixteen kernels with gaps and waits for them, again and
// again.
[[gnu::noinline]] void fikit_bench_policy(scheduling::Policy& policy, uint32_t count, bool high) {
    scheduling::Work work;
    work.expected = 40'000;
    work.block = 5000;
    work.key = 99;
    work.blocks = 5000;
    work.per_sm = 8;
    work.known = true;
    Nanoseconds now = 1'000'000'000;
    unsigned in_flight[4] = {};
    for (uint32_t number = 0; number < count; ++number, now += 45'000) {
        const scheduling::Decision decision = policy.decide(now);
        CHECK(decision.verdict != scheduling::Decision::Verdict::wait);
        work.gated = true;
        policy.issued(decision.session, work, now);
        work.gated = false;
        policy.arrived(decision.session, work, now);
        work.gated = true;
        if (number >= 4) policy.completed(in_flight[number % 4], work, 41'000, now);
        work.gated = false;
        in_flight[number % 4] = decision.session;
        if (high) high_work(policy, number, now + 5000);
    }
}

}  // extern "C"

int main(int count, char** arguments) {
    CHECK(count == 3);
    const std::string_view what = arguments[1];
    const auto number = static_cast<uint32_t>(std::atoi(arguments[2]));
    if (what == "strict" || what == "fikit") {
        scheduling::Bounds bounds;
        bounds.partitions = {120, 96, 64};
        const auto policy = scheduling::make_policy(what, bounds);
        scheduling::Work work;
        work.expected = 40'000;
        work.known = true;
        policy->opened(4, 0, 1.0, 1);
        for (unsigned session = 0; session < 4; ++session) {
            policy->opened(session, 5, 1.0, 1);
            policy->arrived(session, work, 1);
        }
        const bool high = what == "fikit";
        for (uint32_t step = 0; high && step < 1600; ++step)
            high_work(*policy, step, 1'000'000 + step * 10'000);
        fikit_bench_policy(*policy, number, high);
        return 0;
    }
    Rig rig(roomy());
    Tenant tenant = rig.ready("a", what == "gated" ? 5 : 0);
    if (what == "producer") {
        fikit_bench_producer(*tenant.producer, tenant.function, number);
        return 0;
    }
    for (int warm = 0; warm < 2000; ++warm) {  // until the kernel is known and seldom sampled
        launch(tenant);
        rig.settle();
        if (warm > 20) rig.turn(4);
    }
    for (uint32_t i = 0; i < number; ++i) launch(tenant);
    fikit_bench_core(rig.core(), launches() + number);
}
