// Policy fikit: graphs of high-priority sessions.
#include "policy_tests.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

// Kernels of a graph come one behind another, so it loses what others have of the GPU all the time that they
// are there; one kernel of a block, as long, would not notice who is confined. What it loses is learnt.
TEST(a_graph_loses_what_others_have) {
    for (const Engine engine : {Engine::graph, Engine::kernel}) {
        const auto policy = make_policy("fikit", with_partitions());
        policy->opened(0, 0, 1, 0);
        policy->opened(1, 5, 1, 0);
        Work high = small(ms), low = large();
        high.key = 1;
        high.engine = engine;
        high.blocks = high.per_sm = 1;
        low.expected = low.longest = low.shortest = 40 * us;
        low.block = 10 * us;
        Nanoseconds now = ms;
        unsigned at_first = 0, later = 0;
        for (unsigned step = 0; step < 400; ++step, now += 3 * ms) {
            policy->issued(0, high, now);
            policy->awaited(0, false, now);
            policy->arrived(1, low, now + 100 * us);
            const Decision decision = policy->decide(now + 100 * us);
            policy->withdrawn(1, now + 100 * us);
            (step < 40 ? at_first : later) += decision.verdict != Verdict::wait;
            // A small one is there all the same, and takes nothing from it.
            Work confined = low;
            confined.gated = true;
            confined.partition = 5;
            policy->issued(1, confined, now + 100 * us);
            policy->completed(1, confined, 0, now + 270 * us);
            policy->completed(0, high, 0, now + ms + 7 * us);
        }
        CHECK(engine == Engine::graph ? at_first == 0 : at_first >= 20);
        CHECK(later >= 200);
        policy->arrived(1, low, now - ms);
        CHECK(policy->decide(now - ms).verdict == Verdict::whole);
    }
}

}  // namespace
