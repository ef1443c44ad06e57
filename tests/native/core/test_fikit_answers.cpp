// The policy `fikit` beside answers that are short, or are told of late.
#include <memory>

#include "policy_tests.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

// A session that answers once a millisecond, and one whose kernels of 20 us leave it room on all SMs. How
// many of these may be in flight so long after an answer began?
unsigned fit_behind_each_other(Nanoseconds answer, Nanoseconds after, bool tells = true) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    Work high = small(answer), low = small(20 * us);
    high.key = 1;
    low.key = 1000;
    Nanoseconds now = 100 * ms;
    for (int number = 0; number < 100; ++number, now += ms) {
        policy->issued(0, high, now);
        if (tells) policy->awaited(0, false, now);
        policy->completed(0, high, 0, now + answer + 5 * us);
    }
    now += after - ms;
    for (unsigned fit = 0;; ++fit) {
        low.gated = false;
        policy->arrived(1, low, now);
        const Decision decision = policy->decide(now);
        if (decision.verdict == Verdict::wait) return fit;
        low.gated = true;
        low.partition = decision.verdict == Verdict::whole ? uint8_t{0} : uint8_t(decision.partition + 1);
        policy->issued(1, low, now);
    }
}

// When a row of kernels will be over is known the less the longer it is, and a short answer has no time for
// that.
TEST(little_is_in_flight_when_a_short_answer_begins) {
    CHECK(fit_behind_each_other(50 * us, 300 * us) >= 8);
    CHECK(fit_behind_each_other(50 * us, 980 * us) <= 3);
    CHECK(fit_behind_each_other(900 * us, 1980 * us) > 4);  // by its time, longer ones have
    // Where its steps end is a guess.
    CHECK(fit_behind_each_other(50 * us, 980 * us, false) > 4);
}

// A kernel of 1 ms comes in the middle of three steps of 240 us and keeps all that comes behind from the GPU,
// which nobody foresees. It is over when the program tells, with its next step, that it waited. Does it go
// there once more? `other`: something unknown of such a length was beside the same steps.
bool goes_again(uint64_t key, Nanoseconds other = 0) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    Work low = small(ms), unknown = small(other);
    low.key = 2000;
    unknown.gated = true;
    unknown.known = false;
    Nanoseconds now = 100 * ms;
    for (int step = 0; step < 103; ++step, now += 3 * ms) {
        if (step > 0) policy->awaited(0, false, now);
        const bool beside = step >= 100;
        for (unsigned number = 0; number < 20; ++number) {
            Work high = small(10 * us);
            high.key = 1 + number;
            const Nanoseconds at = now + number * 12 * us;
            policy->issued(0, high, at);
            if (beside && other != 0 && number == 2) policy->issued(1, unknown, at);
            if (beside && other != 0 && number == 4) policy->completed(1, unknown, 0, at);
            if (beside && number == 5) {
                low.gated = true;
                policy->issued(1, low, at);
            }
            if (beside && number >= 5) continue;
            policy->completed(0, high, 0, at + 11 * us);
        }
        if (!beside) continue;
        policy->completed(1, low, 0, now + 1060 * us);
        for (unsigned number = 5; number < 20; ++number) {
            Work high = small(10 * us);
            high.key = 1 + number;
            policy->completed(0, high, 0, now + 1060 * us + number * 10 * us);
        }
    }
    policy->awaited(0, false, now);
    Work high = small(10 * us);
    high.key = 1;
    policy->issued(0, high, now);
    low.gated = false;
    low.key = key;
    policy->arrived(1, low, now + us);
    return policy->decide(now + us).verdict == Verdict::whole;
}
TEST(what_is_over_when_a_late_step_is_told_of_is_judged) {
    CHECK(!goes_again(2000));
    CHECK(goes_again(3000));
    CHECK(!goes_again(2000, 500 * us));
    CHECK(goes_again(2000, 1500 * us));  // that may be why they are late
}

// An answer of ten launches of 5 us, all of which are seen to be over at once. `before`: so is that, earlier.
void answers(Policy& policy, Nanoseconds now, Nanoseconds seen, Nanoseconds measured = 0,
             const Work* before = nullptr) {
    Work high = small(5 * us);
    for (high.key = 1; high.key <= 10; ++high.key)
        policy.issued(0, high, now + static_cast<Nanoseconds>(high.key) * us);
    policy.awaited(0, false, now + 11 * us);
    if (before != nullptr) policy.completed(1, *before, 0, seen - 8 * us);
    for (high.key = 1; high.key <= 10; ++high.key)
        policy.completed(0, high, measured, seen, high.key == 10 ? seen : 0, 0);
}

std::unique_ptr<Policy> beside_answers(Nanoseconds& now, Nanoseconds take) {
    auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    for (now = 100 * ms; now < 300 * ms; now += ms) answers(*policy, now, now + take);
    return policy;
}

Work low_kernel() {
    Work low = small(90 * us);
    low.key = 1000;
    low.gated = true;
    return low;
}

// What they took beside a kernel that was over before anyone looked is not what they take by themselves.
TEST(what_one_look_saw_over_ran_beside_what_was_over_before) {
    Nanoseconds now = 0;
    const auto policy = beside_answers(now, 58 * us);
    const Work low = low_kernel();
    for (const bool is_over : {true, false}) {
        const Nanoseconds before = policy->statistics(0).delays.sum;
        policy->issued(1, low, now);
        answers(*policy, now, now + 108 * us, is_over ? 10 * us : 0, is_over ? &low : nullptr);
        if (!is_over) policy->completed(1, low, 0, now + 110 * us);
        CHECK(policy->statistics(0).delays.sum - before > 45 * us);
        now += ms;
    }
}

// By themselves they end sooner than the sum of what their launches take: beside others they are late by as
// much more.
TEST(who_answers_sooner_than_foreseen_is_late_from_then_on) {
    Nanoseconds now = 0;
    const auto policy = beside_answers(now, 52 * us);
    const Work low = low_kernel();
    policy->issued(1, low, now);
    answers(*policy, now, now + 67 * us);
    policy->completed(1, low, 0, now + 95 * us);
    const Nanoseconds late = policy->statistics(0).delays.sum;
    CHECK(late > 13 * us && late < 17 * us);
}

// A kernel that must be over, though nobody has seen it, is not what disturbs, but the one behind it.
TEST(what_must_be_over_disturbs_nobody) {
    Nanoseconds now = 0;
    const auto policy = beside_answers(now, 58 * us);
    Work brief = small(15 * us), lasting = small(400 * us);
    brief.key = 1000;
    lasting.key = 2000;
    for (int number = 0; number < 10; ++number, now += ms) {
        brief.gated = lasting.gated = true;
        policy->issued(1, brief, now - 100 * us);
        policy->issued(1, lasting, now - 100 * us);
        answers(*policy, now, now + 108 * us);
        policy->completed(1, brief, 0, now + 310 * us);
        policy->completed(1, lasting, 0, now + 310 * us);
    }
    policy->issued(0, small(5 * us), now);
    brief.gated = false;
    policy->arrived(1, brief, now);
    CHECK(policy->decide(now).verdict == Verdict::whole);
}

}  // namespace
