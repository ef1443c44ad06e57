// When the dispatch thread looks for high work without sleep.
#include <cmath>

#include "check.hpp"
#include "pauses.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

constexpr int64_t us = 1000, ms = 1'000'000;

TEST(who_pauses_as_long_each_time_is_awaited) {
    Pauses pauses;
    int64_t now = 10 * ms;
    pauses.begin(1, now);
    CHECK_EQUAL(pauses.look_at(now + 200 * us), Pauses::never);  // nothing is known yet
    for (uint64_t step = 1; step < 10; ++step) {
        pauses.begin(step, now);
        pauses.end(step, now + ms);  // another session's work
        now += 4 * ms;
        pauses.end(step + 1, now);
    }
    pauses.begin(10, now);
    const int64_t from = pauses.look_at(now + 200 * us);
    CHECK(from > now + 3 * ms && from < now + 4 * ms);
    CHECK_EQUAL(pauses.look_at(now + 4 * ms), now + 4 * ms);
    CHECK_EQUAL(pauses.look_at(now + 5 * ms), Pauses::never);  // it does not come: asleep until it does
    pauses.end(11, now + 9000 * ms);                           // that is nothing to go by
    pauses.begin(11, now + 9000 * ms);
    CHECK_EQUAL(pauses.look_at(now + 9004 * ms), now + 9004 * ms);
}

TEST(who_pauses_for_seconds_is_not) {
    Pauses pauses;
    int64_t now = 0;
    for (uint64_t step = 1; step < 10; ++step) {
        pauses.begin(step, now);
        pauses.end(step + 1, now += 5000 * ms);
    }
    pauses.begin(10, now);
    for (const int64_t later : {200 * us, 4999 * ms, 5000 * ms, 5001 * ms})
        CHECK_EQUAL(pauses.look_at(now + later), Pauses::never);
}

// Which of its pauses comes next nobody knows, but after 5 ms it is none of 2.
TEST(who_pauses_differently_is_awaited_whenever_it_was) {
    Pauses pauses;
    int64_t now = 0;
    uint64_t step = 1;
    for (const int64_t pause : {2 * ms, 12 * ms, 12 * ms, 2 * ms, 70 * ms, 12 * ms, 2 * ms, 2 * ms}) {
        pauses.begin(step, now);
        pauses.end(++step, now += pause);
    }
    pauses.begin(step, now);
    for (const int64_t later : {200 * us, 2 * ms, 11'500 * us, 12 * ms})
        CHECK_EQUAL(pauses.look_at(now + later), now + later);
    const int64_t from = pauses.look_at(now + 5 * ms);
    CHECK(from > now + 10 * ms && from < now + 12 * ms);
    CHECK_EQUAL(pauses.look_at(now + 14 * ms), Pauses::never);  // of 70 ms there was one
    for (int pause = 0; pause < 16; ++pause) {                  // it pauses otherwise now
        pauses.begin(step, now);
        pauses.end(++step, now += 30 * ms);
    }
    pauses.begin(step, now);
    CHECK(pauses.look_at(now + 200 * us) > now + 28 * ms);
}

// By how long its latest pauses were one in ten (of 1 ms) and three in ten (of 3 ms) end where none was
// expected.
TEST(who_is_asked_at_random_and_often_is_awaited_all_the_time) {
    const auto slept = [](int64_t mean) {
        Pauses pauses;
        uint32_t random = 1;
        int64_t now = 0, most = 0, late = 0;
        for (uint64_t step = 1; step <= 4000; ++step) {
            random = random * 1664525u + 1013904223u;
            const double share = (static_cast<double>(random >> 8u) + 0.5) / (1u << 24u);
            const auto pause = static_cast<int64_t>(-std::log(share) * static_cast<double>(mean));
            pauses.begin(step, now);
            most = std::max(most, pause);
            late += pauses.look_at(now + pause) != now + pause;
            pauses.end(step + 1, now += pause);
        }
        pauses.begin(4001, now);
        CHECK_EQUAL(pauses.look_at(now + 2 * most), Pauses::never);  // it does not come: asleep until it does
        return late;
    };
    CHECK(slept(ms) < 40);
    CHECK(slept(3 * ms) < 40);
    CHECK(slept(40 * ms) > 100);  // that would be a core for 25 answers a second
}

}  // namespace
