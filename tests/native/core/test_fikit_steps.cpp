// The policy `fikit`: where a high session's step ends, whenever it is told of its wait.
#include <memory>

#include "policy_tests.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

// A program goes on as soon as it sees that its work is over, which may be before the policy is told. Each of
// its waits is one all the same, and what a step was late by does not pass to the next.
TEST(a_wait_is_over_though_the_next_launch_came_first) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    Work high = small(5 * us), low = large();
    low.gated = true;
    Nanoseconds now = 100 * ms;
    constexpr int steps = 50, launches = 20;
    for (int step = 0; step < steps; ++step) {
        for (unsigned number = 0; number < launches; ++number, now += 20 * us) {
            high.key = 1 + number;
            policy->issued(0, high, now);
            if (number > 0) continue;
            policy->issued(1, low, now);
            high.key = launches;
            if (step > 0) policy->completed(0, high, 0, now + us);
            policy->completed(1, low, 0, now + 2 * us);
        }
        policy->awaited(0, false, now);
        for (high.key = 1; high.key < launches; ++high.key) policy->completed(0, high, 0, now + 10 * us);
        now += 100 * us;  // the last one is late, and seen after the next step has begun
    }
    const SessionStatistics told = policy->statistics(0);
    CHECK(told.steps >= steps - 2);
    CHECK(told.delays.count >= steps - 2);
    CHECK(told.delays.worst > 80 * us && told.delays.worst < 120 * us);
    high.key = launches;
    policy->completed(0, high, 0, now);
    // The policy hears of it when everything is over: it was late all the same, unless the program found it
    // so.
    for (const bool found : {false, true}) {
        high.key = 1;
        now += 2 * ms;
        policy->issued(0, high, now);  // ends the step before
        const SessionStatistics before = policy->statistics(0);
        policy->issued(1, low, now);
        policy->completed(1, low, 0, now + 650 * us);
        policy->completed(0, high, 0, now + 670 * us);
        for (int again = 0; again < 2; ++again) policy->awaited(0, found, now + 900 * us);
        const SessionStatistics after = policy->statistics(0);
        CHECK_EQUAL(after.delays.count, before.delays.count + (found ? 0 : 1));
        CHECK_EQUAL(after.steps, before.steps + 1);
    }
}

// A session has work in flight as it becomes a high one, of another priority or of before that was changed.
// It is not what it launches then, which is late by it for nobody.
TEST(what_was_in_flight_before_is_not_what_comes_next) {
    for (const bool gated : {false, true}) {
        const auto policy = make_policy("fikit", with_partitions());
        policy->opened(0, gated ? 5 : 0, 1, 0);
        policy->opened(1, 5, 1, 0);
        Work before = small(5 * ms), low = large();
        const Work after = small(ms);
        before.gated = gated;
        low.gated = true;
        Nanoseconds now = 100 * ms;
        for (int number = 0; number < 3; ++number) policy->issued(0, before, now);
        if (!gated) policy->changed(0, 5, 1, now);
        policy->changed(0, 0, 1, now);
        policy->issued(1, low, now);
        for (int number = 0; number < 2; ++number) policy->issued(0, after, now);
        policy->awaited(0, false, now);
        for (int number = 0; number < 3; ++number) policy->completed(0, before, 0, now += 5 * ms);
        CHECK_EQUAL(policy->statistics(0).steps, 0u);
        for (int number = 0; number < 2; ++number) policy->completed(0, after, 0, now += ms);
        CHECK_EQUAL(policy->statistics(0).steps, 1u);
        CHECK_EQUAL(policy->statistics(0).delays.count, 0u);
    }
}

// Nor is a kernel that many others came and went beside.
TEST(what_was_left_behind_is_not_what_comes_next_on_its_stream) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    Work high = small(5 * us);
    Nanoseconds now = 100 * ms;
    const auto issue = [&](uint8_t stream) {
        high.stream = stream;
        policy->issued(0, high, now += 10 * us);
    };
    issue(1);
    for (int number = 0; number < 1100; ++number) {
        issue(2);
        policy->completed(0, high, 0, now + 9 * us);
    }
    issue(1);
    policy->awaited(0, false, now);
    const uint64_t steps = policy->statistics(0).steps;
    policy->completed(0, high, 0, now += ms);
    CHECK_EQUAL(policy->statistics(0).steps, steps);
    policy->completed(0, high, 0, now += ms);
    CHECK_EQUAL(policy->statistics(0).steps, steps + 1);
}

// Whoever always has work in flight is predicted, too, once there is a place.
TEST(who_is_never_idle_is_predicted_later) {
    constexpr unsigned ninth = 8;
    const auto policy = make_policy("fikit", with_partitions());
    for (unsigned session = 0; session <= ninth; ++session) policy->opened(session, 0, 1, 0);
    Nanoseconds now = ms;
    for (int number = 0; number < 100; ++number) {
        if (number == 10) policy->closed(3, now);
        policy->issued(ninth, small(5 * us), now += 10 * us);
        if (number > 3) policy->completed(ninth, small(5 * us), 0, now);
    }
    CHECK(policy->statistics(ninth).predicted > 50);
}

// A service that takes 0.2 ms to answer. Who waits for a copy, or for an event, tells of it with the next
// launch; who looks at memory that a kernel writes doesn't tell, but perhaps for what it did in the
// beginning.
enum class Tells { at_once, later, once, never };
struct Service {
    static constexpr unsigned launches = 20;
    std::unique_ptr<Policy> policy = make_policy("fikit", with_partitions());
    Tells tells;
    int answers = 0;
    Nanoseconds now = 100 * ms, apart = 10 * us;  // apart: its launches

    explicit Service(Tells how) : tells(how) {
        policy->opened(0, 0, 1, 0);
        policy->opened(1, 5, 1, 0);
    }
    // Answers, later by so much than alone, beside one gated operation if that is not 0, and goes on that
    // much later if it `waits`.
    void answer(Nanoseconds late = 0, bool waits = true) {
        Work high = small(5 * us), low = large();
        low.gated = true;
        const bool at_once = tells == Tells::at_once || (tells == Tells::once && answers++ == 0);
        if (tells == Tells::later) policy->awaited(0, false, now);
        for (unsigned number = 0; number < launches; ++number, now += apart) {
            high.key = 1 + number;
            policy->issued(0, high, now);
            const bool beside = late > 0 && number + 1 == launches;
            if (beside) policy->issued(1, low, now);
            if (number + 1 == launches && at_once) policy->awaited(0, false, now);
            policy->completed(0, high, 0, now + 10 * us + late * beside);
            if (beside) policy->completed(1, low, 0, now + 10 * us + late);
        }
        if (waits) now += late;
    }
};

// The pause is none of the step, so that it allows no delay.
TEST(a_pause_is_none_of_the_step) {
    Service told{Tells::at_once}, later{Tells::later}, once{Tells::once}, never{Tells::never};
    for (Service* service : {&told, &later, &once, &never}) {
        for (int step = 0; step < 100; ++step, service->now += 500 * ms) service->answer();
        const SessionStatistics statistics = service->policy->statistics(0);
        CHECK(statistics.steps >= 99);
        CHECK(statistics.step_time > 150 * us && statistics.step_time < 250 * us);
        CHECK_EQUAL(statistics.bound, told.policy->statistics(0).bound);
    }
}

// Nor is it where several waits make a step: what follows a pause begins one.
TEST(a_pause_ends_a_step_of_several_waits) {
    for (const Tells how : {Tells::at_once, Tells::once, Tells::never}) {
        Service service(how);
        for (int answer = 0; answer < 201; ++answer) {
            service.answer();
            service.now += answer % 2 == 0 ? 10 * us : 20 * ms;
        }
        const SessionStatistics statistics = service.policy->statistics(0);
        CHECK(statistics.steps >= 99);
        CHECK(statistics.step_time > 150 * us && statistics.step_time < 500 * us);
        CHECK_EQUAL(statistics.bound, 10 * us);
    }
}

// What a step was late by that is over, as far as can be foreseen, is not held against what fits into the
// pause behind it. It was late all the same.
TEST(a_late_step_leaves_the_pause_behind_it) {
    for (const Tells how : {Tells::at_once, Tells::later, Tells::once}) {
        Service service(how);
        for (int step = 0; step < 50; ++step, service.now += 20 * ms) service.answer();
        const Work low = large();
        service.policy->arrived(1, low, service.now - 10 * ms);
        CHECK(service.policy->decide(service.now - 10 * ms).verdict == Verdict::whole);
        service.policy->withdrawn(1, service.now - 10 * ms);
        service.answer(100 * us);
        service.now += 10 * ms;
        service.policy->arrived(1, low, service.now);
        CHECK(service.policy->decide(service.now).verdict == Verdict::whole);
        service.policy->withdrawn(1, service.now);
        service.answer();
        CHECK(service.policy->statistics(0).delays.worst > 90 * us);
    }
}

// Whoever waits for its answers asks for the next one later by what they were late by. So each is a step,
// told of or not, the delay counts, and what would delay an answer does not go just because the GPU is idle
// behind it.
TEST(a_launch_that_comes_later_shows_a_wait) {
    constexpr int answers = 100, late_ones = answers / 4;
    for (const Tells how : {Tells::at_once, Tells::once, Tells::never}) {
        Service service(how);
        for (int answer = 0; answer < answers; ++answer, service.now += 500 * us)
            service.answer(answer % 4 == 3 ? 150 * us : 0);
        const SessionStatistics statistics = service.policy->statistics(0);
        CHECK(statistics.steps >= answers - 10);
        CHECK(statistics.delays.count >= late_ones - 5 && statistics.delays.count <= late_ones + 5);
        CHECK(statistics.step_time > 150 * us && statistics.step_time < 400 * us);
        Work low = small(150 * us);
        low.blocks = 132 * 8;
        low.key = 2000;
        low.whole = true;
        const auto goes = [&](Nanoseconds at) {
            service.policy->arrived(1, low, at);
            const Decision decision = service.policy->decide(at);
            service.policy->withdrawn(1, at);
            return decision.verdict == Verdict::whole;
        };
        CHECK(goes(service.now - 400 * us));
        CHECK(!goes(service.now - 20 * us));
    }
}

// Once a launch may come in time for what it was taken to wait for, by chance; three times in a row is none.
TEST(one_launch_in_time_is_chance) {
    Service service(Tells::once);
    const auto answers = [&](int number, int each, Nanoseconds late, bool waits) {
        const uint64_t before = service.policy->statistics(0).steps;
        for (int answer = 0; answer < number; ++answer, service.now += 500 * us)
            service.answer(answer % each == 0 ? late : 0, waits);
        return service.policy->statistics(0).steps - before;
    };
    answers(100, 4, 150 * us, true);
    for (int chances = 0; chances < 2; ++chances) {
        CHECK(answers(1, 1, 150 * us, false) + answers(20, 20, 0, true) >= 20);
        CHECK(answers(20, 4, 150 * us, true) >= 20);
    }
    answers(24, 4, 150 * us, false);
    CHECK(answers(20, 20, 0, true) <= 1);
}

// Launches that come when they would have come are no waits, however late the GPU is; nor are those whose
// time is a matter of chance.
TEST(launches_that_come_as_ever_show_none) {
    constexpr int steps = 100, launches = 20;
    for (const Nanoseconds chance : {0 * us, 12 * us}) {
        const auto policy = make_policy("fikit", with_partitions());
        policy->opened(0, 0, 1, 0);
        policy->opened(1, 5, 1, 0);
        Work high = small(5 * us), low = large();
        low.gated = true;
        Nanoseconds now = 100 * ms;
        uint32_t random = 1;
        for (int step = 0; step < steps; ++step, now += 50 * us) {
            for (int number = 0; number < launches; ++number) {
                high.key = 1 + static_cast<uint64_t>(number);
                const Nanoseconds late = number % 3 == 1 ? 15 * us : 0;
                policy->issued(0, high, now);
                if (late > 0) policy->issued(1, low, now);
                policy->completed(0, high, 0, now + 10 * us + late);
                if (late > 0) policy->completed(1, low, 0, now + 10 * us + late);
                random = random * 1664525 + 1013904223;
                now += 40 * us + chance * (random >> 16) / 65536;
            }
            policy->awaited(0, false, now);
        }
        CHECK(policy->statistics(0).steps >= steps);
        CHECK(policy->statistics(0).steps <= steps + launches);
    }
}

// A host that is busy with others now and then holds up a program and the completions of its launches alike,
// which shows no wait; nor is a long pause one in each step that follows. Beside nothing who tells of its
// waits makes a step of each, and who tells of none of each pause of its GPU.
TEST(a_busy_host_shows_no_waits) {
    constexpr unsigned steps = 50, launches = 100;
    for (const bool tells : {true, false})
        for (uint32_t seed = 1; seed <= 20; ++seed) {
            const auto policy = make_policy("fikit", with_partitions());
            policy->opened(0, 0, 1, 0);
            Work high = small(5 * us);
            high.key = 1;
            Nanoseconds now = 100 * ms;
            uint64_t before = 0;
            uint32_t random = seed;
            for (unsigned step = 0; step <= steps; ++step) {
                if (step == 1) before = policy->statistics(0).steps;
                for (unsigned number = 0; number < launches; ++number) {
                    random = random * 1664525 + 1013904223;
                    const Nanoseconds held_up = random >> 29 == 0 ? random % 600 * us : 0;
                    policy->issued(0, high, now);
                    policy->completed(0, high, 0, now + 10 * us + held_up);
                    now += 100 * us + held_up + (step == 0 && number == 40 && tells ? 3 * ms : 0);
                }
                if (tells) policy->awaited(0, true, now);
            }
            CHECK_EQUAL(policy->statistics(0).steps, before + steps * (tells ? 1 : launches));
        }
}

}  // namespace
