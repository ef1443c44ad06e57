// The policy `fikit`: how far decisions look ahead. High-priority launches wait meanwhile.
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "policy_tests.hpp"
#include "scheduling/sequence.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

// A high session that launches a kernel of 6 us each 7 us, 600 an answer, and waits behind those if it tells,
// beside one that wants the GPU for longer than that. What do the decisions look at, in all and at most?
struct Looked {
    uint64_t all = 0;
    uint32_t most = 0;
    Nanoseconds time = 0;
};
Looked beside_a_long_kernel(bool tells) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    Work low = large();
    low.gated = true;
    low.waves = 8;
    low.expected = 890 * us;
    low.longest = 5700 * us;
    low.block = low.longest / low.waves;
    Nanoseconds now = 100 * ms;
    Looked looked;
    constexpr int answers = 20, warm = 10;
    for (int answer = 0; answer < answers; ++answer) {
        if (answer == warm) {
            policy->arrived(1, low, now);
            looked.time = now;
        }
        for (unsigned number = 0; number < 600; ++number, now += 7 * us) {
            Work high = small(6 * us);
            high.blocks = 4000;
            high.key = 1 + number;
            policy->issued(0, high, now);
            for (int asked = 0; asked < 6; ++asked) {
                CHECK(answer < warm || policy->decide(now + asked * us).verdict == Verdict::wait);
                looked.all += policy->foreseen();
                looked.most = std::max(looked.most, policy->foreseen());
            }
            policy->completed(0, high, 0, now + 6500);
        }
        if (tells) policy->awaited(0, true, now);
    }
    looked.time = now - looked.time;
    return looked;
}

// What is too late for the idle time up to the wait is refused once that is clear: on the whole GPU and on
// each of the five partitions together before one look ahead would have come to the wait.
TEST(what_is_hopeless_is_soon_refused) {
    const Looked looked = beside_a_long_kernel(true);
    CHECK(looked.all > 0);
    CHECK(looked.most < 600);
}

// Who never waits may catch up some time, so it takes long to see that it won't. It is not looked at again
// before the launch that waits meanwhile has 15 times as long, at 16 ns for each that is looked at.
TEST(looking_ahead_takes_little_of_the_time) {
    const Looked looked = beside_a_long_kernel(false);
    CHECK(looked.all > 0);
    CHECK(looked.most <= 2 * 1024u);
    CHECK(looked.all * 16 < static_cast<uint64_t>(looked.time) / 15);
}

// What goes beside a kernel that holds the SMs of its partition finds the others: what both leave may run
// beside them.
TEST(blocks_pile_up_beside_what_is_in_flight) {
    for (const auto& [blocks, needs, fits] :
         {std::tuple{10u, 2u, true}, {10u, 3u, false}, {20u, 1u, false}}) {
        const auto policy = make_policy("fikit", with_partitions());
        for (unsigned session = 0; session < 3; ++session) policy->opened(session, session > 0 ? 5 : 0, 1, 0);
        Work high = small(50 * us), first = small(100 * us), second = small(100 * us);
        high.blocks = needs;
        first.blocks = 240;
        second.blocks = blocks;
        high.per_sm = first.per_sm = second.per_sm = 1;
        first.waves = 2;
        first.block = 50 * us;
        first.key = 1000;
        second.waves = 1;
        second.key = 1001;
        first.gated = second.gated = true;
        first.partition = 1;  // 120 SMs
        Nanoseconds now = 100 * ms;
        int whole = 0;
        for (int answer = 0; answer < 40; ++answer)
            for (high.key = 1; high.key <= 20; ++high.key, now += 54 * us) {
                const bool looks = high.key == 10 && answer > 20;
                if (looks) policy->issued(1, first, now);
                policy->issued(0, high, now);
                if (high.key == 20) policy->awaited(0, false, now);
                if (looks) {
                    policy->arrived(2, second, now + 20 * us);
                    whole += policy->decide(now + 20 * us).verdict == Verdict::whole;
                    policy->withdrawn(2, now + 20 * us);
                    policy->completed(1, first, 0, now + 30 * us);
                }
                policy->completed(0, high, 0, now + 53 * us);
            }
        CHECK(fits ? whole >= 15 : whole == 0);
    }
}

// A kernel holds as many SMs as it has blocks, wherever it goes. What the others are enough for may run
// beside it.
TEST(a_few_long_blocks_leave_the_other_multiprocessors) {
    for (const auto& [blocks, needs, fits] :
         {std::tuple{10u, 122u, true}, {10u, 123u, false}, {60u, 72u, true}, {60u, 73u, false}}) {
        const auto policy = make_policy("fikit", with_partitions());
        policy->opened(0, 0, 1, 0);
        policy->opened(1, 5, 1, 0);
        Work high = small(50 * us), low = small(200 * us);
        high.blocks = needs;
        low.blocks = blocks;
        high.per_sm = low.per_sm = 1;
        low.waves = 1;
        low.key = 1000;
        low.gated = true;
        Nanoseconds now = 100 * ms;
        int goes = 0;  // but in steps that are kept free
        for (int answer = 0; answer < 40; ++answer)
            for (high.key = 1; high.key <= 20; ++high.key, now += 54 * us) {
                policy->issued(0, high, now);
                if (high.key == 20) policy->awaited(0, false, now);
                if (high.key == 10 && answer > 20) {
                    policy->arrived(1, low, now + 20 * us);
                    const Decision decision = policy->decide(now + 20 * us);
                    goes += decision.verdict != Verdict::wait;
                    policy->withdrawn(1, now + 20 * us);
                }
                policy->completed(0, high, 0, now + 53 * us);
            }
        CHECK(fits ? goes >= 15 : goes == 0);
    }
}

// What would begin just behind a launch to come may be there before it, if that comes a little later than
// foreseen. Then it would lose a whole block.
TEST(a_launch_may_come_a_little_later_than_foreseen) {
    for (const auto& [ahead, fits] :
         {std::pair{36 * us, false}, {38 * us, false}, {39 * us, false}, {42 * us, true}}) {
        const auto policy = make_policy("fikit", Bounds{});
        policy->opened(0, 0, 1, 0);
        policy->opened(1, 5, 1, 0);
        Work high = small(6 * us), before = small(ahead), low = small(40 * us);
        high.blocks = 130;
        before.blocks = 2;
        low.blocks = 132;
        high.per_sm = before.per_sm = low.per_sm = 1;
        before.waves = low.waves = 1;
        before.key = 999;
        low.key = 1000;
        before.gated = low.gated = true;
        Nanoseconds now = 100 * ms;
        int goes = 0;
        for (int answer = 0; answer < 40; ++answer)
            for (high.key = 1; high.key <= 20; ++high.key, now += 54 * us) {
                policy->issued(0, high, now);
                if (high.key == 20) policy->awaited(0, false, now);
                const bool beside = high.key == 19 && answer > 20;
                policy->completed(0, high, 0, now + 13 * us);
                if (!beside) continue;
                policy->issued(1, before, now + 20 * us);
                policy->arrived(1, low, now + 20 * us);
                goes += policy->decide(now + 20 * us).verdict == Verdict::whole;
                policy->withdrawn(1, now + 20 * us);
                policy->completed(1, before, 0, now + 25 * us + ahead);
            }
        CHECK(fits ? goes >= 15 : goes == 0);
    }
}

// A program that launches a step at once, which fills the GPU, beside one whose work is always in flight when
// it does. Its kernels last longer where they are than elsewhere, and that is found out: no step is late by
// its bound in the end.
TEST(who_is_far_ahead_is_measured_where_it_launches) {
    constexpr unsigned launches = 64, steps = 500;
    constexpr Nanoseconds lasts = 52 * us;
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    Work high = small(50 * us), low = small(5 * us);
    high.blocks = 4000;
    low.blocks = 1;
    low.key = 1000;
    low.gated = true;
    Nanoseconds now = 100 * ms;
    uint64_t late = 0;
    for (unsigned step = 0; step < steps; ++step) {
        // One is there when the step is launched, others come later where they may.
        bool beside = true;
        Nanoseconds end = now + Sequence::latency;
        policy->issued(1, low, now);
        std::vector<bool> measured;
        for (high.key = 1; high.key <= launches; ++high.key, now += 500) {
            measured.push_back(policy->curious(0));
            policy->issued(0, high, now);
        }
        policy->awaited(0, false, now);
        for (high.key = 1; high.key <= launches; ++high.key) {
            if (std::exchange(beside, false)) policy->completed(1, low, 0, end + 37 * us);
            now = end + 40 * us;
            policy->arrived(1, low, now);
            if (policy->decide(now).verdict == Verdict::wait) {
                policy->withdrawn(1, now);
            } else {
                policy->issued(1, low, now);
                beside = true;
            }
            now = end += lasts;
            policy->completed(0, high, measured[high.key - 1] ? lasts : 0, now += 3 * us);
        }
        if (beside) policy->completed(1, low, 0, now);
        if (step + 100 == steps) late = policy->statistics(0).over_bound;
    }
    CHECK(policy->statistics(0).over_bound > 20);  // until it was
    CHECK_EQUAL(policy->statistics(0).over_bound, late);
}

// What was predicted is counted once and for all, whatever becomes of the session.
TEST(counts_outlast_the_priority) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    Nanoseconds now = 0;
    const auto answers = [&] {
        for (uint64_t number = 0; number < 600; ++number, now += 7 * us) {
            Work work = small(6 * us);
            work.key = 1 + number % 30;
            policy->issued(0, work, now);
            policy->completed(0, work, 0, now + 6500);
        }
        return policy->statistics(0);
    };
    const SessionStatistics before = answers();
    CHECK(before.met > 0);
    policy->changed(0, 5, 1, now);
    CHECK_EQUAL(policy->statistics(0).predicted, before.predicted);
    policy->changed(0, 0, 1, now);
    CHECK_EQUAL(policy->statistics(0).predicted, before.predicted);
    CHECK_EQUAL(policy->statistics(0).met, before.met);
    const SessionStatistics after = answers();
    CHECK(after.predicted > before.predicted && after.met > before.met);
    policy->changed(0, 0, 2, now);  // it is of that priority: nothing is forgotten
    CHECK_EQUAL(answers().predicted - after.predicted, 600);
}

}  // namespace
