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

// Work that never ends leaves the levels below it their share, high sessions or not.
void levels_below_have_their_share_beside_no_high_session() {
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

}  // namespace

int main() {
    levels_below_have_their_share_beside_no_high_session();
}
