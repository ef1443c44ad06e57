// The policy `fikit`: where a high session's step ends, whenever it is told of its wait.
#include <memory>

#include "policy_tests.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

// A program goes on as soon as it sees that its work is over, which may be before the policy is told. Each of
// its waits is one all the same, and what a step was late by does not pass to the next.
void a_wait_is_over_though_the_next_launch_came_first() {
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
        const SessionStatistics before = policy->statistics(0);
        high.key = 1;
        now += ms;
        policy->issued(0, high, now);
        policy->issued(1, low, now);
        policy->completed(1, low, 0, now + 650 * us);
        policy->completed(0, high, 0, now + 670 * us);
        for (int again = 0; again < 2; ++again) policy->awaited(0, found, now + 900 * us);
        const SessionStatistics after = policy->statistics(0);
        CHECK_EQUAL(after.delays.count, before.delays.count + (found ? 0 : 1));
        CHECK_EQUAL(after.steps, before.steps + 1);
    }
}

// A service that takes 0.2 ms to answer. Who waits for a copy, or for an event, tells of it with the next
// launch; who looks at memory that a kernel writes doesn't tell, but for what it did in the beginning.
enum class Tells { at_once, later, once };
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
    // Answers, later by so much than alone, beside one gated operation if that is not 0.
    void answer(Nanoseconds late = 0) {
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
        now += late;
    }
};

// The pause is none of the step, so that it allows no delay.
void a_pause_is_none_of_the_step() {
    Service told{Tells::at_once}, later{Tells::later}, once{Tells::once};
    for (Service* service : {&told, &later, &once}) {
        for (int step = 0; step < 50; ++step, service->now += 500 * ms) service->answer();
        const SessionStatistics statistics = service->policy->statistics(0);
        CHECK(statistics.steps >= 49);
        CHECK(statistics.step_time > 150 * us && statistics.step_time < 250 * us);
        CHECK_EQUAL(statistics.bound, told.policy->statistics(0).bound);
    }
}

// What a step was late by that is over, as far as can be foreseen, is not held against what fits into the
// pause behind it. It was late all the same.
void a_late_step_leaves_the_pause_behind_it() {
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

// Nobody knows when a session waits that tells of no wait and never pauses for long: what comes before its
// next launches may not count on the idle time between them.
void idle_time_of_who_never_waits_absorbs_nothing() {
    for (const Tells how : {Tells::at_once, Tells::once}) {
        Service service(how);
        service.apart = 60 * us;
        Work low = large();
        for (int step = 0; step < 50; ++step, service.now += 500 * us) {
            service.answer();
            low.gated = true;
            service.policy->issued(1, low, service.now);
            service.policy->completed(1, low, 0, service.now + 10 * us);
        }
        low = small(100 * us);
        low.blocks = 132 * 8;
        low.key = 2000;
        const auto goes = [&](Nanoseconds at) {
            service.policy->arrived(1, low, at);
            const Decision decision = service.policy->decide(at);
            service.policy->withdrawn(1, at);
            return decision.verdict == Verdict::whole;
        };
        CHECK(goes(service.now - 400 * us));
        CHECK_EQUAL(goes(service.now - 20 * us), how == Tells::at_once);
    }
}

}  // namespace

int main() {
    a_wait_is_over_though_the_next_launch_came_first();
    a_pause_is_none_of_the_step();
    a_late_step_leaves_the_pause_behind_it();
    idle_time_of_who_never_waits_absorbs_nothing();
    return 0;
}
