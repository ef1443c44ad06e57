// What a high session's launches take, place by place.
#include <memory>

#include "policy_tests.hpp"
#include "scheduling/sequence.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

// Launches of one key that take differently long, each behind the one before, and a wait after every four.
struct Iterations {
    std::unique_ptr<Sequence> sequence = std::make_unique<Sequence>();
    Nanoseconds now = 0;

    Iterations() { sequence->forget(0); }
    const Sequence::Launch& launch(uint32_t over) {
        Work work = small(30 * us);
        work.key = 1;
        sequence->launched(work, now += 5 * us, over);
        return sequence->last();
    }
    void wait() {
        sequence->awaited(0, 0, 0);
        now += 200 * us;
    }
};

TEST(what_is_measured_at_a_place_counts_there) {
    Iterations made;
    constexpr Nanoseconds takes[] = {10 * us, 20 * us, 30 * us, 100 * us};
    unsigned looked_at = 0;
    for (int iteration = 0; iteration < 60; ++iteration) {
        for (const Nanoseconds time : takes) {
            const bool curious = made.sequence->curious();
            const Sequence::Launch& launch = made.launch(0);
            looked_at += curious;
            if (iteration > 50) CHECK_EQUAL(launch.duration, time);
            if (curious) made.sequence->measured(made.sequence->size() - 1, time, 0);
        }
        made.wait();
    }
    CHECK(looked_at <= 8);  // each place once, but for the first iterations
}

// A service makes more launches than 32 bits count in a day.
TEST(launches_are_told_apart_however_many_there_were) {
    const auto sequence = std::make_unique<Sequence>();
    constexpr uint32_t row = 50, rows = 20;
    sequence->forget(0, (Sequence::Position{1} << 32u) - rows / 2 * row);
    Nanoseconds now = 0;
    for (uint32_t number = 0; number < rows * row; ++number) {
        Work work = small(5 * us);
        work.key = 1 + number % row;
        sequence->launched(work, now += 10 * us, 0);
        sequence->on_another_stream(number % 2, number == 1 ? 0 : -1);
        const Sequence::Position latest = sequence->size() - 1;
        CHECK_EQUAL(sequence->oldest(latest, number % 2), latest);
        CHECK(latest != Sequence::nowhere);
        if (number > 2 * row) CHECK(sequence->known());
        if (number > 2 * row) CHECK(sequence->within(200 * us) >= 19);
        if (number % row == row - 1) sequence->awaited(0, 0, 0);
    }
    CHECK(sequence->met >= (rows - 2) * row);
}

// Rows of four launches, with a wait behind each, of which one was missed: what comes next began a row
// lately, however it came the last time.
TEST(a_wait_is_known_by_what_came_before_it) {
    const auto sequence = std::make_unique<Sequence>();
    sequence->forget(0);
    Nanoseconds now = 0;
    const auto row = [&](bool waits) {
        for (uint64_t key = 1; key <= 4; ++key) {
            CHECK_EQUAL(sequence->may_have_waited(key),
                        key == 1 && !sequence->waited() && sequence->size() > 8);
            Work work = small(5 * us);
            work.key = key;
            sequence->launched(work, now += 10 * us, 0);
        }
        if (waits) sequence->awaited(0, 0, 0);
    };
    for (int number = 0; number < 4; ++number) row(true);
    row(false);
    for (int number = 0; number < 4; ++number) row(true);
    row(false);
    for (int number = 0; number < 3; ++number) {
        CHECK(sequence->may_have_waited(1));
        CHECK(!sequence->may_have_waited(2));
        row(false);
    }
    for (int number = 0; number < 20; ++number)  // that was long ago
        for (uint64_t key = 1; key <= 4; ++key) {
            Work work = small(5 * us);
            work.key = key;
            sequence->launched(work, now += 10 * us, 0);
        }
    CHECK(!sequence->may_have_waited(1));
}

TEST(beside_others_only_much_less_is_news) {
    Iterations made;
    const auto after = [&](Nanoseconds time, uint32_t issued) {
        made.sequence->measured(made.sequence->size() - 1, time, issued);
        for (int number = 0; number < 3; ++number) made.launch(0);
        made.wait();
        return made.launch(0).duration;
    };
    for (int number = 0; number < 13; ++number) {
        made.launch(0);
        if (number % 4 == 3) made.wait();
    }
    CHECK_EQUAL(after(50 * us, 1), 30 * us);  // as of any other
    CHECK_EQUAL(after(40 * us, 0), 40 * us);
    CHECK_EQUAL(after(90 * us, 1), 40 * us);
    CHECK_EQUAL(after(36 * us, 1), 40 * us);
    CHECK_EQUAL(after(20 * us, 1), 35 * us);
    CHECK_EQUAL(after(39 * us, 0), 36 * us);
}

// Foreseen as too long, launches that wait for each other would otherwise end ever later alone.
TEST(what_is_over_is_not_foreseen) {
    Iterations made;
    for (int number = 0; number < 4; ++number) made.launch(0);
    const Nanoseconds end = made.now + 40 * us;
    CHECK(made.sequence->last().alone > end);
    made.sequence->over(end);
    CHECK_EQUAL(made.launch(0).alone, end + 30 * us);
    made.sequence->over(made.sequence->last().alone + us);
    CHECK_EQUAL(made.sequence->last().alone, end + 30 * us);
}

// A launch that found no room comes later than by itself, until its program has caught up or has waited.
TEST(what_was_held_up_was_ready_before) {
    Iterations made;
    const Nanoseconds first = made.launch(0).alone;
    made.now += ms;
    made.sequence->held(ms);
    CHECK_EQUAL(made.launch(0).alone, first + 30 * us);
    made.now += ms;  // its own doing
    const Nanoseconds later = made.launch(0).alone;
    CHECK_EQUAL(later, made.now - ms + Sequence::latency + 30 * us);
    made.sequence->held(0);
    made.now += ms;
    const Nanoseconds caught_up = made.launch(0).alone;
    CHECK_EQUAL(caught_up, made.now + Sequence::latency + 30 * us);
    made.sequence->held(ms);
    made.wait();
    const Nanoseconds anew = made.launch(0).alone;
    CHECK_EQUAL(anew, made.now + Sequence::latency + 30 * us);
}

// Of who tells of its waits they are a step apart, wherever one was presumed between; unless one came between
// that nobody knew of, as of a program that tells of one in a hundred.
TEST(told_waits_are_a_step_apart) {
    for (const bool surprised : {false, true}) {
        Iterations made;
        Work work = small(30 * us);
        for (work.key = 1; work.key <= 12; ++work.key) {  // nothing repeats
            if (work.key == 9) {
                if (surprised) made.sequence->surprised();
                made.wait();
            }
            made.sequence->launched(work, made.now += 5 * us, 0);
        }
        made.wait();
        CHECK_EQUAL(made.sequence->usual(), 4u);
        made.sequence->told(12);
        CHECK_EQUAL(made.sequence->usual(), surprised ? 4u : 12u);
    }
}

// Shapes that never come again: a step resembles the one before it, where two had as many launches.
TEST(steps_of_ever_other_shapes_resemble_each_other) {
    Iterations made;
    uint64_t key = 0;
    const auto step = [&](unsigned launches) {
        for (unsigned ordinal = 0; ordinal < launches; ++ordinal) {
            Work work = small(30 * us);
            work.key = ++key;
            made.sequence->launched(work, made.now += (1 + ordinal) * us, 0);
        }
        made.wait();
    };
    step(6);
    step(6);
    CHECK(!made.sequence->known());
    for (int number = 0; number < 50; ++number) step(6);
    CHECK(made.sequence->known());
    CHECK(!made.sequence->is_sure());
    for (unsigned ordinal = 0; ordinal < 6; ++ordinal) {
        const Sequence::Launch& next = made.sequence->at(made.sequence->next());
        CHECK_EQUAL(next.ordinal, ordinal);
        Work work = small(30 * us);
        work.key = ++key;
        made.sequence->launched(work, made.now += (1 + ordinal) * us, 0);
        CHECK_EQUAL(made.sequence->last().gap, next.gap);
    }
    // Longer than that it is like nothing.
    Work work = small(30 * us);
    work.key = ++key;
    made.sequence->launched(work, made.now += us, 0);
    CHECK(!made.sequence->known());
    made.wait();
    // What comes again is found again, and its steps have lengths of their own.
    for (int number = 0; number < 3; ++number) {
        key = 1000;
        step(6);
    }
    CHECK(made.sequence->is_sure());
    step(7);
    step(6);
    CHECK(!made.sequence->known());
}

}  // namespace
