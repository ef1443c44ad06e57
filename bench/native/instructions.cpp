// What callgrind counts: three functions, each entered with everything prepared, so that
// --toggle-collect=fikit_bench_* collects nothing else (bench/instruction_counts.py).
//
//   bench_instructions producer|high|gated|policy LAUNCHES
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
[[gnu::noinline]] void fikit_bench_policy(scheduling::Policy& policy, uint32_t count) {
    scheduling::Work work;
    work.expected = 40'000;
    work.block = 5000;
    work.known = true;
    Nanoseconds now = 1'000'000'000;
    unsigned in_flight[4] = {};
    for (uint32_t number = 0; number < count; ++number, now += 10'000) {
        const scheduling::Decision decision = policy.decide(now);
        CHECK(decision.verdict == scheduling::Decision::Verdict::whole);
        work.gated = true;
        policy.issued(decision.session, work, now);
        work.gated = false;
        policy.arrived(decision.session, work, now);
        work.gated = true;
        if (number >= 4) policy.completed(in_flight[number % 4], work, 41'000, now);
        work.gated = false;
        in_flight[number % 4] = decision.session;
    }
}

}  // extern "C"

int main(int count, char** arguments) {
    CHECK(count == 3);
    const std::string_view what = arguments[1];
    const auto number = static_cast<uint32_t>(std::atoi(arguments[2]));
    if (what == "policy") {
        const auto policy = scheduling::make_policy("strict", {});
        for (unsigned session = 0; session < 4; ++session) {
            policy->opened(session, 5, 1.0, 1);
            scheduling::Work work;
            work.expected = 40'000;
            work.known = true;
            policy->arrived(session, work, 1);
        }
        fikit_bench_policy(*policy, number);
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
