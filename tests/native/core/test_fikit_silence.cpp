// The policy `fikit`: how long a high session that is silent is trusted to go on being so.
#include <cstdint>
#include <memory>
#include <utility>

#include "policy_tests.hpp"
#include "scheduling/silence.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

// Silences of two lengths, as many as that.
Silence of_two_lengths(int silences, Nanoseconds shorter, Nanoseconds longer) {
    Silence silence;
    for (int each = 0; each < silences; ++each) silence.ended(each % 2 == 0 ? shorter : longer, true);
    return silence;
}

TEST(lasts_as_those_did_that_lasted_so_long) {
    const Silence silence = of_two_lengths(64, 3 * ms, 40 * ms);
    CHECK(silence.lasts(1200 * us, 2400 * us));
    // One may be a little shorter, or longer.
    CHECK(!of_two_lengths(64, 2700 * us, 40 * ms).lasts(2 * ms, 2500 * us));
    CHECK(!silence.lasts(3300 * us, 3400 * us));
    CHECK(!silence.lasts(2 * ms, 3 * ms));  // that is when the shorter ones end
    CHECK(!silence.lasts(2 * ms, 4 * ms));  // nor over that
    CHECK(!silence.lasts(3 * ms, 3100 * us));
    CHECK(silence.lasts(4 * ms, 7 * ms));
    CHECK(!silence.lasts(4 * ms, 9 * ms));  // no longer than it has lasted
    CHECK(silence.lasts(20 * ms, 32 * ms));
    CHECK(!silence.lasts(20 * ms, 36 * ms));
    CHECK(silence.lasts(60 * ms, 120 * ms));  // none was as long
    CHECK(silence.lasts(1'000'000 * ms, 2'000'000 * ms));
    CHECK(!silence.lasts(500 * us, 900 * us));  // that is none yet
}

TEST(tells_when_more_is_known) {
    const Silence silence = of_two_lengths(64, 3 * ms, 40 * ms);
    CHECK(silence.tells_at(0) == Silence::shortest);
    for (const Nanoseconds lasted : {2600 * us, 3 * ms, 36 * ms, 40 * ms}) {
        const Nanoseconds then = silence.tells_at(lasted);
        CHECK(then > lasted && then < 2 * lasted);
        CHECK(silence.lasts(then, then + 10 * us));
        CHECK(!silence.lasts(then - 1, then));
    }
    CHECK_EQUAL(Silence{}.tells_at(0), Silence::never);
}

// A few silences tell nothing; where one ended, the next ones are not trusted to last.
TEST(one_is_remembered) {
    CHECK(!of_two_lengths(31, 3 * ms, 40 * ms).lasts(6 * ms, 8 * ms));
    Silence silence = of_two_lengths(32, 3 * ms, 40 * ms);
    CHECK(silence.lasts(6 * ms, 8 * ms));
    for (int others = 0; others < 200; ++others) silence.ended(others % 2 == 0 ? 3 * ms : 40 * ms, true);
    silence.ended(7 * ms, true);
    for (int others = 0; others <= 64; ++others) {
        CHECK(!silence.lasts(6 * ms, 8 * ms));
        CHECK(silence.lasts(10 * ms, 12 * ms));  // it had credit
        silence.ended(3 * ms, true);
    }
    CHECK(silence.lasts(6 * ms, 8 * ms));
}

// Where nothing of others was there, nobody was late for an accident; but there is no credit left for
// another.
TEST(accidents_beside_nothing_keep_nobody_away) {
    for (const int accidents : {1, 2, 7}) {
        Silence silence = of_two_lengths(400, 3 * ms, 40 * ms);
        for (int each = 0; each < accidents; ++each) silence.ended(7 * ms << 2 * each, false);
        CHECK(silence.lasts(12 * ms, 15 * ms));
        silence.ended(13 * ms, true);
        CHECK(silence.lasts(18 * ms, 20 * ms) == (accidents == 1));
    }
}

// However they end, few do where they were trusted to last, and who has accidents is not never trusted.
TEST(few_end_where_they_were_trusted_to_last) {
    // Per cent that are of any length; per cent of the time at least that it is trusted.
    for (const auto& [odd, least] : {std::pair{0u, 99}, {1u, 60}, {3u, 15}, {10u, 1}, {100u, 0}}) {
        Silence silence;
        uint32_t random = 1;
        int wrong = 0, trusted = 0;
        constexpr int silences = 10000;
        for (int each = 0; each < silences; ++each) {
            random = random * 1664525 + 1013904223;
            Nanoseconds lasts = random >> 31 == 0 ? 3 * ms : 40 * ms;
            const uint32_t chance = (random >> 8) % 65536;
            if ((random >> 24) % 100 < odd) lasts = (int64_t{1} << chance % 6) * ms + chance * 100;
            wrong += silence.lasts(lasts - 10 * us, lasts);
            trusted += silence.lasts(10 * ms, 11 * ms);
            silence.ended(lasts, true);
        }
        CHECK(wrong <= silences / 128 + 3);
        CHECK(trusted >= silences / 100 * least);
        // However long it was as expected.
        wrong = 0;
        for (int each = 0; each < 100; ++each) {
            random = random * 1664525 + 1013904223;
            const Nanoseconds lasts = (int64_t{1} << (random >> 8) % 6) * ms + (random >> 16) * 100;
            wrong += silence.lasts(lasts - 10 * us, lasts);
            silence.ended(lasts, true);
        }
        CHECK(wrong <= 4);
    }
}

// A service that answers in 0.2 ms, and is asked again after pauses that its launches do not tell apart.
struct Service {
    static constexpr unsigned launches = 20;
    std::unique_ptr<Policy> policy = make_policy("fikit", with_partitions());
    Nanoseconds now = 100 * ms;

    Service() {
        policy->opened(0, 0, 1, 0);
        policy->opened(1, 5, 1, 0);
    }
    // `beside`: others' work, which is over after the first launch.
    void answer(bool beside = false) {
        Work high = small(5 * us), low = small(5 * us);
        low.gated = true;
        if (beside) policy->issued(1, low, now);
        for (high.key = 1; high.key <= launches; ++high.key, now += 10 * us) {
            policy->issued(0, high, now);
            policy->completed(0, high, 0, now + 9 * us);
            if (beside && high.key == 1) policy->completed(1, low, 0, now + 9 * us);
        }
        policy->awaited(0, false, now);
    }
    // May a kernel whose blocks fill the GPU for half a millisecond go, so long after the answer?
    Decision ask(Nanoseconds later) {
        Work low = small(500 * us);
        low.blocks = 132 * 8;
        low.key = 2000;
        low.whole = true;
        policy->arrived(1, low, now + later);
        const Decision decision = policy->decide(now + later);
        policy->withdrawn(1, now + later);
        return decision;
    }
    bool goes(Nanoseconds later) { return ask(later).verdict == Verdict::whole; }
};

TEST(what_would_delay_an_answer_goes_where_none_is_asked_for) {
    Service service;
    uint32_t random = 1;
    const auto pause = [&] {
        random = random * 1664525 + 1013904223;
        return random >> 31 == 0 ? 3 * ms : 40 * ms;
    };
    for (int answer = 0; answer < 20; ++answer, service.now += pause()) service.answer();
    CHECK(!service.goes(4 * ms));  // little is known yet
    for (int answer = 0; answer < 40; ++answer, service.now += pause()) service.answer();
    service.answer();
    CHECK(!service.goes(500 * us));
    CHECK(service.goes(1100 * us));
    CHECK(!service.goes(2200 * us));
    CHECK(service.goes(4 * ms));
    CHECK(service.goes(12 * ms));
    CHECK(!service.goes(33500 * us));
    CHECK(!service.goes(40 * ms));
    // Nothing happens in a silence, so it is asked again when more is known.
    const Nanoseconds silent = service.now + 2300 * us;
    const Decision decision = service.ask(2300 * us);
    CHECK(decision.verdict == Verdict::wait && decision.again_at > silent);
    CHECK(decision.again_at < silent + 2 * ms);
    CHECK(service.goes(decision.again_at - service.now));
    // Work of its own ends it.
    Work high = small(5 * us);
    high.key = 1;
    service.policy->issued(0, high, service.now + 12 * ms);
    CHECK(!service.goes(17 * ms));
    // Who comes next in its place is another.
    service.policy->closed(0, service.now += 20 * ms);
    service.policy->opened(0, 0, 1, service.now);
    service.answer();
    CHECK(!service.goes(4 * ms));
}

TEST(who_is_asked_at_random_is_expected_any_moment) {
    Service service;
    uint32_t random = 1;
    for (int answer = 0; answer < 500; ++answer) {
        service.answer(true);
        random = random * 1664525 + 1013904223;
        service.now += ms + (int64_t{1} << (random >> 16) % 16) * us + (random >> 8) % 4096 * 10 * us;
    }
    service.answer();
    for (Nanoseconds later = 100 * us; later < 30 * ms; later += 300 * us) CHECK(!service.goes(later));
}

}  // namespace
