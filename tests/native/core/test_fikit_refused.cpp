// The policy `fikit`: what it refuses whatever high sessions do it does not work out again at each of their
// launches. Another that is told the same but has forgotten that each time it is asked gives the same
// answers.
#include <deque>
#include <random>
#include <vector>

#include "policy_tests.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

class Both {
  public:
    template <class Tell>
    void tell(Tell tell) {
        tell(*keeps_);
        tell(*forgets_);
    }
    Decision decide(Nanoseconds now) {
        // Who comes and goes on a level of its own changes nothing else.
        forgets_->opened(other, lowest_level, 1, now);
        forgets_->closed(other, now);
        const Decision answer = keeps_->decide(now), same = forgets_->decide(now);
        CHECK(answer.verdict == same.verdict && answer.session == same.session);
        CHECK(answer.partition == same.partition && answer.again_at == same.again_at);
        CHECK(keeps_->foreseen() == forgets_->foreseen());
        return answer;
    }
    void check_statistics(unsigned session) const {
        CHECK(keeps_->statistics(session).refused == forgets_->statistics(session).refused);
    }

  private:
    static constexpr unsigned other = max_sessions - 1;
    std::unique_ptr<Policy> keeps_ = make_policy("fikit", with_partitions()),
                            forgets_ = make_policy("fikit", with_partitions());
};

Work gated_kernel(std::mt19937& random) {
    static constexpr Nanoseconds lengths[] = {5 * us, 30 * us, 90 * us, 300 * us, 2 * ms};
    Work work = small(lengths[random() % 5]);
    work.key = 1000 + random() % 40;
    work.gated = true;
    work.blocks = random() % 3 == 0 ? 40 : 4000;
    work.waves = work.blocks == 40 ? 1 : 4;
    work.block = work.expected / work.waves;
    work.known = random() % 16 != 0;
    work.stream = static_cast<uint8_t>(random() % 2);
    return work;
}

// So many gated sessions beside one that launches a kernel each 8 us and mostly waits after twelve. Now and
// then nothing of the gated work is over for long, another executor has high work, a session goes and comes
// again, or the high one pauses.
void ask_both(unsigned seed, unsigned sessions) {
    std::mt19937 random(seed);
    const auto one_in = [&](unsigned so_many) { return random() % so_many == 0; };
    Both both;
    struct InFlight {
        unsigned session;
        Work work;
        Nanoseconds over;
    };
    std::deque<InFlight> high, gated;
    std::vector<bool> waits(sessions + 1);
    std::vector<Work> heads(sessions + 1);
    Nanoseconds now = 100 * ms, next = now, held_until = 0;
    both.tell([&](Policy& policy) {
        policy.opened(0, highest_level, 1, now);
        for (unsigned session = 1; session <= sessions; ++session)
            policy.opened(session, session == 3 ? 7 : 5, 1, now);
    });
    bool busy = false;
    unsigned refused = 0;
    for (unsigned turn = 0; turn < 20'000; ++turn) {
        now += 1 + random() % (one_in(32) ? 2 * ms : 4 * us);
        if (now >= next) {
            const Work work = [&] {
                Work launch = small(6 * us);
                launch.key = 1 + turn % 12;
                launch.blocks = launch.key % 3 == 0 ? 4000 : 16;
                return launch;
            }();
            both.tell([&](Policy& policy) { policy.issued(0, work, now); });
            high.push_back({0, work, now + 10 * us});
            next = now + 8 * us + (one_in(12) ? 300 * us : 0) + (one_in(1000) ? 80 * ms : 0);
        }
        if (one_in(1500)) held_until = now + random() % (200 * ms);
        if (one_in(700)) both.tell([&](Policy& policy) { policy.elsewhere(busy, now); }), busy = !busy;
        for (; !high.empty() && high.front().over <= now; high.pop_front()) {
            const Work work = high.front().work;
            both.tell([&](Policy& policy) { policy.completed(0, work, 0, now); });
            if (high.size() == 1 && one_in(2))
                both.tell([&](Policy& policy) { policy.awaited(0, true, now); });
        }
        for (; !gated.empty() && gated.front().over <= now && now > held_until; gated.pop_front()) {
            const InFlight over = gated.front();
            both.tell([&](Policy& policy) { policy.completed(over.session, over.work, 0, now); });
        }
        for (unsigned session = 1; session <= sessions; ++session) {
            if (!waits[session] && !one_in(3)) {
                heads[session] = gated_kernel(random);
                both.tell([&](Policy& policy) { policy.arrived(session, heads[session], now); });
                waits[session] = true;
            } else if (waits[session] && one_in(300)) {
                both.tell([&](Policy& policy) { policy.withdrawn(session, now); });
                waits[session] = false;
            }
        }
        for (int asked = 0; asked < 3; ++asked) {
            const Decision answer = both.decide(now);
            refused += answer.verdict == Verdict::wait;
            if (answer.verdict == Verdict::wait) break;
            Work work = heads[answer.session];
            work.partition =
                static_cast<uint8_t>(answer.verdict == Verdict::partition ? answer.partition + 1 : 0);
            both.tell([&](Policy& policy) { policy.issued(answer.session, work, now); });
            waits[answer.session] = false;
            const Nanoseconds begins = gated.empty() ? now : std::max(now, gated.back().over);
            gated.push_back({answer.session, work, begins + work.expected + 1000});
        }
    }
    CHECK(refused > 5000);
    for (unsigned session = 0; session <= sessions; ++session) both.check_statistics(session);
}

}  // namespace

int main() {
    for (unsigned seed = 1; seed <= 12; ++seed) ask_both(seed, 1 + seed % 4);
    return 0;
}
