// Kernels that wait for what comes behind them, under both policies: whatever the gate keeps back while
// something is in flight, it lets go some time.
#include <algorithm>
#include <deque>

#include "policy_tests.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

Work on(uint8_t stream, Nanoseconds expected, bool known) {
    Work work = large();
    work.key = 1 + stream + (known ? 100 : 0);
    work.stream = stream;
    work.known = known;
    work.expected = work.longest = work.shortest = expected;
    work.block = expected / work.waves;
    return work;
}

// Offers the operation and asks as the dispatch core does: at once, when the policy wants to be asked again,
// and beside high work whenever that launches. Returns how long it took; `limit`: it was not issued.
Nanoseconds admit(Policy& policy, unsigned session, Work work, Nanoseconds& now, bool beside,
                  Nanoseconds limit = 10'000 * ms) {
    const Nanoseconds begun = now;
    policy.arrived(session, work, now);
    for (;;) {
        const Decision decision = policy.decide(now);
        if (decision.verdict != Verdict::wait) {
            CHECK(decision.session == session);
            work.gated = true;
            work.partition =
                decision.verdict == Verdict::partition ? static_cast<uint8_t>(decision.partition + 1) : 0;
            policy.issued(session, work, now);
            return now - begun;
        }
        if (now - begun >= limit) return limit;
        CHECK(decision.again_at == 0 || decision.again_at > now);
        Nanoseconds next = begun + limit;
        if (decision.again_at != 0) next = std::min(next, decision.again_at);
        if (beside) {
            policy.issued(0, small(20 * us), now);
            next = std::min(next, now + 30 * us);
            policy.completed(0, small(20 * us), 20 * us, next);
            policy.awaited(0, false, next);
        }
        now = next;
    }
}

// Two or three kernels fill what may be in flight, and end once what a further stream has was issued.
void what_kernels_in_flight_wait_for_is_issued(const char* name, bool beside, Nanoseconds expected,
                                               bool known) {
    const auto policy = make_policy(name, with_partitions());
    Nanoseconds now = 1 * ms;
    if (beside) {
        policy->opened(0, highest_level, 1, now);
        policy->issued(0, small(20 * us), now);
        policy->completed(0, small(20 * us), 20 * us, now += 20 * us);
    }
    policy->opened(1, 5, 1, now);
    policy->opened(2, 5, 1, now);
    CHECK(admit(*policy, 1, on(0, expected, known), now, beside) < 5000 * ms);
    CHECK(admit(*policy, 2, on(1, expected, known), now, beside) < 5000 * ms);
    CHECK(admit(*policy, 1, on(2, expected, known), now, beside) < 5000 * ms);
    CHECK(admit(*policy, 1, on(3, 5 * us, true), now, beside) < 5000 * ms);
    // What goes on while they are there is not kept back again and again, as long as nobody is near.
    for (int round = 0; round < 100; ++round) {
        Work work = on(3, 5 * us, true);
        work.gated = true;
        policy->completed(1, work, 5 * us, now += 5 * us);
        CHECK(admit(*policy, 1, on(3, 5 * us, true), now, beside) < (beside ? 5000 * ms : 1));
    }
}

// Kernels that last long by the profile and wait for each other are issued one by one, on a stream each.
void long_kernels_that_wait_for_each_other_are_issued_soon(const char* name) {
    const auto policy = make_policy(name, with_partitions());
    Nanoseconds now = 1 * ms;
    policy->opened(1, 5, 1, now);
    for (uint8_t stream = 0; stream < 12; ++stream) {
        admit(*policy, 1, on(stream, 1000 * ms, true), now, false);
        admit(*policy, 1, on(stream, 5 * us, true), now, false);
    }
    CHECK(now < 1000 * ms);
}

// A row of long kernels that does get on is as far ahead of the GPU as it was.
void a_row_of_long_kernels_is_not_let_be(const char* name) {
    const auto policy = make_policy(name, with_partitions());
    Nanoseconds now = 1 * ms;
    policy->opened(1, 5, 1, now);
    const Work work = on(0, 50 * ms, true);
    unsigned in_flight = 0, most = 0;
    Nanoseconds ends = 0;
    policy->arrived(1, work, now);
    for (int completed = 0; completed < 100;) {
        const Decision decision = policy->decide(now);
        if (decision.verdict != Verdict::wait) {
            Work issued = work;
            issued.gated = true;
            policy->issued(1, issued, now);
            if (in_flight++ == 0) ends = now + 50 * ms;
            most = std::max(most, in_flight);
            policy->arrived(1, work, now);
        } else if (decision.again_at != 0 && decision.again_at < ends) {
            now = decision.again_at;
        } else {
            Work over = work;
            over.gated = true;
            policy->completed(1, over, 50 * ms, now = ends);
            ends = now + 50 * ms;
            --in_flight;
            ++completed;
        }
    }
    CHECK(most <= 2);
}

}  // namespace

int main() {
    for (const char* name : {"fikit", "strict"}) {
        for (const bool known : {false, true}) {
            what_kernels_in_flight_wait_for_is_issued(name, true, 200 * us, known);
            for (const Nanoseconds expected : {200 * us, 30 * ms, 3'600'000 * ms})
                what_kernels_in_flight_wait_for_is_issued(name, false, expected, known);
        }
        long_kernels_that_wait_for_each_other_are_issued_soon(name);
        a_row_of_long_kernels_is_not_let_be(name);
    }
}
