// The policy `fikit`: the share against starvation, among equals and below levels that never stop.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "policy_tests.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

// Whoever needs more of it than its equals, whose work fits, saves it up all the same.
TEST(what_equals_get_in_takes_nothing_of_what_one_saves_for) {
    Bounds bounds = with_partitions();
    bounds.delay_share = 0;
    const auto policy = make_policy("fikit", bounds);
    for (unsigned session = 0; session < 3; ++session) policy->opened(session, session == 0 ? 0 : 5, 1, 0);
    Work high = small(ms), low = small(20 * ms), copy = small(20 * us);
    high.key = 1;
    high.blocks = 1320;
    low.key = 2;
    low.blocks = 1320;
    high.per_sm = low.per_sm = 1;
    low.waves = 10;
    copy.engine = Engine::to_device;
    copy.whole = true;
    const std::array works{high, low, copy};
    std::array<int, 3> count{};
    Nanoseconds now = ms;
    policy->arrived(1, low, now);
    policy->arrived(2, copy, now);
    for (; now < 60'000 * ms && count[1] == 0; now += ms) {
        policy->issued(0, high, now);
        for (int turn = 0; turn < 2; ++turn) {
            const Decision decision = policy->decide(now + 1);
            if (decision.verdict == Verdict::wait) continue;
            Work work = works[decision.session];
            work.gated = true;
            policy->issued(decision.session, work, now + 1);
            ++count[decision.session];
            policy->completed(decision.session, work, 0, now + 20 * us);
            policy->arrived(decision.session, works[decision.session], now + 20 * us);
        }
        policy->completed(0, high, 0, now + ms - us);
    }
    CHECK(count[2] > 10'000);
    CHECK_EQUAL(count[1], 1);
    CHECK(now > 30'000 * ms);  // and no sooner than it is owed
}

// Work that never ends leaves the levels below it their share, high sessions or not.
TEST(levels_below_have_their_share_beside_no_high_session) {
    const auto policy = make_policy("fikit", with_partitions());
    std::array<Nanoseconds, 2> used{};
    std::vector<std::pair<unsigned, Nanoseconds>> running;
    Work work = small(5 * us);
    for (unsigned session = 0; session < 2; ++session) {
        policy->opened(session, session == 0 ? 5 : 6, 1, 0);
        policy->arrived(session, work, 0);
    }
    Nanoseconds end = 0;
    for (Nanoseconds now = ms; now < 2000 * ms; now += 5 * us) {
        work.gated = true;
        while (!running.empty() && running.front().second <= now) {
            policy->completed(running.front().first, work, 0, now);
            running.erase(running.begin());
        }
        for (;;) {
            const Decision decision = policy->decide(now);
            if (decision.verdict == Verdict::wait) break;
            work.gated = true;
            policy->issued(decision.session, work, now);
            running.emplace_back(decision.session, end = std::max(end, now) + work.expected);
            used[decision.session] += work.expected;
            work.gated = false;
            policy->arrived(decision.session, work, now);
        }
    }
    const double owed = Bounds{}.starvation_share * 2000 * ms;
    CHECK(static_cast<double>(used[1]) > 0.9 * owed && static_cast<double>(used[1]) < 1.1 * owed);
    CHECK(used[0] > 1900 * ms);
}

// What goes on for longer than high sessions are remembered: nothing is to be asked again in the past, which
// whoever asks would take for at once, for as long as that lasts.
TEST(nobody_is_asked_again_in_the_past) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 0, 1, 0);
    policy->opened(1, 5, 1, 0);
    policy->issued(0, small(20 * us), ms);
    Work low = large();
    low.whole = true;
    low.block = low.longest = low.expected = 1000 * ms;
    policy->arrived(1, low, 2 * ms);
    unsigned refused = 0;
    for (Nanoseconds now = 2 * ms; now < 400 * ms; now += ms) {
        const Decision decision = policy->decide(now);
        if (decision.verdict != Verdict::wait) break;
        CHECK(decision.again_at == 0 || decision.again_at > now);
        ++refused;
    }
    CHECK(refused > 200);
}

}  // namespace
