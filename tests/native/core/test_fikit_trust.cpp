// How careful the policy `fikit` becomes of steps that are late, and of whom.
#include <memory>

#include "policy_tests.hpp"
#include "scheduling/interference.hpp"
#include "scheduling/outlasted.hpp"
#include "scheduling/sequence.hpp"
#include "scheduling/surprises.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

// Steps of 20 kernels of a high session with gated ones between them, whose last launch ends late or does
// not.
struct Accidents {
    std::unique_ptr<Policy> policy = make_policy("fikit", with_partitions());
    Nanoseconds now = 100 * ms;
    unsigned confined = 0;       // of them
    Nanoseconds unseen = 0;      // before the end of a step nobody had looked for so long
    Nanoseconds pause = 2 * ms;  // behind a step
    bool awaits = true;

    Accidents() {
        policy->opened(0, 0, 1, 0);
        policy->opened(1, 5, 1, 0);
    }

    // How many of the gated kernels passed.
    unsigned steps(int count, Nanoseconds late) {
        Work high = small(5 * us), low = large();
        low.expected = low.longest = 20 * us;
        unsigned passed = 0;
        for (int step = 0; step < count; ++step) {
            for (unsigned number = 0; number < 20; ++number, now += 100 * us) {
                high.key = 1 + number;
                policy->issued(0, high, now);
                if (number == 19 && awaits) policy->awaited(0, false, now);
                policy->arrived(1, low, now + 5 * us);
                const Nanoseconds seen = now + 10 * us + (number == 19 ? late : 0);
                policy->completed(0, high, 0, seen, number == 19 ? seen - unseen : seen, 0);
                const Decision decision = policy->decide(now + 15 * us);
                if (decision.verdict == Verdict::wait) {
                    policy->withdrawn(1, now + 16 * us);
                    continue;
                }
                ++passed;
                confined += decision.verdict == Verdict::partition;
                low.gated = true;
                policy->issued(1, low, now + 15 * us);
                policy->completed(1, low, 0, now + 45 * us);
                low.gated = false;
            }
            now += pause;
        }
        return passed;
    }
    // A gated kernel lasts for 5 ms.
    void lasts_long() {
        Work low = large();
        low.expected = low.longest = 20 * us;
        low.gated = true;
        policy->issued(1, low, now);
        policy->completed(1, low, 0, now += 5 * ms);
    }
};

// Two launches that were half as long again when a kernel first ran beside them, on half of the GPU, are no
// reason to expect that; sixteen are.
void an_accident_is_hardly_interference() {
    const auto interference = std::make_unique<Interference>();
    const auto share = [&](uint64_t kernel) {
        return interference->share(kernel, interference->guest(7, 64, 132));
    };
    for (int launch = 0; launch < 16; ++launch) {
        interference->learn(1, interference->guest(7, 64, 132), 0.5F);
        if (launch > 1) continue;
        CHECK(share(1) > 0.05F && share(1) <= 0.2F);
        CHECK_EQUAL(share(1), share(2));
    }
    CHECK(share(1) > 0.49F && share(2) > 0.4F);
}

// Steps that end late for reasons of their own make it careful, but not for ever, and never so careful that
// what harms nobody waits.
void accidents_do_not_shut_the_low_side_out() {
    Accidents accidents;
    accidents.steps(300, ms);
    CHECK(accidents.steps(100, ms) > 1000);  // of 2000
    const SessionStatistics late = accidents.policy->statistics(0);
    CHECK(late.over_bound > 100);
    CHECK(late.trust < 0.03);
    accidents.steps(1000, 0);
    const SessionStatistics calm = accidents.policy->statistics(0);
    CHECK_EQUAL(calm.over_bound, late.over_bound);
    CHECK(calm.trust > 0.4);
}

// Of a session that has never waited each pause is taken for a wait. What that was late by says nothing of
// its steps, the first real one included.
void what_was_late_before_the_first_wait_is_forgotten() {
    Accidents accidents;
    accidents.awaits = false;
    accidents.pause = 500 * us;  // a longer one is taken for a wait
    accidents.steps(100, 300 * us);
    CHECK(accidents.policy->statistics(0).over_bound > 1);
    CHECK(accidents.policy->statistics(0).trust < 0.05);
    accidents.awaits = true;
    accidents.steps(2, 300 * us);
    CHECK(accidents.policy->statistics(0).trust > 0.45);
    accidents.steps(10, 300 * us);
    CHECK(accidents.policy->statistics(0).trust < 0.03);
}

// Steps that are hardly over the bound make it hardly more careful.
void a_step_hardly_over_its_bound_counts_hardly() {
    Accidents accidents;
    accidents.steps(1000, 0);
    const auto lowered_by = [&accidents](double bounds) {
        const SessionStatistics before = accidents.policy->statistics(0);
        const auto late = static_cast<Nanoseconds>(bounds * static_cast<double>(before.bound));
        // Its last kernel is seen 10 us after it was issued when it is not late, and lasts for 5.
        accidents.steps(1, late + Sequence::latency + 5 * us - 10 * us);
        const SessionStatistics after = accidents.policy->statistics(0);
        const Nanoseconds spent = after.delays.sum - before.delays.sum;
        CHECK(spent > late - us && spent < late + us);
        CHECK_EQUAL(after.over_bound - before.over_bound, 1u);
        return 1 - after.trust / before.trust;
    };
    const double hardly = lowered_by(1.04), more = lowered_by(1.2), twice = lowered_by(2);
    CHECK(hardly > 0 && hardly < 0.15);
    CHECK(more > 0.2 && more < 0.25);
    CHECK(twice > 0.35 && twice < 0.4);
}

// What a step was late by for reasons of its own keeps no kernel out for long: it hardly runs then, so little
// would be learnt of it.
void a_kernel_is_judged_by_more_than_one_step() {
    Outlasted outlasted;
    constexpr Nanoseconds bound = 50 * us;
    const auto late = [&outlasted] { return outlasted.late(0, 7, 64, bound, 0); };
    outlasted.measured(0, 7, 64, 2 * ms, bound);
    CHECK(late() <= bound);
    for (int step = 0; step < 20; ++step) outlasted.measured(0, 7, 64, 2 * ms, bound);
    CHECK(late() > bound);
    for (int step = 0; step < 4; ++step) outlasted.measured(0, 7, 64, 10 * us, bound);
    CHECK(late() <= bound);
    CHECK_EQUAL(outlasted.late(0, 7, 32, bound, 0), Outlasted::unmeasured);
    CHECK_EQUAL(outlasted.late(1, 7, 64, bound, 0), Outlasted::unmeasured);
}

// Where it was not measured a kernel goes once so many steps and as many milliseconds have passed, twice as
// many after each that was late, up to a bound; one that was not ends that.
void first_tries_rest_longer_after_each_that_was_late() {
    Outlasted::FirstTry first_try;
    const auto rest = [&first_try] {
        uint64_t steps = 1;
        while (!first_try.is_due(steps, INT64_MAX)) steps *= 2;
        Nanoseconds time = ms;
        while (!first_try.is_due(UINT64_MAX, time)) time *= 2;
        CHECK_EQUAL(time, static_cast<Nanoseconds>(steps) * ms);
        return steps;
    };
    CHECK_EQUAL(rest(), 128u);
    for (uint64_t longer = 256; longer <= 8192; longer *= 2) {
        first_try.found(true);
        CHECK_EQUAL(rest(), longer);
    }
    first_try.found(true);
    CHECK_EQUAL(rest(), 8192u);
    first_try.found(false);
    CHECK_EQUAL(rest(), 128u);
}

// What is over the bound by a hundredth is tried again after some hundred steps, what is far over it after
// many thousand; each time that it goes counts anew.
void a_kernel_that_is_over_the_bound_is_tried_again() {
    Outlasted outlasted;
    constexpr Nanoseconds bound = 50 * us;
    const auto waits = [&outlasted](Nanoseconds late, uint64_t since) {
        for (int step = 0; step < 100; ++step) outlasted.measured(0, 7, 64, late, bound);
        outlasted.issued(0, 7, 64, since);
        uint64_t step = since;
        while (outlasted.late(0, 7, 64, bound, step) > bound) ++step;
        return step - since;
    };
    CHECK_EQUAL(waits(bound, 5), 0u);
    const uint64_t little = waits(bound + bound / 100, 5), again = waits(bound + bound / 100, 1'000'000),
                   much = waits(2 * bound, 2'000'000);
    CHECK(little > 100 && little < 200);
    CHECK_EQUAL(again, little);
    CHECK(much > 10'000);
}

// Who looks late sees late what may have been over.
void what_is_seen_late_is_not_late_for_that() {
    Accidents blind, delayed;
    blind.unseen = 300 * us;
    blind.steps(100, 200 * us);
    delayed.steps(100, 200 * us);
    CHECK_EQUAL(blind.policy->statistics(0).over_bound, 0u);
    CHECK(delayed.policy->statistics(0).over_bound > 20);
}

// What happens once is an accident; what happens again and again is expected.
void a_kernel_that_lasted_long_once_is_trusted_again() {
    Accidents accidents;
    accidents.steps(10, 0);
    const auto confined = [&] {
        accidents.lasts_long();
        accidents.confined = 0;
        accidents.steps(1, 0);
        return accidents.confined;
    };
    const unsigned once = confined();
    CHECK(once > 0 && once <= 4);
    for (int times = 0; times < 5; ++times) confined();
    CHECK(confined() > 15);
    for (int times = 0; times < 500; ++times) accidents.steps(1, 0);
    CHECK_EQUAL(confined(), once);
}

// Steps of a high session beside a kernel that outlasts them. How late those are is kept for itself: it is no
// matter of trust. And it does not go where the session has to catch up with something: beside it that takes
// longer than it did in the steps that were measured.
void what_outlasts_steps_is_judged_by_itself() {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    Work high = small(5 * us), low = large();
    low.expected = low.longest = 30 * ms;
    low.block = us;
    Nanoseconds now = 100 * ms;
    const auto launch = [&](unsigned number, Nanoseconds late) {
        high.key = 1 + number;
        policy->issued(0, high, now);
        if (number == 19) policy->awaited(0, false, now);
        policy->completed(0, high, 0, now + 10 * us + late);
        now += 100 * us + (number == 19 ? late : 0);
    };
    const auto steps = [&](int count, Nanoseconds late) {
        for (; count > 0; --count)
            for (unsigned number = 0; number < 20; ++number) launch(number, number == 19 ? late : 0);
        return policy->statistics(0);
    };
    const auto goes = [&] {
        policy->arrived(1, low, now);
        const bool fits = policy->decide(now).verdict == Verdict::whole;
        if (!fits) policy->withdrawn(1, now);
        return fits;
    };
    const auto runs = [&](auto&& what) {
        low.gated = true;
        policy->issued(1, low, now);
        what();
        policy->completed(1, low, 0, now);
        low.gated = false;
    };
    steps(50, 0);
    CHECK(goes());
    runs([&] { steps(10, 0); });
    for (unsigned number = 0; number < 10; ++number) launch(number, number == 9 ? 300 * us : 0);
    CHECK(!goes());
    for (unsigned number = 10; number < 20; ++number) launch(number, 0);
    CHECK(goes());
    runs([&] {
        const SessionStatistics before = steps(2, 0), after = steps(10, 200 * us);
        CHECK_EQUAL(after.over_bound, before.over_bound + 10);
        CHECK_EQUAL(after.trust, before.trust);
    });
    CHECK(steps(1, 0).trust > 0.4);
    CHECK(!goes());

    // Another one, which is never alone for a whole step.
    low.key = 2000;
    Work other = small(5 * us);
    other.key = 3000;
    for (int times = 0; times < 2; ++times) {
        policy->arrived(1, other, now);
        CHECK(policy->decide(now).verdict == Verdict::whole);
        other.gated = true;
        policy->issued(1, other, now);
        for (unsigned number = 0; number < 10; ++number) launch(number, 0);
        policy->completed(1, other, 0, now);
        other.gated = false;
        CHECK(goes());
        runs([&] {
            for (unsigned number = 10; number < 20; ++number) launch(number, number == 19 ? 200 * us : 0);
        });
        steps(1, 0);
    }
    CHECK(!goes());
}

// A kernel of one long block behind two others, shortly before the last launch of a step. If no high work
// kept the first of those from the GPU although it seems so, the block comes before that launch, and nothing
// is left of the step to catch up in.
void what_may_come_before_the_last_launch_leaves_room_for_it() {
    const auto takes_all_sms = [](Nanoseconds first, Nanoseconds second, Nanoseconds over, Nanoseconds seen,
                                  Nanoseconds length) {
        Accidents accidents;
        accidents.steps(100, 0);
        Policy& policy = *accidents.policy;
        const Nanoseconds begin = accidents.now, at = begin + 1765 * us;
        Work high = small(5 * us), low = large();
        for (unsigned number = 0; number < 18; ++number) {
            high.key = 1 + number;
            policy.issued(0, high, begin + number * 100 * us);
            policy.completed(0, high, 0, begin + number * 100 * us + 10 * us);
        }
        low.block = us;
        low.expected = low.longest = first;
        Work next = low;
        next.expected = next.longest = second;
        for (Work work : {low, next}) {
            policy.arrived(1, work, at);
            CHECK(policy.decide(at).verdict == Verdict::whole);
            work.gated = true;
            policy.issued(1, work, at);
        }
        low.gated = true;
        high.key = 19;
        policy.issued(0, high, begin + 1800 * us);
        policy.completed(0, high, 0, begin + 1810 * us);
        policy.completed(1, low, 0, at + seen, at + over, 0);
        Work block = large();
        block.key = 2000;
        block.blocks = 1056;
        block.waves = 1;
        block.expected = block.longest = block.block = length;
        policy.arrived(1, block, at + seen);
        return policy.decide(at + seen).verdict == Verdict::whole;
    };
    CHECK(takes_all_sms(60 * us, 125 * us, 65 * us, 70 * us, 150 * us));
    CHECK(!takes_all_sms(60 * us, 60 * us, 100 * us, 100 * us, 150 * us));
    // What was seen late to be over has not held up what is behind it: there is time for this before the
    // launch.
    CHECK(takes_all_sms(10 * us, 55 * us, 15 * us, 60 * us, 65 * us));
}

// A kernel that takes five times as long with other data is not disturbed by copies over the link, which are
// in flight all the time.
void copies_over_the_link_disturb_no_kernel() {
    const auto goes = [](Engine engine) {
        const auto policy = make_policy("fikit", {});
        for (unsigned session = 0; session < 2; ++session)
            policy->opened(session, session == 0 ? 0 : 5, 1, 0);
        Work low = small(ms);
        low.engine = engine;
        low.gated = true;
        low.blocks = 1;
        low.key = engine == Engine::kernel ? 7 : 0;
        Work high = small(20 * us);
        Nanoseconds now = ms;
        for (int step = 0; step < 64; ++step) {
            policy->issued(1, low, now);
            for (unsigned number = 0; number < 10; ++number) {
                high.key = 100 + number;
                policy->issued(0, high, now += 30 * us);
                now += (number == 9 ? 100 * us : 20 * us) + Sequence::latency + 3 * us;
                policy->completed(0, high, 0, now);
            }
            policy->awaited(0, false, now);
            policy->completed(1, low, 0, now += 700 * us);
            now += 100 * us;
        }
        high.key = 100;
        policy->issued(0, high, now);
        policy->arrived(1, low, now);
        return policy->decide(now).verdict == Verdict::whole;
    };
    CHECK(goes(Engine::to_device) && goes(Engine::to_host));
    CHECK(!goes(Engine::kernel));
}

// What is in flight of a high session when a kernel is over that lasted far longer than ever may have kept it
// from the GPU, or have waited for it: that session's being late tells, once it has what it waits for.
void a_kernel_that_high_work_kept_waiting_is_no_longer_for_that() {
    const auto goes_after = [](Nanoseconds high_takes, bool closed = false) {
        const auto policy = make_policy("fikit", with_partitions());
        for (unsigned session = 0; session < 2; ++session)
            policy->opened(session, session == 0 ? 0 : 5, 1, 0);
        Work low = large();
        low.gated = true;
        const Work high = small(30 * ms);
        Nanoseconds now = ms;
        for (int step = 0; step < 40; ++step) {
            policy->issued(0, high, now);
            if (step == 30) policy->issued(1, low, now);
            if (step == 30) policy->completed(1, low, 0, now + 29 * ms, now + 29 * ms, 0);
            if (step == 30 && closed) break;
            policy->completed(0, high, 0, now += (step == 30 ? high_takes : 30 * ms) + Sequence::latency);
            policy->awaited(0, false, now);
            now += 5 * ms;
            if (step == 30) break;
        }
        CHECK_EQUAL(policy->statistics(1).surprises, 1u);
        if (closed) policy->closed(0, now += 30 * ms);
        policy->opened(2, 0, 1, now);
        policy->issued(2, small(5 * us), now);
        policy->completed(2, small(5 * us), 0, now + 10 * us);
        policy->arrived(1, low, now + 10 * us);
        const Decision decision = policy->decide(now + 10 * us);
        return decision.verdict == Verdict::whole;
    };
    CHECK(goes_after(30 * ms));
    CHECK(!goes_after(59 * ms));
    CHECK(goes_after(30 * ms, true));
}

// What lasts long now and then counts as that long ever longer, anew each time that it is seen to, and until
// no key has surprised for many steps; what did no harm is as if it had not been.
void a_key_that_lasts_long_again_and_again_is_believed_late() {
    Surprises surprises;
    constexpr uint64_t liar = 7, other = 8;
    const auto counts_for = [&](uint64_t step) {
        unsigned launches = 0;
        while (launches < 300 && surprises.arrived(liar, step) != 0) ++launches;
        return launches;
    };
    for (const unsigned launches : {4u, 16u, 64u, 256u}) {
        surprises.surprised(liar, 3 * ms, 3 * ms, 0, 100);
        CHECK_EQUAL(counts_for(100), launches);
    }
    surprises.confirmed(liar, 100);
    surprises.surprised(liar, 3 * ms, 3 * ms, 1, 100);
    surprises.told(1, 0);
    CHECK_EQUAL(counts_for(200), 256u);
    surprises.confirmed(liar, 100);
    CHECK_EQUAL(counts_for(300), 0u);
    surprises.surprised(other, ms, ms, 0, 300);
    CHECK_EQUAL(counts_for(300), 256u);
    surprises.confirmed(liar, 300);
    surprises.surprised(other, ms, ms, 0, 1000);
    CHECK_EQUAL(counts_for(1000), 0u);
}

}  // namespace

int main() {
    a_key_that_lasts_long_again_and_again_is_believed_late();
    copies_over_the_link_disturb_no_kernel();
    a_kernel_that_high_work_kept_waiting_is_no_longer_for_that();
    an_accident_is_hardly_interference();
    accidents_do_not_shut_the_low_side_out();
    what_was_late_before_the_first_wait_is_forgotten();
    a_step_hardly_over_its_bound_counts_hardly();
    a_kernel_is_judged_by_more_than_one_step();
    a_kernel_that_is_over_the_bound_is_tried_again();
    first_tries_rest_longer_after_each_that_was_late();
    what_is_seen_late_is_not_late_for_that();
    a_kernel_that_lasted_long_once_is_trusted_again();
    what_outlasts_steps_is_judged_by_itself();
    what_may_come_before_the_last_launch_leaves_room_for_it();
}
