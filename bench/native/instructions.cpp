// What callgrind counts: functions that are entered with everything prepared, so that
// --toggle-collect=fikit_bench_* collects nothing else (bench/instruction_counts.py).
//
//   bench_instructions producer|high|gated|strict|fikit|foretell LAUNCHES
#include <array>
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

// Four gated sessions that always have a known operation waiting, each of which completes before the fourth
// after it; session 4 is of level 0 and launches sixteen kernels with gaps, waits for them, and so on.
struct Gating {
    scheduling::Policy& policy;
    scheduling::Work gated, high;
    std::array<unsigned, 4> in_flight{};

    explicit Gating(scheduling::Policy& tested) : policy(tested) {
        gated.key = 99;
        gated.expected = 40'000;
        gated.block = 5000;
        gated.blocks = 5000;
        gated.per_sm = 8;
        gated.waves = 5;
        gated.known = true;
        high.blocks = 64;
        high.expected = high.shortest = high.block = 4000;
        high.known = true;
        policy.opened(4, 0, 1.0, 1);
        for (unsigned session = 0; session < 4; ++session) {
            policy.opened(session, 5, 1.0, 1);
            policy.arrived(session, gated, 1);
        }
    }
    void pass_one(uint32_t number, Nanoseconds now) {
        const scheduling::Decision decision = policy.decide(now);
        CHECK(decision.verdict != scheduling::Verdict::wait);
        gated.gated = true;
        policy.issued(decision.session, gated, now);
        gated.gated = false;
        policy.arrived(decision.session, gated, now);
        gated.gated = true;
        if (number >= 4) policy.completed(in_flight[number % 4], gated, 41'000, now);
        gated.gated = false;
        in_flight[number % 4] = decision.session;
    }
    void high_work(uint32_t number, Nanoseconds now) {
        high.key = 1 + number % 16;
        policy.issued(4, high, now);
        if (number % 16 == 15) policy.awaited(4, false, now);
        policy.completed(4, high, 0, now + 4500);
    }
};

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

[[gnu::noinline]] void fikit_bench_gate(Gating& gating, uint32_t number, Nanoseconds now) {
    gating.pass_one(number, now);
}

[[gnu::noinline]] void fikit_bench_foretell(Gating& gating, uint32_t number, Nanoseconds now) {
    gating.high_work(number, now);
}

}  // extern "C"

int main(int count, char** arguments) {
    CHECK(count == 3);
    const std::string_view what = arguments[1];
    const auto number = static_cast<uint32_t>(std::atoi(arguments[2]));
    if (what == "strict" || what == "fikit" || what == "foretell") {
        scheduling::Bounds bounds;
        bounds.partitions = {120, 96, 64};
        const auto policy = scheduling::make_policy(what == "strict" ? what : "fikit", bounds);
        Gating gating(*policy);
        for (uint32_t step = 0; what != "strict" && step < 1600; ++step)
            gating.high_work(step, 1'000'000 + step * 45'000);
        Nanoseconds now = 1'000'000'000;
        for (uint32_t pass = 0; pass < number; ++pass, now += 45'000) {
            if (what == "foretell")
                gating.pass_one(pass, now);
            else
                fikit_bench_gate(gating, pass, now);
            if (what == "foretell")
                fikit_bench_foretell(gating, pass, now + 5000);
            else if (what == "fikit")
                gating.high_work(pass, now + 5000);
        }
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
