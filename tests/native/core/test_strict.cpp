// The policy `strict` in virtual time: a device that runs one operation after the other, and sessions that
// always or sometimes have work. No thread, no clock: the same every time.
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "check.hpp"
#include "scheduling/policies.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

constexpr Nanoseconds us = 1000, ms = 1'000'000;

Work known(Nanoseconds expected, Nanoseconds block = 5 * us) {
    Work work;
    work.expected = expected;
    work.block = block;
    work.known = true;
    return work;
}
Work unknown() {
    Work work;
    work.expected = 200 * us;
    return work;
}
Work gated(Work work) {
    work.gated = true;
    return work;
}

// Sessions, their work, and a device of one queue.
class Simulation {
  public:
    explicit Simulation(const Bounds& bounds = {}) : policy(make_policy("strict", bounds)) {}

    void open(unsigned session, int level, Nanoseconds duration, double weight = 1.0) {
        policy->opened(session, level, weight, now);
        clients[session] = {level, duration, true, 0, 0};
        offer(session);
    }
    void offer(unsigned session) {
        Client& client = clients[session];
        if (client.level == highest_level || !client.eager || client.waits) return;
        client.waits = true;
        policy->arrived(session, known(client.duration), now);
    }
    void start(unsigned session, const Work& work, bool is_gated) {
        Work issued = work;
        issued.gated = is_gated;
        policy->issued(session, issued, now);
        free_at = std::max(free_at, now) + clients[session].duration;
        running.push_back({session, issued, free_at});
    }
    // Issues what may be issued, then goes to the next completion or time to ask again.
    void step(Nanoseconds limit) {
        Nanoseconds again = 0;
        for (;;) {
            const Decision decision = policy->decide(now);
            if (decision.verdict == Verdict::wait) {
                again = decision.again_at;
                break;
            }
            Client& client = clients[decision.session];
            CHECK(client.waits);
            client.waits = false;
            start(decision.session, known(client.duration), true);
            offer(decision.session);
        }
        Nanoseconds next = limit;
        if (again != 0) {
            CHECK(again > now);
            next = std::min(next, again);
        }
        if (!running.empty()) next = std::min(next, running.front().ends);
        now = next;
        while (!running.empty() && running.front().ends <= now) {
            const Running done = running.front();
            running.erase(running.begin());
            Client& client = clients[done.session];
            client.used += client.duration;
            ++client.completed;
            policy->completed(done.session, done.work, client.duration, now);
            if (client.level == highest_level && client.eager)
                start(done.session, known(client.duration), false);
            offer(done.session);
        }
    }
    void run_until(Nanoseconds end) {
        while (now < end) step(end);
    }

    struct Client {
        int level = 0;
        Nanoseconds duration = 0;
        bool eager = false;
        Nanoseconds used = 0;
        uint64_t completed = 0;
        bool waits = false;
    };
    struct Running {
        unsigned session;
        Work work;
        Nanoseconds ends;
    };
    std::unique_ptr<Policy> policy;
    std::array<Client, max_sessions> clients{};
    std::vector<Running> running;
    Nanoseconds now = 1 * ms, free_at = 0;
};

TEST(lower_levels_wait_for_higher_ones) {
    Bounds bounds;
    bounds.starvation_share = 0;
    Simulation simulation(bounds);
    simulation.open(0, 3, 50 * us);
    simulation.open(1, 4, 50 * us);
    simulation.run_until(500 * ms);
    CHECK(simulation.clients[0].completed > 9000);
    CHECK_EQUAL(simulation.clients[1].completed, 0u);
    simulation.clients[0].eager = false;
    simulation.run_until(1000 * ms);
    CHECK(simulation.clients[1].completed > 9000);
}

TEST(high_work_in_flight_holds_the_rest_back) {
    Bounds bounds;
    bounds.starvation_share = 0;
    const auto policy = make_policy("strict", bounds);
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    policy->arrived(1, known(10 * us), 1 * ms);
    policy->issued(0, known(10 * us), 1 * ms);
    CHECK(policy->decide(1 * ms).verdict == Verdict::wait);
    policy->completed(0, known(10 * us), 10 * us, 2 * ms);
    const Decision decision = policy->decide(2 * ms);
    CHECK(decision.verdict == Verdict::whole);
    CHECK_EQUAL(int{decision.session}, 1);
    policy->elsewhere(true, 2 * ms);
    CHECK(policy->decide(2 * ms).verdict == Verdict::wait);
    policy->elsewhere(false, 3 * ms);
    CHECK(policy->decide(3 * ms).verdict == Verdict::whole);
}

// A high session's operation comes and goes.
void high_work(Policy& policy, unsigned session, Nanoseconds now) {
    policy.issued(session, known(10 * us), now);
    policy.completed(session, known(10 * us), 10 * us, now);
}

TEST(work_in_flight_is_bounded) {
    Bounds bounds;
    bounds.in_flight = 100 * us;
    for (const bool beside : {false, true}) {
        const auto policy = make_policy("strict", bounds);
        policy->opened(0, 5, 1, 0);
        policy->opened(1, 0, 1, 0);
        if (beside) high_work(*policy, 1, 1 * ms);
        int issued = 0;
        for (; issued < 50; ++issued) {
            policy->arrived(0, known(30 * us), 1 * ms);
            if (policy->decide(1 * ms).verdict == Verdict::wait) break;
            policy->issued(0, gated(known(30 * us)), 1 * ms);
        }
        CHECK_EQUAL(policy->in_flight(1 * ms), (beside ? 1 : 5) * bounds.in_flight);
        CHECK_EQUAL(issued, beside ? 4 : 17);  // the last may reach beyond the bound
        policy->completed(0, gated(known(30 * us)), 30 * us, 2 * ms);
        CHECK(policy->decide(2 * ms).verdict == Verdict::whole);
    }
    // One operation always may, however long.
    const auto other = make_policy("strict", bounds);
    other->opened(0, 5, 1, 0);
    other->arrived(0, known(10 * ms), 1 * ms);
    CHECK(other->decide(1 * ms).verdict == Verdict::whole);
}

TEST(unknown_kernels_go_alone_beside_high_work) {
    Bounds bounds;
    bounds.partitions[0] = 96;
    const auto policy = make_policy("strict", bounds);
    policy->opened(0, 5, 1, 0);
    policy->opened(1, 5, 1, 0);
    policy->opened(2, 0, 1, 0);
    high_work(*policy, 2, 1 * ms);
    policy->arrived(0, known(10 * us), 1 * ms);
    policy->issued(0, gated(known(10 * us)), 1 * ms);
    policy->arrived(1, unknown(), 1 * ms);
    CHECK(policy->decide(1 * ms).verdict == Verdict::wait);
    policy->completed(0, gated(known(10 * us)), 10 * us, 2 * ms);
    CHECK(policy->decide(2 * ms).verdict == Verdict::partition);
    policy->issued(1, gated(unknown()), 2 * ms);
    policy->arrived(0, known(10 * us), 2 * ms);
    CHECK(policy->decide(2 * ms).verdict == Verdict::wait);  // it counts as the whole bound
}

TEST(beside_high_work) {
    for (const bool partition : {false, true}) {
        Bounds bounds;
        bounds.partitions[0] = partition ? 96 : 0;
        bounds.starvation_share = 0;
        const auto policy = make_policy("strict", bounds);
        policy->opened(0, 0, 1, 0);
        policy->opened(1, 5, 1, 0);
        policy->issued(0, known(10 * us), 100 * ms);
        policy->completed(0, known(10 * us), 10 * us, 101 * ms);
        const auto ask = [&](Work work, Nanoseconds at) {
            policy->arrived(1, work, at);
            const Decision decision = policy->decide(at);
            policy->withdrawn(1, at);
            return decision;
        };
        const Verdict confined = partition ? Verdict::partition : Verdict::whole;
        CHECK(ask(known(30 * us, 5 * us), 102 * ms).verdict == Verdict::whole);
        CHECK(ask(known(90 * us, 21 * us), 102 * ms).verdict == confined);
        CHECK(ask(unknown(), 102 * ms).verdict == (partition ? Verdict::partition : Verdict::wait));
        Work cooperative = known(90 * us, 21 * us);
        cooperative.whole = true;
        CHECK(ask(cooperative, 102 * ms).verdict == Verdict::whole);
        cooperative.known = false;
        const Decision decision = ask(cooperative, 102 * ms);
        CHECK(decision.verdict == Verdict::wait);
        CHECK_EQUAL(decision.again_at, 101 * ms + bounds.high_memory);
        CHECK(ask(unknown(), 101 * ms + bounds.high_memory).verdict == Verdict::whole);
    }
}

// Shares among equals follow the weights within 2 %, whatever the lengths of their operations.
TEST(equals_share_by_weight) {
    struct Setting {
        Nanoseconds durations[3];
        double weights[3];
    };
    for (const Setting& setting :
         {Setting{{50 * us, 50 * us, 50 * us}, {1, 1, 1}}, Setting{{5 * us, 50 * us, 900 * us}, {1, 1, 1}},
          Setting{{20 * us, 300 * us, 7 * us}, {1, 2, 4}}}) {
        Simulation simulation;
        double weights = 0;
        for (unsigned i = 0; i < 3; ++i) {
            simulation.open(i, 5, setting.durations[i], setting.weights[i]);
            weights += setting.weights[i];
        }
        simulation.run_until(simulation.now + 2000 * ms);
        Nanoseconds total = 0;
        for (unsigned i = 0; i < 3; ++i) total += simulation.clients[i].used;
        CHECK(static_cast<double>(total) > 0.98 * 2000 * ms);
        for (unsigned i = 0; i < 3; ++i) {
            const double share = static_cast<double>(simulation.clients[i].used) / static_cast<double>(total);
            CHECK(std::abs(share / (setting.weights[i] / weights) - 1) < 0.02);
        }
    }
}

// A session that slept does not make up for it, and one that is new does not either, even when it comes at a
// moment at which the others have nothing to do.
TEST(idleness_is_no_claim) {
    for (const bool at_a_quiet_moment : {false, true}) {
        Simulation simulation;
        simulation.open(0, 5, 50 * us);
        simulation.run_until(1000 * ms);
        if (at_a_quiet_moment) {
            simulation.clients[0].eager = false;
            simulation.run_until(simulation.now + 2 * ms);
            CHECK(simulation.running.empty());
        }
        simulation.open(1, 5, 50 * us);
        simulation.step(simulation.now + us);
        simulation.clients[0].eager = true;
        simulation.offer(0);
        const Nanoseconds before = simulation.clients[0].used;
        simulation.run_until(simulation.now + 200 * ms);
        CHECK(simulation.clients[0].used - before > 90 * ms);
        CHECK(simulation.clients[1].used > 90 * ms);
    }
}

TEST(starved_levels_get_their_share) {
    Simulation simulation;
    simulation.open(0, 2, 100 * us);
    simulation.open(1, 6, 100 * us);
    simulation.run_until(simulation.now + 5000 * ms);
    const double share = static_cast<double>(simulation.clients[1].used) / 5000e6;
    const double owed = Bounds{}.starvation_share;
    CHECK(share > 0.75 * owed && share < 1.25 * owed);

    Simulation beside_high;  // a high-priority session that never stops
    beside_high.open(0, 0, 100 * us);
    beside_high.start(0, known(100 * us), false);
    beside_high.open(1, 5, 100 * us);
    beside_high.run_until(beside_high.now + 5000 * ms);
    const double beside = static_cast<double>(beside_high.clients[1].used) / 5000e6;
    CHECK(beside > 0.5 * owed && beside < 1.25 * owed);
}

// Of two that go as early, the one for which it is saved up is the one that is asked for.
TEST(equals_that_came_in_any_order_have_their_share) {
    const auto policy = make_policy("strict", {});
    policy->opened(0, highest_level, 1, 0);
    policy->issued(0, known(ms), ms);  // and it never ends
    for (const unsigned session : {2u, 1u}) {
        policy->opened(session, 5, 1, ms);
        policy->arrived(session, known(ms), ms);
        CHECK(policy->decide(ms + 1).verdict == Verdict::wait);
    }
    CHECK(policy->decide(1000 * ms).verdict == Verdict::whole);
}

TEST(a_change_while_in_flight_keeps_the_accounts) {
    Bounds bounds;
    bounds.starvation_share = 0;
    const auto policy = make_policy("strict", bounds);
    policy->opened(0, 5, 1, 0);
    policy->opened(1, 7, 1, 0);
    policy->arrived(0, known(50 * us), 1 * ms);
    policy->issued(0, gated(known(50 * us)), 1 * ms);
    policy->changed(0, 0, 1, 1 * ms);  // becomes high while its gated work is on the device
    policy->arrived(1, known(50 * us), 1 * ms);
    CHECK(policy->decide(1 * ms).verdict == Verdict::wait);
    policy->completed(0, gated(known(50 * us)), 50 * us, 2 * ms);
    CHECK(policy->decide(2 * ms).verdict == Verdict::whole);
    policy->issued(0, known(50 * us), 3 * ms);  // ungated now
    policy->changed(0, 9, 1, 3 * ms);           // and low while that is on the device
    CHECK(policy->decide(3 * ms).verdict == Verdict::whole);
    policy->completed(0, known(50 * us), 50 * us, 4 * ms);
    policy->closed(0, 4 * ms);
    policy->arrived(1, known(50 * us), 60 * ms);
    CHECK(policy->decide(60 * ms).verdict == Verdict::whole);
    policy->withdrawn(1, 60 * ms);
    CHECK(policy->decide(60 * ms).verdict == Verdict::wait);
    CHECK_EQUAL(policy->decide(60 * ms).again_at, 0);
}

// A session that changes its level brings no claim from the virtual time of its old one.
TEST(a_new_level_is_a_new_start) {
    Simulation simulation;
    simulation.open(0, 5, 50 * us);
    simulation.open(1, 6, 50 * us);
    simulation.run_until(1000 * ms);
    simulation.policy->withdrawn(1, simulation.now);
    simulation.clients[1].waits = false;
    simulation.policy->changed(1, 5, 1.0, simulation.now);
    simulation.clients[1].level = 5;
    simulation.offer(1);
    const Nanoseconds before = simulation.clients[0].used;
    simulation.run_until(simulation.now + 200 * ms);
    CHECK(simulation.clients[0].used - before > 90 * ms);
}

// Nor is what it has had forgotten, as often as it goes there and back.
TEST(who_goes_to_other_levels_and_back_has_no_more_than_its_equals) {
    Simulation simulation;
    simulation.open(0, 5, 1 * ms);
    simulation.open(1, 5, 50 * us);
    while (simulation.now < 1000 * ms) {
        const bool waits = std::exchange(simulation.clients[0].waits, false);
        if (waits) simulation.policy->withdrawn(0, simulation.now);
        for (const int level : {6, 5}) simulation.policy->changed(0, level, 1.0, simulation.now);
        if (waits) simulation.offer(0);
        simulation.step(1000 * ms);
    }
    CHECK(std::abs(static_cast<double>(simulation.clients[0].used - simulation.clients[1].used)) < 20 * ms);
}

// Whoever had it, and whether they are still there; work beside its own is none of it.
TEST(idle_time_is_told_by_who_had_it) {
    for (const char* name : {"strict", "fikit"}) {
        Bounds bounds;
        bounds.partitions = {104};
        const auto policy = make_policy(name, bounds);
        const auto go = [&](unsigned session, Nanoseconds at, unsigned partition = 0) {
            Work work = session == 0 ? known(20 * us) : gated(known(20 * us));
            work.partition = static_cast<uint8_t>(partition);
            policy->issued(session, work, at);
            return work;
        };
        policy->opened(0, highest_level, 1.0, 0);
        for (const unsigned low : {1, 2, 3}) policy->opened(low, 9, 1.0, 0);
        const Work whole = go(1, 20 * us), confined = go(2, 40 * us, 1), other = go(3, 45 * us);
        policy->completed(1, whole, 0, 50 * us);
        policy->completed(3, other, 0, 60 * us);
        policy->closed(1, 60 * us);
        policy->completed(2, confined, 0, 80 * us);
        const Work high = go(0, 100 * us), beside = go(3, 110 * us);
        policy->completed(0, high, 0, 120 * us);
        policy->completed(3, beside, 0, 130 * us);
        go(0, 200 * us);
        const SessionStatistics told = policy->statistics(0);
        CHECK(told.idle_time == 180 * us);
        CHECK(told.idle_filled == 30 * us);
        CHECK(told.idle_confined == 40 * us);
    }
}

TEST(policies_are_found_by_name) {
    CHECK(make_policy("strict", {}) != nullptr);
    CHECK(make_policy("lottery", {}) == nullptr);
}

}  // namespace
