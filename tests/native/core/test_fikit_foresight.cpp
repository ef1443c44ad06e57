// The policy `fikit`: how far decisions look ahead. High-priority launches wait meanwhile.
#include <algorithm>

#include "policy_tests.hpp"

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
void what_is_hopeless_is_soon_refused() {
    const Looked looked = beside_a_long_kernel(true);
    CHECK(looked.all > 0);
    CHECK(looked.most < 600);
}

// Who never waits may catch up some time, so it takes long to see that it won't. It is not looked at again
// before the launch that waits meanwhile has 15 times as long, at 16 ns for each that is looked at.
void looking_ahead_takes_little_of_the_time() {
    const Looked looked = beside_a_long_kernel(false);
    CHECK(looked.all > 0);
    CHECK(looked.most <= 2 * 1024u);
    CHECK(looked.all * 16 < static_cast<uint64_t>(looked.time) / 15);
}

}  // namespace

int main() {
    what_is_hopeless_is_soon_refused();
    looking_ahead_takes_little_of_the_time();
}
