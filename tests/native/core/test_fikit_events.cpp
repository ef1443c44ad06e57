// The policy `fikit`, event by event: what is measured, counted, put down to whom, and whose turn it is.
#include <memory>
#include <vector>

#include "policy_tests.hpp"
#include "scheduling/sequence.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

// The bound on the delay of a step of 100 launches, 10 us from one to the next, whose kernels take so long.
// The last `in_row` of them were ready one behind another, for so long (`row`).
Nanoseconds bound_of(Nanoseconds kernel, Nanoseconds spared, uint32_t in_row = 0, Nanoseconds row = 0) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->spared(0, spared);
    Work high = small(kernel);
    Nanoseconds now = 100 * ms;
    for (int step = 0; step < 100; ++step) {
        const Nanoseconds begin = now;
        for (unsigned number = 0; number < 100; ++number, now += 10 * us) {
            high.key = 1 + number;
            policy->issued(0, high, now);
        }
        if (in_row != 0) policy->lagged(0, in_row, in_row, row);
        policy->awaited(0, false, now);
        Nanoseconds end = 0;
        for (unsigned number = 0; number < 100; ++number) {
            high.key = 1 + number;
            end = std::max(end, begin + number * 10 * us + Sequence::latency) + kernel;
            policy->completed(0, high, 0, end);
        }
        now = std::max(now, end) + 50 * us;
    }
    return policy->statistics(0).bound;
}

// What its launches would have taken a program may be spent, where it is what the program waited for.
TEST(time_that_is_spared_may_be_spent) {
    const Nanoseconds own = bound_of(2 * us, 0);
    CHECK(own > 15 * us && own < 25 * us);
    const Nanoseconds spent = bound_of(2 * us, 3 * us);
    CHECK(spent > own + 290 * us && spent < own + 310 * us);
    // Not by what it had ready before that could be issued.
    const Nanoseconds behind = bound_of(2 * us, 3 * us, 2, 200 * us);
    CHECK(behind > own + 85 * us && behind < own + 115 * us);
    CHECK_EQUAL(bound_of(2 * us, 3 * us, 2, 400 * us), own);
    const Nanoseconds rowed = bound_of(2 * us, 3 * us, 40, 200 * us);
    CHECK(rowed > own + 165 * us && rowed < own + 195 * us);
    CHECK_EQUAL(bound_of(2 * us, 3 * us, 100, 200 * us), own);
    // A GPU that is busy all the time keeps the program waiting whatever its launches take.
    CHECK_EQUAL(bound_of(30 * us, 3 * us), bound_of(30 * us, 0));
}

// What is confined lasts longer, and that is the time that counts: 20 ms of a GPU are 100 ms of a fifth of
// it.
TEST(the_share_against_starvation_is_of_the_time) {
    Bounds bounds = with_partitions();
    bounds.delay_share = 0;
    const auto policy = make_policy("fikit", bounds);
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    Work high;
    high.key = 1;
    high.known = true;
    high.blocks = 1320;
    high.expected = high.shortest = high.block = ms;
    Work low = high;
    low.key = 2;
    low.per_sm = 1;
    low.waves = 10;
    low.expected = 20 * ms;
    low.block = 2 * ms;
    Nanoseconds now = ms, confined = 0;
    policy->arrived(1, low, now);
    for (; now < 60'000 * ms; now += ms) {
        policy->issued(0, high, now);
        if (const Decision decision = policy->decide(now); decision.verdict != Verdict::wait) {
            CHECK(decision.verdict == Verdict::partition);
            low.gated = true;
            low.partition = static_cast<uint8_t>(decision.partition + 1);
            policy->issued(1, low, now);
            confined += low.expected * 42 / 10;  // 1320 blocks on 32 SMs, not on 132
            policy->completed(1, low, 0, now);
            low.gated = false;
            low.partition = 0;
            policy->arrived(1, low, now);
        }
        policy->completed(0, high, 0, now + ms - us);
    }
    const double owed = bounds.starvation_share * 60'000 * ms;
    CHECK(static_cast<double>(confined) > 0.5 * owed && static_cast<double>(confined) < 1.1 * owed);
}

// While no high session works there is more in flight than is followed one by one: that leaves nothing
// behind.
TEST(what_is_not_followed_leaves_nothing_behind) {
    const auto policy = make_policy("fikit", with_partitions());
    for (unsigned session = 0; session < 3; ++session) policy->opened(session, session == 0 ? 0 : 5, 1, 0);
    Work known = large(), fresh = large(), copy = small(10 * us);
    fresh.known = false;
    copy.engine = Engine::to_device;
    known.gated = fresh.gated = copy.gated = true;
    Nanoseconds now = ms;
    for (int number = 0; number < 64; ++number) policy->issued(1, known, now);
    for (int number = 0; number < 8; ++number) policy->issued(1, copy, now);
    for (int number = 0; number < 64; ++number) policy->completed(1, known, 0, now += 5 * us);
    policy->issued(1, fresh, now);
    for (int number = 0; number < 8; ++number) policy->completed(1, copy, 0, now += 10 * us);
    policy->completed(1, fresh, 0, now += 5 * us);

    policy->issued(0, small(5 * us), now);
    policy->issued(2, known, now);
    fresh.gated = false;
    policy->arrived(1, fresh, now);
    CHECK(policy->decide(now).verdict == Verdict::partition);
    CHECK_EQUAL(policy->statistics(1).surprises, 0u);
}

// Eight high sessions are predicted. Who comes ninth is, once one of them is gone, or was silent for long.
TEST(who_was_one_too_many_is_predicted_later) {
    constexpr unsigned ninth = 8;
    const auto policy = make_policy("fikit", with_partitions());
    for (unsigned session = 0; session <= ninth; ++session) policy->opened(session, 0, 1, 0);
    Nanoseconds now = ms;
    const auto are_counted = [&](unsigned session) {
        const uint64_t before = policy->statistics(session).steps;
        for (int step = 0; step < 10; ++step) {
            policy->issued(session, small(5 * us), now);
            policy->completed(session, small(5 * us), 0, now += 20 * us);
            policy->awaited(session, false, now);
            now += ms;
        }
        return policy->statistics(session).steps > before;
    };
    CHECK(are_counted(0) && are_counted(7));
    CHECK(!are_counted(ninth));
    policy->closed(3, now);
    CHECK(are_counted(ninth));
    policy->opened(3, 0, 1, now);
    CHECK(!are_counted(3));
    now += 10'000 * ms;
    CHECK(are_counted(0) && are_counted(3) && are_counted(ninth));
    const uint64_t steps = policy->statistics(1).steps + policy->statistics(2).steps;
    CHECK(are_counted(1) && are_counted(2));
    CHECK_EQUAL(policy->statistics(1).steps + policy->statistics(2).steps, steps + 20);
}

// What high sessions had of the GPU meanwhile is no surprise.
TEST(what_high_work_took_is_no_surprise) {
    const auto surprises = [](Nanoseconds others) {
        const auto policy = make_policy("fikit", with_partitions());
        for (unsigned session = 0; session < 2; ++session)
            policy->opened(session, session == 0 ? 0 : 5, 1, 0);
        Work low = large();
        low.gated = true;
        policy->issued(0, small(5 * us), ms);
        policy->issued(1, low, ms);
        policy->completed(1, low, 0, 6 * ms, 6 * ms, others);
        return policy->statistics(1).surprises;
    };
    CHECK_EQUAL(surprises(0), 1u);
    CHECK_EQUAL(surprises(5 * ms), 0u);
    CHECK_EQUAL(surprises(2 * ms), 1u);
}

// Held up beside gated work, a high session is late; by its own work alone it would be held up, too. While it
// is late, what is not known waits.
TEST(who_is_held_up_beside_others_is_late) {
    const auto verdict = [](bool beside) {
        const auto policy = make_policy("fikit", with_partitions());
        for (unsigned session = 0; session < 3; ++session)
            policy->opened(session, session == 0 ? 0 : 5, 1, 0);
        const Work high = small(5 * us);
        Work low = large(), fresh = large();
        low.gated = true;
        fresh.known = false;
        policy->issued(0, high, 100 * ms);
        if (beside) policy->issued(1, low, 100 * ms);
        policy->completed(0, high, 0, 110 * ms);
        if (beside) policy->completed(1, low, 0, 110 * ms);
        policy->held(0, 10 * ms);
        policy->issued(0, high, 110 * ms);
        policy->issued(0, high, 110 * ms);
        policy->completed(0, high, 0, 110 * ms + 10 * us);
        policy->arrived(2, fresh, 110 * ms + 10 * us);
        return policy->decide(110 * ms + 10 * us).verdict;
    };
    CHECK(verdict(false) == Verdict::partition);
    CHECK(verdict(true) == Verdict::wait);
}

// What is known only from beside high work goes, where it doesn't fit, once nothing at all is in flight: what
// it takes by itself is to be found out.
TEST(what_is_doubtful_goes_while_nothing_is_in_flight) {
    const auto policy = make_policy("fikit", with_partitions());
    for (unsigned session = 0; session < 3; ++session) policy->opened(session, session == 0 ? 0 : 5, 1, 0);
    Work high = small(50 * us);
    high.blocks = 132 * 8;
    Nanoseconds now = 100 * ms;
    for (int step = 0; step < 20; ++step, now += 600 * us) {
        policy->issued(0, high, now);
        policy->awaited(0, false, now);
        policy->completed(0, high, 0, now + 60 * us);
    }
    Work low = large();
    low.expected = low.longest = low.shortest = 4 * ms;
    low.block = ms;
    const auto decided = [&](Nanoseconds at) {
        policy->arrived(1, low, at);
        const Decision decision = policy->decide(at);
        policy->withdrawn(1, at);
        return decision;
    };
    CHECK(decided(now).verdict == Verdict::wait);
    low.at_least = 4 * ms;  // each of its four blocks longer than what a step may be late by
    CHECK(decided(now += 200 * us).verdict == Verdict::wait);
    low.at_least = 20 * us;
    const Decision decision = decided(now += 200 * us);
    CHECK(decision.verdict == Verdict::partition && decision.partition == 2);
    low.whole = true;
    CHECK(decided(now += 200 * us).verdict == Verdict::whole);
    policy->issued(0, high, now);
    CHECK(decided(now + 200 * us).verdict == Verdict::wait);
    policy->completed(0, high, 0, now + 210 * us);
    CHECK(decided(now + 220 * us).verdict == Verdict::whole);
    Work filler = large();
    filler.gated = true;
    policy->issued(2, filler, now + 230 * us);
    CHECK(decided(now + 300 * us).verdict == Verdict::wait);
    policy->completed(2, filler, 0, now += 400 * us);

    // It delays a step: none for a while, then for longer.
    low.whole = false;
    for (const int rest : {64, 128, 256}) {
        policy->arrived(1, low, now += 200 * us);
        CHECK(policy->decide(now).verdict == Verdict::partition);
        low.gated = true;
        low.partition = 3;
        policy->issued(1, low, now);
        policy->issued(0, high, now + 10 * us);
        policy->awaited(0, false, now + 10 * us);
        policy->completed(1, low, 0, now + 5 * ms);
        policy->completed(0, high, 0, now + 5 * ms);
        low.gated = false;
        low.partition = 0;
        int steps = 0;
        for (now += 6 * ms; decided(now).verdict == Verdict::wait; ++steps, now += 600 * us) {
            policy->issued(0, high, now);
            policy->awaited(0, false, now);
            policy->completed(0, high, 0, now + 60 * us);
        }
        CHECK(steps >= rest && steps <= rest + 4);
    }
}

// How long a kernel that outlasts steps waits, the first four times: steps of 20 launches that are never late
// in truth. It `lasts` so long where it is confined.
std::vector<Nanoseconds> waits_beside(const std::vector<Work>& launches, Work low, Nanoseconds lasts) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    Nanoseconds now = ms, arrived = now, ends = 0;
    std::vector<Nanoseconds> waits;
    for (unsigned step = 0; waits.size() < 4 && now < 100'000 * ms; ++step) {
        if (step == 50) policy->arrived(1, low, arrived = now);
        for (size_t number = 0; number < launches.size(); ++number, now += 60 * us) {
            policy->issued(0, launches[number], now);
            if (number + 1 == launches.size()) policy->awaited(0, false, now);
            const bool running = low.gated;
            if (const Decision decision = policy->decide(now);
                !running && decision.verdict != Verdict::wait) {
                CHECK(decision.verdict == Verdict::partition);
                waits.push_back(now - arrived);
                low.gated = true;
                low.partition = static_cast<uint8_t>(decision.partition + 1);
                policy->issued(1, low, now);
                ends = now + lasts;
            }
            policy->completed(0, launches[number], 0, now + launches[number].expected + 5 * us);
            if (!low.gated || now < ends) continue;
            policy->completed(1, low, 0, now);
            low.gated = false;
            low.partition = 0;
            arrived = now;
            policy->arrived(1, low, now);
        }
        now += 10 * us;
    }
    CHECK_EQUAL(waits.size(), 4u);
    return waits;
}

// Launches of 50 us, one wave of so many blocks each.
std::vector<Work> launches_of(uint32_t blocks) {
    std::vector<Work> launches(20);
    for (unsigned number = 0; number < launches.size(); ++number) {
        Work& high = launches[number];
        high.key = 1 + number;
        high.known = true;
        high.per_sm = 8;
        high.blocks = blocks;
        high.waves = 1;
        high.expected = high.shortest = high.longest = high.block = 50 * us;
    }
    return launches;
}

Work long_kernel() {
    Work low = launches_of(132 * 8 * 10)[0];
    low.key = 1000;
    low.waves = 10;
    low.expected = low.longest = 10 * ms;
    low.block = ms;
    return low;
}

// Every launch of a step is foreseen to wait beside a kernel on 32 SMs that outlasts the step, which is too
// much; steps beside it, when its turn came by credit, were not late: after that it goes.
TEST(what_a_step_was_late_by_counts_more_than_what_was_foreseen) {
    const std::vector<Nanoseconds> waits = waits_beside(launches_of(132 * 8), long_kernel(), 42 * ms);
    CHECK(waits[0] > 1000 * ms);
    CHECK(*std::max_element(waits.begin() + 1, waits.end()) < 10 * ms);  // for room on more SMs
}

// Of a step of 1.2 ms the last launch alone is foreseen to wait, for 20 us: more than is trusted in, but less
// than the bound of 24. So one step is to tell.
TEST(what_outlasts_steps_is_tried_where_the_bound_allows_it) {
    std::vector<Work> launches = launches_of(40 * 8);
    Work& last = launches.back();
    last.blocks = 132 * 8;
    last.expected = last.shortest = last.longest = last.block = 20 * us;
    const std::vector<Nanoseconds> waits = waits_beside(launches, long_kernel(), 21 * ms);
    CHECK(*std::max_element(waits.begin(), waits.end()) < 10 * ms);
}

TEST(delays_are_put_down_to_who_caused_them) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    Work high, low;
    high.key = 1;
    high.known = true;
    high.blocks = 132;
    high.expected = high.shortest = high.block = 10 * us;
    low = high;
    low.key = 2;
    low.gated = true;
    low.longest = 10 * us;
    Nanoseconds now = 100 * ms;
    for (int step = 0; step < 150; ++step, now += ms) {  // a hundred of them alone
        const Nanoseconds late = step == 140 ? 300 * us : 0;
        if (step >= 100) policy->issued(1, low, now);
        policy->issued(0, high, now);
        policy->awaited(0, false, now);
        policy->completed(0, high, 0, now + 20 * us + late);
        if (step >= 100) policy->completed(1, low, 0, now + 21 * us + late);
    }
    const SessionStatistics suffered = policy->statistics(0), caused = policy->statistics(1);
    CHECK_EQUAL(suffered.delays.count, 1u);
    CHECK(suffered.delays.worst > 290 * us && suffered.delays.worst < 301 * us);
    CHECK_EQUAL(suffered.blames, 1);
    CHECK_EQUAL(caused.caused.count, 1u);
    CHECK_EQUAL(suffered.over_bound, 1u);
    policy->changed(1, highest_level, 1, now);  // it has suffered none for that
    CHECK_EQUAL(policy->statistics(1).delays.count, 0u);
    CHECK_EQUAL(policy->statistics(1).caused.count, 1u);
    policy->changed(1, 5, 1, now);
    policy->closed(1, now);
    CHECK_EQUAL(policy->statistics(0).blames, 1);
    policy->opened(1, 5, 1, now);  // another
    CHECK_EQUAL(policy->statistics(0).blames, -1);
    CHECK_EQUAL(policy->statistics(1).caused.count, 0u);
}

TEST(unknown_kernels_run_one_at_a_time_on_the_middle_partition) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    policy->opened(2, 5, 1, 0);
    Work work;
    work.key = 7;
    work.expected = 200 * us;
    work.blocks = 100;
    policy->arrived(1, work, ms);
    CHECK(policy->decide(ms).verdict == Verdict::whole);  // no high session has worked yet
    Work high = work;
    high.known = true;
    policy->issued(0, high, ms);
    const Decision decision = policy->decide(ms);
    CHECK(decision.verdict == Verdict::partition);
    CHECK_EQUAL(int{decision.partition}, 2);
    work.gated = true;
    work.partition = 3;
    policy->issued(1, work, ms);
    work.gated = false;
    policy->arrived(2, work, ms);
    CHECK(policy->decide(ms).verdict == Verdict::wait);
    CHECK_EQUAL(policy->statistics(2).refused[static_cast<unsigned>(Refusal::in_flight)], 1u);
}

// A service that is asked now and then is expected between two questions, too: what would hold the next
// answer up is confined as far as it can be, until nobody has asked for long or can ask any more.
TEST(who_is_silent_may_come_any_moment) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    Work high;
    high.known = true;
    high.blocks = 1056;
    high.per_sm = 8;
    high.expected = high.shortest = high.longest = high.block = 50 * us;
    Nanoseconds now = ms;
    for (unsigned step = 0; step < 50; ++step, now += (step % 7 + 1) * 20 * ms) {
        for (unsigned number = 0; number < 8; ++number, now += 60 * us) {
            high.key = 1 + number;
            policy->issued(0, high, now);
            if (number == 7) policy->awaited(0, false, now);
            policy->completed(0, high, 0, now + 58 * us);
        }
    }
    const Bounds bounds = with_partitions();
    Work blocks = high;
    blocks.key = 100;
    blocks.blocks = 10 * 1056;
    blocks.waves = 10;
    blocks.expected = blocks.longest = 10 * ms;
    blocks.block = ms;
    Work graph = blocks, filler = blocks;
    graph.key = 101;
    graph.whole = true;
    filler.key = 102;
    filler.expected = filler.longest = 30 * us;
    filler.block = 3 * us;
    const auto verdict_on = [&](const Work& work, Nanoseconds at) {
        policy->arrived(1, work, at);
        const Decision decision = policy->decide(at);
        policy->withdrawn(1, at);
        if (decision.verdict == Verdict::partition) CHECK_EQUAL(int{decision.partition}, 2);
        return decision.verdict;
    };
    // The next question may come at once, though the last ones were 20 to 140 ms apart.
    CHECK(verdict_on(blocks, now - 15 * ms) == Verdict::wait);
    now += bounds.high_memory;
    CHECK(verdict_on(blocks, now) == Verdict::partition);
    CHECK(verdict_on(graph, now) == Verdict::whole);
    CHECK(verdict_on(filler, now) == Verdict::whole);
    CHECK_EQUAL(policy->in_flight(now), bounds.in_flight);
    CHECK(verdict_on(blocks, now + 200 * bounds.high_memory) == Verdict::whole);
    CHECK(policy->in_flight(now + 200 * bounds.high_memory) > bounds.in_flight);
    policy->closed(0, now);
    CHECK(verdict_on(blocks, now) == Verdict::whole);
}

}  // namespace
