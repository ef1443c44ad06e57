// The policy `fikit`: programs that launch far ahead of the GPU, wait for the burst, and launch the next at
// once.
#include <memory>

#include "policy_tests.hpp"
#include "scheduling/sequence.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

// Bursts of kernels of 5 us, launched 2 us apart. One look sees that a burst is over, 3 us late. The program
// tells of its waits, or launches the next burst before that look, and told of a wait only at the start.
struct Bursts {
    static constexpr unsigned launches = 9;
    static constexpr Nanoseconds kernel = 5 * us, apart = 2 * us, seen = 3 * us;
    std::unique_ptr<Policy> policy;
    bool polls;
    int bursts = 0;
    Nanoseconds now = 100 * ms;

    explicit Bursts(bool looks_at_memory, const Bounds& bounds = with_partitions())
        : policy(make_policy("fikit", bounds)), polls(looks_at_memory) {
        policy->opened(0, 0, 1, 0);
        policy->opened(1, 5, 1, 0);
    }
    static Work work(unsigned number) {
        Work high = small(kernel);
        high.key = 1 + number;
        return high;
    }
    void issue(unsigned number) { policy->issued(0, work(number), now); }
    void complete(Nanoseconds at) {
        for (unsigned number = 0; number < launches; ++number)
            policy->completed(0, work(number), 0, at, number + 1 == launches ? at - us : 0, 0);
    }
    // One after `pause`, late by so much beside a gated kernel that is there all the time.
    void burst(Nanoseconds pause, Nanoseconds late = 0) {
        now += pause;
        if (!polls || bursts++ == 0) issue(0);  // else it was, before anyone had seen the burst before
        const Nanoseconds begun = now;
        Work low = large();
        low.gated = true;
        low.block = us;
        if (late > 0) policy->issued(1, low, now);
        for (unsigned number = 1; number < launches; ++number) {
            now += apart;
            issue(number);
        }
        if (!polls || bursts == 1) policy->awaited(0, false, now);
        const Nanoseconds over = begun + Sequence::latency + launches * kernel + late;
        now = over + us;
        if (polls) issue(0);
        complete(over + seen);
        if (late > 0) policy->completed(1, low, 0, over + seen);
    }
    // On a stream of its own, behind what was or beside what is launched on the usual one.
    void launch_elsewhere(bool beside) {
        Work other = work(launches);
        other.stream = 3;
        if (beside) issue(launches + 1);
        policy->issued(0, other, now += us);
        policy->awaited(0, false, now);
        now += ms;
        if (beside) policy->completed(0, work(launches + 1), 0, now);
        policy->completed(0, other, 0, now);
    }
    SessionStatistics told() const { return policy->statistics(0); }
};

// What is seen with a whole burst was over long before: that says nothing of how late things are seen, which
// would hide what others make them late by.
TEST(a_burst_hides_no_delay) {
    Bursts program(false);
    for (int burst = 0; burst < 500; ++burst) program.burst(ms);
    CHECK_EQUAL(program.told().delays.count, 0u);
    for (int burst = 0; burst < 10; ++burst) program.burst(ms, 20 * us);
    CHECK_EQUAL(program.told().delays.count, 10u);
    CHECK(program.told().delays.sum > 180 * us && program.told().delays.sum < 220 * us);
}

// The least bound is for services that are asked now and then. Of waits that follow each other without a
// pause as many share it as last until it is the share of their time that a step may be delayed by.
TEST(waits_that_follow_each_other_share_a_bound) {
    for (const Nanoseconds pause : {10 * us, ms}) {
        Bursts program(false);
        for (int burst = 0; burst < 200; ++burst) program.burst(pause);
        const uint64_t before = program.told().steps;
        const Nanoseconds begun = program.now;
        for (int burst = 0; burst < 200; ++burst) program.burst(pause, 5 * us);
        const auto steps = static_cast<Nanoseconds>(program.told().steps - before);
        if (pause == ms) {
            CHECK(steps >= 199 && steps <= 201);
            CHECK_EQUAL(program.told().over_bound, 0u);  // 5 us of 10
        } else {
            CHECK(steps > 20 && steps <= (program.now - begun) / (500 * us) + 1);
            CHECK(program.told().over_bound > 20);  // each has several times 5 us
        }
    }
}

// As long as a program was not seen to wait each pause of its GPU has a bound of its own: with one that many
// share nothing could go beside it, nothing made it late, and by nothing else it is seen to wait.
TEST(before_it_waits_each_pause_has_a_bound) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    Nanoseconds now = 100 * ms;
    for (unsigned launch = 0; launch < 200; ++launch, now += 100 * us) {
        policy->issued(0, Bursts::work(launch % 4), now);
        policy->completed(0, Bursts::work(launch % 4), 0, now + 12 * us);
    }
    CHECK(policy->statistics(0).steps > 40);
}

// Where no share is allowed, but the least is, they share it all the same, for a while.
TEST(without_a_share_steps_end_too) {
    Bounds bounds = with_partitions();
    bounds.delay_share = 0;
    Bursts program(false, bounds);
    for (int burst = 0; burst < 1000; ++burst) program.burst(10 * us, 5 * us);  // 64 us each
    CHECK(program.told().steps >= 5 && program.told().steps <= 7);
}

// What starts behind a long kernel may start after more bursts than one: those count that come beside it.
TEST(what_starts_late_is_foreseen) {
    for (const bool behind : {false, true}) {
        Bursts program(false);
        for (int burst = 0; burst < 500; ++burst) program.burst(30 * us);
        Work low = large(), first = large();
        first.gated = true;
        first.partition = 5;  // 32 SMs: in nobody's way
        first.blocks = 32;
        first.waves = 1;
        first.expected = first.longest = first.shortest = first.block = 150 * us;
        low.whole = true;  // blocks of 50 us on all SMs
        low.expected = low.longest = low.shortest = 400 * us;
        low.block = 50 * us;
        if (behind) program.policy->issued(1, first, program.now);
        program.policy->arrived(1, low, program.now + us);
        CHECK(program.policy->decide(program.now + us).verdict == Verdict::wait);
    }
}

// Who looks at memory launches again before anyone has seen that the GPU is done. It waited all the same, as
// its next launches show where others made it late.
void see_it_wait(Bursts& polls) {
    Bursts tells(false);
    for (Bursts* program : {&polls, &tells}) {
        for (int burst = 0; burst < 400; ++burst) program->burst(0);
        for (int burst = 0; burst < 400; ++burst) program->burst(0, burst % 4 == 0 ? 40 * us : 0);
    }
    CHECK(polls.told().steps > tells.told().steps / 3);
    CHECK(polls.told().delays.count > 80);
    CHECK(polls.told().delays.worst < 60 * us);
    CHECK(polls.told().step_time < ms);
    CHECK(polls.told().bound < 20 * us);
    // Where it was seen to wait it is taken to, in time or not.
    const uint64_t before = polls.told().steps;
    for (int burst = 0; burst < 400; ++burst) polls.burst(0);
    CHECK(polls.told().steps > before + 20);
}

TEST(who_polls_waits_as_others_do) {
    Bursts polls(true);
    see_it_wait(polls);
}

// What it did on another stream before then makes no difference: with nothing in flight it is no other, and
// after as many launches as are remembered there is only one again.
TEST(who_used_another_stream_once_is_no_other) {
    for (const bool beside : {false, true}) {
        Bursts polls(true);
        polls.launch_elsewhere(beside);
        const uint32_t forgotten = beside ? Sequence::capacity / Bursts::launches + 2 : 0;
        for (uint32_t burst = 0; burst < forgotten; ++burst) polls.burst(0);
        see_it_wait(polls);
    }
}

// A burst that was launched together with the next, so that no wait was seen between them: where it came, the
// program waits the next time all the same.
TEST(a_wait_that_was_missed_once_is_none_of_the_place) {
    Bursts polls(true);
    see_it_wait(polls);
    for (int round = 0; round < 40; ++round) {
        for (unsigned number = 1; number < Bursts::launches; ++number) polls.issue(number);
        polls.issue(0);
        polls.complete(polls.now + 100 * us);
        polls.now += 100 * us;
        if (round == 0) continue;
        const uint64_t before = polls.told().delays.count;
        for (int burst = 0; burst < 4; ++burst) polls.burst(0, 20 * us);
        CHECK(polls.told().delays.count >= before + 3);
    }
}

}  // namespace
