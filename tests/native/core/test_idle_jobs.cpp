// What is put off until nothing is in flight: when each is done, and in which order.
#include <string>

#include "check.hpp"
#include "idle_jobs.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

constexpr Nanoseconds start = 5'000'000'000, second = 1'000'000'000;
constexpr uint64_t place = uint64_t{1} << 40, page = 4096;

struct Jobs : IdleJobs {
    std::string done_so_far;
    void put(char name, Nanoseconds now, uint64_t first = 0, uint64_t bytes = 0) {
        add([this, name] { done_so_far += name; }, now, first, bytes);
    }
    // `since`: of what is in flight.
    bool runs(bool idle, Nanoseconds now, Nanoseconds since = INT64_MAX) {
        const Run job = take(now, idle, [&] { return since; });
        if (!job) return false;
        job();
        done();
        return true;
    }
};

TEST(in_order_when_nothing_is_in_flight) {
    Jobs jobs;
    CHECK(!jobs.runs(true, start));
    jobs.put('a', start);
    jobs.put('b', start);
    CHECK(!jobs.due(start) && !jobs.runs(false, start));
    const auto first = jobs.take(start, true, [] { return INT64_MAX; });
    CHECK(first && !jobs.runs(true, start));  // one at a time
    first();
    jobs.done();
    CHECK(jobs.runs(true, start) && !jobs.runs(true, start));
    CHECK_EQUAL(jobs.done_so_far, "ab");
}

TEST(those_that_are_due_hold_the_gate_and_follow_one_another) {
    Jobs jobs;
    for (const char name : {'a', 'b', 'c'}) jobs.put(name, start + (name == 'c' ? second : 0));
    const Nanoseconds due = start + IdleJobs::patience;
    CHECK(!jobs.due(due - 1) && jobs.due(due));
    CHECK(!jobs.runs(false, due));
    CHECK(jobs.runs(true, due + 5) && jobs.due(due + 6));
    CHECK(jobs.runs(true, due + 6) && !jobs.due(due + 7));
    CHECK(jobs.due(due + second));
}

TEST(what_never_ends_has_one_now_and_then_forced_upon_it) {
    Jobs jobs;
    jobs.put('a', start);
    jobs.put('b', start);
    const Nanoseconds due = start + IdleJobs::patience, forced = due + IdleJobs::held;
    CHECK(!jobs.runs(false, forced - 1) && jobs.runs(false, forced));
    CHECK(!jobs.due(forced + 1));  // others go on meanwhile
    const Nanoseconds again = forced + IdleJobs::between_forced;
    CHECK(jobs.due(again) && !jobs.runs(false, again));
    CHECK(jobs.runs(false, again + IdleJobs::held) && !jobs.due(again + second));
}

TEST(what_may_never_end_is_not_waited_for) {
    Jobs jobs;
    jobs.put('a', start);
    jobs.put('b', start);
    const Nanoseconds due = start + IdleJobs::patience, later = due + 100 * second;
    CHECK(!jobs.runs(false, later, due) && !jobs.due(later));  // the gate is open meanwhile
    CHECK(jobs.runs(false, later + 1, due + 1) && !jobs.due(later + 2));
    const Nanoseconds again = later + 1 + IdleJobs::between_forced;
    CHECK(jobs.due(again) && jobs.runs(true, again));
    CHECK_EQUAL(jobs.done_so_far, "ab");
}

TEST(an_address_that_is_wanted_is_next) {
    Jobs jobs;
    jobs.put('a', start);
    jobs.put('b', start, place, 4 * page);
    jobs.put('c', start, place + 8 * page, page);
    CHECK(!jobs.has(place + 4 * page, 4 * page, start) && !jobs.has(0, page, start) && !jobs.due(start));
    CHECK(jobs.has(place + 3 * page, 2 * page, start) && jobs.due(start));
    CHECK(jobs.has(place + 3 * page, 2 * page, start + 1) && !jobs.runs(false, start + 1));
    const auto job = jobs.take(start + IdleJobs::held, false, [] { return INT64_MAX; });
    CHECK(job && jobs.has(place, page, start + second));  // until it has run
    job();
    jobs.done();
    CHECK(!jobs.has(place, page, start + second));
    CHECK(jobs.runs(true, start + second) && jobs.runs(true, start + second));
    CHECK_EQUAL(jobs.done_so_far, "bac");
}

TEST(much_pinned_memory_does_not_wait) {
    Jobs jobs;
    jobs.put('a', start, place, IdleJobs::most_bytes);
    CHECK(!jobs.have_much() && !jobs.due(start + second));
    jobs.put('b', start + second, 2 * place, page);
    CHECK(jobs.have_much() && jobs.due(start + second));
    jobs.put('c', start + second, 3 * place, page);
    CHECK(jobs.runs(false, start + second + IdleJobs::held));  // as soon as the first time
    CHECK(!jobs.have_much() && !jobs.due(start + 2 * second));
}

TEST(many_do_not_wait) {
    Jobs jobs;
    for (size_t i = 0; i < IdleJobs::most; ++i) jobs.put('a', start);
    CHECK(!jobs.have_much() && !jobs.due(start + second));
    jobs.put('b', start + second);
    CHECK(jobs.have_much() && jobs.due(start + second));
    CHECK(jobs.runs(false, start + second + IdleJobs::held));
    CHECK(!jobs.have_much() && !jobs.due(start + 2 * second));
}

}  // namespace
