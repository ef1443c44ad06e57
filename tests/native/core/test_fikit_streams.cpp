// The policy `fikit`: high programs whose work is on several streams side by side.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "policy_tests.hpp"
#include "scheduling/sequence.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;

namespace {

// A step of twelve kernels of 30 us on three streams, launched 2 us apart, after a pause of 1 ms. One behind
// another they would take 360 us, on three streams 120 us.
struct Program {
    static constexpr unsigned streams = 3, launches = 12;
    std::unique_ptr<Policy> policy = make_policy("fikit", with_partitions());
    Nanoseconds now = 100 * ms;
    Nanoseconds kernel, apart;

    explicit Program(Nanoseconds length = 30 * us, Nanoseconds gap = 2 * us) : kernel(length), apart(gap) {
        policy->opened(0, 0, 1, 0);
        policy->opened(1, 5, 1, 0);
    }
    Work work(unsigned number) const {
        Work high = small(kernel);
        high.key = 1 + number;
        high.stream = static_cast<uint8_t>(number % streams);
        return high;
    }
    static Work low() {
        Work low = large();
        low.gated = true;
        return low;
    }
    // Each kernel takes so long beside the others. With gated work there all the time, which makes what is
    // launched last late, if that is not negative. `measured`: what each is seen to take; 0: nobody looks.
    void step(Nanoseconds each, Nanoseconds late = -1, Nanoseconds measured = 0) {
        now += ms;
        struct End {
            Nanoseconds at;
            unsigned number;
        };
        std::vector<End> ends;
        std::array<Nanoseconds, streams> busy{};
        if (late >= 0) policy->issued(1, low(), now);
        for (unsigned number = 0; number < launches; ++number, now += apart) {
            policy->issued(0, work(number), now);
            Nanoseconds& end = busy[number % streams];
            end = std::max(end, now + Sequence::latency) + each;
            if (number + 1 == launches) end += std::max<Nanoseconds>(late, 0);
            ends.push_back({end, number});
        }
        policy->awaited(0, false, now);
        std::sort(ends.begin(), ends.end(),
                  [](const End& one, const End& other) { return one.at < other.at; });
        for (const End& end : ends) policy->completed(0, work(end.number), measured, now = end.at + us);
        if (late >= 0) policy->completed(1, low(), 0, now);
    }
    // Beside nothing, each over before the next, on one stream; it finds them over.
    void one_by_one(unsigned count, uint8_t stream) {
        for (unsigned number = 0; number < count; ++number, now += 50 * us) {
            Work each = work(number);
            each.stream = stream;
            policy->issued(0, each, now);
            policy->completed(0, each, 0, now + 35 * us);
        }
        policy->awaited(0, true, now);
    }
    SessionStatistics told() const { return policy->statistics(0); }
};

// What others made the last of them late by is a delay, wherever the rest is, and nothing else is.
TEST(a_delay_is_seen_on_each_stream) {
    Program program;
    for (int step = 0; step < 200; ++step) program.step(program.kernel);
    for (int step = 0; step < 20; ++step) program.step(program.kernel, 0);
    CHECK_EQUAL(program.told().delays.count, 0u);
    CHECK_EQUAL(program.told().steps, 220u);
    CHECK(program.told().step_time > 100 * us && program.told().step_time < 160 * us);
    for (int step = 0; step < 20; ++step) program.step(program.kernel, 40 * us);
    CHECK_EQUAL(program.told().delays.count, 20u);
    CHECK(program.told().delays.sum > 700 * us && program.told().delays.sum < 900 * us);
    CHECK_EQUAL(program.told().over_bound, 20u);
    // Nor does it hide behind what each kernel takes less than it is known to.
    for (int step = 0; step < 20; ++step) program.step(program.kernel * 2 / 3, 30 * us);
    CHECK_EQUAL(program.told().delays.count, 40u);
}

// What they take longer because they share the GPU, or wait for each other, is none of others' doing.
TEST(what_its_streams_take_from_each_other_is_no_delay) {
    Program program;
    for (int step = 0; step < 200; ++step) program.step(2 * program.kernel);
    for (int step = 0; step < 20; ++step) program.step(2 * program.kernel, 0);
    CHECK_EQUAL(program.told().delays.count, 0u);
    for (int step = 0; step < 20; ++step) program.step(2 * program.kernel, 40 * us);
    CHECK_EQUAL(program.told().delays.count, 20u);
}

// Of a session that never is by itself, as what lasts long is always there, the least that was seen tells.
TEST(who_never_is_alone_is_held_to_a_bound_too) {
    Program program;
    for (int step = 0; step < 100; ++step) program.step(2 * program.kernel, step % 3 * 20 * us);
    const uint64_t before = program.told().delays.count;
    for (int step = 0; step < 20; ++step) program.step(2 * program.kernel, 0);
    CHECK_EQUAL(program.told().delays.count, before);
    for (int step = 0; step < 20; ++step) program.step(2 * program.kernel, 40 * us);
    CHECK_EQUAL(program.told().delays.count, before + 20);
}

// How much that is shows beside nothing only. So a step is kept free of others' work now and then, and the
// pause before it, until it is known.
TEST(a_step_is_kept_free_to_measure_it) {
    for (const bool outlasts : {false, true}) {  // what goes lasts until after the next step
        Program program(10 * us, 20 * us);       // leaves the GPU idle for longer than its kernels last
        int first = 0, row = 0, last = 0;        // steps before which it does not go
        bool there = false;
        for (int step = 0; step < 200; ++step) {
            const Nanoseconds now = program.now + 100 * us;
            program.policy->arrived(1, Program::low(), now);
            const bool goes = program.policy->decide(now).verdict != Verdict::wait || step < 20;
            if (goes)
                program.policy->issued(1, Program::low(), now);
            else
                program.policy->withdrawn(1, now);
            program.step(25 * us);
            if (outlasts ? there : goes) program.policy->completed(1, Program::low(), 0, program.now);
            there = goes;
            if (goes) continue;
            if (row == 0) first = step;
            row += step == first + row;
            last = step;
        }
        CHECK_EQUAL(row, outlasts ? 2 : 1);
        if (!outlasts) CHECK_EQUAL(last, first);
        CHECK_EQUAL(program.told().delays.count, 0u);
    }
}

// What a kernel takes depends on what its other streams have on the GPU just then. One that takes less by
// chance, beside others' work, tells nothing of what a step takes alone.
TEST(what_takes_less_beside_others_is_no_news) {
    Program program;
    for (int step = 0; step < 40; ++step) program.step(60 * us, -1, 60 * us);
    for (int step = 0; step < 100; ++step) program.step(60 * us, 0, 30 * us);
    CHECK_EQUAL(program.told().delays.count, 0u);
    program.step(60 * us, 40 * us);
    CHECK_EQUAL(program.told().delays.count, 1u);
}

// What goes by credit is beside each step that is kept free, too. So nothing is learnt then, and it ends.
TEST(credit_keeps_no_step_free_for_ever) {
    Program program(10 * us, 20 * us);
    int row = 0, most = 0, times = 0;
    for (int step = 0; step < 400; ++step) {
        const Nanoseconds now = program.now + 100 * us;
        program.policy->arrived(1, Program::low(), now);
        const bool goes = program.policy->decide(now).verdict != Verdict::wait;
        program.policy->issued(1, Program::low(), now);
        program.step(25 * us);
        program.policy->completed(1, Program::low(), 0, program.now);
        row = goes || step < 20 ? 0 : row + 1;
        most = std::max(most, row);
        times += row == 1;
    }
    CHECK_EQUAL(most, 16);
    CHECK(times > 2);  // it is tried again
}

// A session that is opened anew begins with one stream, whatever the one before it had.
TEST(who_comes_next_begins_with_one_stream) {
    Program program;
    for (int step = 0; step < 10; ++step) program.step(program.kernel);
    program.policy->closed(0, program.now);
    program.policy->opened(0, 0, 1, program.now);
    uint64_t before = 0;
    for (int step = 0; step <= 20; ++step, program.now += ms) {
        if (step == 1) before = program.told().steps;
        program.one_by_one(4, 7);
    }
    CHECK_EQUAL(program.told().delays.count, 0u);
    CHECK_EQUAL(program.told().steps, before + 20);
    Work other = program.work(0);
    other.stream = 7;
    program.policy->issued(0, other, program.now);
    program.step(program.kernel);
    CHECK_EQUAL(program.told().steps, before + 20);  // it waits for that, too
    program.policy->completed(0, other, 0, program.now + ms);
    CHECK_EQUAL(program.told().steps, before + 21);
}

// Nor does it begin with what the one before took from itself where it launches now.
TEST(who_comes_next_meets_anew) {
    Program program;
    for (int step = 0; step < 10; ++step) program.step(2 * program.kernel);
    program.policy->closed(0, program.now);
    program.policy->opened(0, 0, 1, program.now);
    for (int step = 0; step < 3; ++step, program.now += ms) program.one_by_one(Program::launches, 0);
    program.step(program.kernel);
    program.step(program.kernel, 40 * us);
    CHECK_EQUAL(program.told().delays.count, 1u);
}

// Nor is anything of its own over because something was where it is now.
TEST(what_comes_next_is_in_flight) {
    Program program;
    for (int step = 0; step < 10; ++step) program.step(program.kernel);
    program.policy->closed(0, program.now);
    program.policy->opened(0, 0, 1, program.now);
    Work graph = small(ms), low = large();
    graph.key = 99;
    graph.engine = Engine::graph;
    graph.blocks = graph.per_sm = 1;
    low.expected = low.longest = low.shortest = 40 * us;
    low.block = 10 * us;
    for (int step = 0; step < 40; ++step, program.now += 3 * ms) {
        program.policy->issued(0, graph, program.now);
        program.policy->awaited(0, false, program.now);
        program.policy->arrived(1, low, program.now + 100 * us);
        CHECK(program.policy->decide(program.now + 100 * us).verdict == Verdict::wait);
        program.policy->withdrawn(1, program.now + 100 * us);
        program.policy->completed(0, graph, 0, program.now + ms + 7 * us);
    }
}

// A kernel that runs on, on a stream of its own, keeps no step of the others from its end: soon it is none of
// what is in flight.
TEST(what_runs_on_is_left_behind) {
    Program program;
    Work endless = small(ms);
    endless.key = 99;
    endless.stream = 7;
    program.policy->issued(0, endless, program.now);
    constexpr int many = 80'000;
    for (int step = 0; step < many; ++step) program.step(program.kernel);
    CHECK(program.told().steps > many - 1024 / Program::launches - 2);
    for (int step = 0; step < 20; ++step) program.step(program.kernel, 40 * us);
    CHECK_EQUAL(program.told().delays.count, 20u);
    // Once it is over that is nobody else's end.
    Policy& policy = *program.policy;
    const Nanoseconds now = program.now + ms;
    policy.issued(1, Program::low(), now);
    policy.issued(0, program.work(0), now);
    policy.awaited(0, false, now);
    policy.completed(0, endless, 0, now + 5 * us);
    policy.completed(0, program.work(0), 0, now + program.kernel + 60 * us);
    CHECK_EQUAL(program.told().delays.count, 21u);
}

}  // namespace
