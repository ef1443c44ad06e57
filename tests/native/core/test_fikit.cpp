// The policy `fikit`: properties on random input, and hostile tenants on the simulated GPU in virtual time.
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "policy_tests.hpp"
#include "replay_gate.hpp"

using namespace fikit;
using namespace fikit::scheduling;
using namespace fikit::test;
using replay::Gate;
using replay::Operation;
using replay::Program;
using replay::Random;
using replay::Shape;

namespace {

Work random_work(Random& random) {
    Work work;
    work.key = 1 + random.next() % 40;
    work.known = random.next() % 8 != 0;
    work.per_sm = static_cast<uint16_t>(1 + random.next() % 8);
    work.blocks = static_cast<uint32_t>(1 + random.next() % 5000);
    work.expected = static_cast<Nanoseconds>(1 + random.next() % 400) * us;
    work.longest = work.expected + static_cast<Nanoseconds>(random.next() % 50) * us;
    work.shortest = work.expected;
    const uint32_t slots = 132u * work.per_sm;
    work.waves = (work.blocks + slots - 1) / slots;
    work.block = work.longest / work.waves;
    work.whole = random.next() % 20 == 0;
    work.stream = static_cast<uint8_t>(random.next() % 3);
    return work;
}

// What of the bound on work in flight an operation takes.
Nanoseconds charge_of(const Work& work, const Bounds& bounds) {
    if (!work.known) return std::max(work.expected, bounds.in_flight);
    const uint32_t slots = 132u * work.per_sm, waves = (work.blocks + slots - 1) / slots;
    return work.expected * work.blocks / (slots * waves);
}

// A random history of three high and four gated sessions; what the policy says to it, in one list.
std::vector<int64_t> random_history(uint64_t seed, const Bounds& bounds) {
    Random random(seed);
    const auto policy = make_policy("fikit", bounds);
    for (unsigned session = 0; session < 7; ++session)
        policy->opened(session, session < 3 ? 0 : static_cast<int>(session), 1.0, 0);
    std::array<std::deque<Work>, 7> in_flight;
    std::array<std::optional<Work>, 7> head;
    std::vector<int64_t> said;
    Nanoseconds now = 100 * ms;
    for (int event = 0; event < 4000; ++event, now += static_cast<Nanoseconds>(random.next() % 20) * us) {
        const auto session = static_cast<unsigned>(random.next() % 7);
        switch (random.next() % 3) {
            case 0:
                if (session < 3) {
                    in_flight[session].push_back(random_work(random));
                    policy->issued(session, in_flight[session].back(), now);
                    if (random.next() % 8 == 0) policy->awaited(session, false, now);
                } else if (!head[session]) {
                    head[session] = random_work(random);
                    policy->arrived(session, *head[session], now);
                }
                break;
            case 1:
                if (in_flight[session].empty()) break;
                policy->completed(session, in_flight[session].front(), 0, now);
                in_flight[session].pop_front();
                break;
            default: {
                const Decision decision = policy->decide(now);
                said.insert(said.end(), {static_cast<int64_t>(decision.verdict), decision.session,
                                         decision.partition, decision.again_at});
                if (decision.verdict == Verdict::wait) break;
                const unsigned chosen = decision.session;
                CHECK(chosen >= 3 && head[chosen]);
                Work work = *std::exchange(head[chosen], std::nullopt);
                CHECK(decision.verdict == Verdict::whole || !work.whole);
                // Besides one operation, which may be long, less than the bound is in flight on one stream,
                // and less than twice that of all: of what a kernel takes, the part of the GPU that it fills.
                Nanoseconds before = 0, longest = 0, own = 0, own_longest = 0;
                for (unsigned other = 3; other < 7; ++other)
                    for (const Work& each : in_flight[other]) {
                        const Nanoseconds charge = charge_of(each, bounds);
                        before += charge;
                        longest = std::max(longest, charge);
                        if (other != chosen || each.stream != work.stream) continue;
                        own += each.expected;
                        own_longest = std::max(own_longest, each.expected);
                    }
                CHECK(before - longest < 2 * bounds.in_flight);
                CHECK(own - own_longest < bounds.in_flight);
                work.gated = true;
                work.partition =
                    decision.verdict == Verdict::partition ? static_cast<uint8_t>(decision.partition + 1) : 0;
                in_flight[chosen].push_back(work);
                policy->issued(chosen, work, now);
            }
        }
    }
    return said;
}

TEST(the_bound_holds_and_the_same_input_gives_the_same_decisions) {
    for (uint64_t seed = 1; seed <= 30; ++seed)
        CHECK(random_history(seed, with_partitions()) == random_history(seed, with_partitions()));
}

// A session's launches in turn on `streams` streams, while no high session is there: how many are issued.
unsigned issued_at_once(Work work, unsigned streams) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 5, 1.0, 0);
    work.key = 1;
    work.known = work.gated = true;
    work.longest = work.shortest = work.expected = 10 * ms;
    work.waves = 1;
    for (unsigned launch = 0; launch < 40; ++launch) {
        work.stream = static_cast<uint8_t>(launch % streams);
        policy->arrived(0, work, ms);
        if (policy->decide(ms).verdict != Verdict::whole) return launch;
        policy->issued(0, work, ms);
    }
    return 40;
}

// Long ones run side by side where there is room for them, one more waits behind each; what fills the GPU is
// issued one by one.
TEST(small_kernels_on_several_streams_are_in_flight_together) {
    Work small, large;
    small.blocks = 1;
    large.blocks = 132;
    small.per_sm = 16;
    CHECK_EQUAL(issued_at_once(small, 1), 2u);
    CHECK_EQUAL(issued_at_once(small, 8), 16u);
    CHECK_EQUAL(issued_at_once(large, 1), 1u);
    CHECK_EQUAL(issued_at_once(large, 8), 1u);
    large.blocks = 33;  // four of them fill it
    CHECK(issued_at_once(large, 8) <= 2);
}

// More short ones than are followed, then long ones that fill the GPU: few of those are in flight, too.
TEST(what_is_not_followed_is_bounded_too) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 5, 1.0, 0);
    Work work;
    work.key = 1;
    work.known = work.gated = true;
    work.blocks = 132;
    work.waves = 1;
    const auto issue_all = [&](unsigned most) {
        for (unsigned launch = 0; launch < most; ++launch) {
            policy->arrived(0, work, ms);
            if (policy->decide(ms).verdict != Verdict::whole) return launch;
            policy->issued(0, work, ms);
        }
        return most;
    };
    work.expected = work.longest = work.shortest = us;
    CHECK_EQUAL(issue_all(100), 100u);
    work.expected = work.longest = work.shortest = ms;
    CHECK(issue_all(100) <= 2);
    policy->withdrawn(0, ms);
    Work over = work;
    over.expected = over.longest = over.shortest = us;
    for (unsigned launch = 0; launch < 100; ++launch) policy->completed(0, over, 0, 2 * ms);
    CHECK(issue_all(100) <= 2);
}

Operation kernel(uint64_t key, Nanoseconds at, uint32_t blocks, uint16_t per_sm, Nanoseconds block) {
    Operation operation;
    operation.key = key;
    operation.at = at;
    operation.shape.unit = Shape::Unit::multiprocessors;
    operation.shape.blocks = blocks;
    const sim::BlockShape shape = sim::block_shape(256, 16, per_sm == 1 ? 100'000 : 0);
    operation.shape.block = replay::Resources(shape);
    operation.shape.per_sm = static_cast<uint16_t>(sim::blocks_per_sm(shape));
    operation.shape.duration = block;
    const uint32_t slots = 132u * operation.shape.per_sm;
    operation.duration = (blocks + slots - 1) / slots * block + us;
    return operation;
}

// Sixty kernels of 100 blocks with gaps, then a wait and a pause: 2 ms.
Program inference() {
    Program program;
    program.name = "inference";
    for (unsigned number = 0; number < 60; ++number)
        program.operations.push_back(kernel(1 + number % 7, number * 30 * us, 100, 8, 4 * us));
    program.iterations = {{program.operations.size(), 200 * us}};
    return program;
}

struct Outcome {
    Nanoseconds worst, late;  // iterations: the longest, and the 99th percentile
    SessionStatistics high, low;
    double work;
};

Outcome beside(Program hostile, unsigned copies = 1, const Program& service = inference()) {
    hostile.iterations = {{hostile.operations.size(), 0}};
    replay::Settings settings;
    settings.bounds = with_partitions();
    settings.warmup = 500 * ms;
    settings.seconds = 1000 * ms;
    const std::vector<Program> high{service}, low(copies, hostile);
    Gate gate(high, low, settings);
    replay::Result result;
    gate.run(result);
    auto& iterations = result.high[0].iterations;
    CHECK(!iterations.empty());
    std::sort(iterations.begin(), iterations.end());
    const replay::TenantResult low_side = copies > 0 ? result.low[0] : replay::TenantResult{};
    return {iterations.back(), iterations[iterations.size() * 99 / 100], result.high[0].statistics,
            low_side.statistics, low_side.work};
}

constexpr Nanoseconds bound = 40 * us;  // 2 % of 2 ms

Nanoseconds alone() {
    static const Nanoseconds worst = beside({}, 0).worst;
    return worst;
}

TEST(short_kernels_fill_the_gaps) {
    Program program;
    for (unsigned number = 0; number < 200; ++number)
        program.operations.push_back(kernel(100 + number % 5, 0, 2000, 8, 3 * us));
    const Outcome outcome = beside(program);
    CHECK(outcome.late <= alone() + bound);
    CHECK(outcome.work > 0.75);
    CHECK(outcome.low.filled > 1000);
    CHECK(outcome.high.predicted > 10'000 && outcome.high.met * 100 > outcome.high.predicted * 95);
}

// Long kernels on all of the GPU, with gaps.
Program rendering() {
    Program program;
    program.name = "rendering";
    for (unsigned number = 0; number < 5; ++number)
        program.operations.push_back(kernel(1, number * 3 * ms, 132, 1, 2500 * us));
    program.iterations = {{program.operations.size(), 100 * us}};
    return program;
}

// What was measured behind one of the long kernels would fit into no gap.
TEST(gaps_between_long_kernels_are_filled) {
    Program program;
    const Program service = rendering();
    for (unsigned number = 0; number < 50; ++number)
        program.operations.push_back(kernel(100 + number % 5, 0, 264, 1, 25 * us));
    const Nanoseconds worst = beside({}, 0, service).worst;
    const Outcome outcome = beside(program, 1, service);
    CHECK(outcome.late <= worst + 15 * ms / 50);
    CHECK(outcome.work > 0.12);  // of the 0.17 that are idle
}

// More launches than are remembered, in an order that never repeats, far ahead of the GPU: whoever is in its
// way holds up the next ones, too.
TEST(a_program_far_ahead_is_delayed_by_no_more_than_the_bound) {
    Program service, program;
    service.name = "far ahead";
    Random random(1);
    for (unsigned number = 0; number < 20'000; ++number) {
        const auto blocks = static_cast<uint32_t>(1 + random.next() % 500);
        service.operations.push_back(kernel(blocks, number * 2600, blocks, 8, 3 * us));
    }
    service.iterations = {{service.operations.size(), 100 * us}};
    for (unsigned number = 0; number < 50; ++number)
        program.operations.push_back(kernel(1000 + number % 5, 0, 264, 1, 25 * us));
    const Nanoseconds worst = beside({}, 0, service).worst;
    CHECK(beside(program, 1, service).late <= worst + worst / 25);
    for (unsigned number = 0; number < 20'000; ++number)  // nothing is ever known of these
        program.operations.push_back(kernel(10'000 + number, 0, 264, 1, 25 * us));
    program.operations.erase(program.operations.begin(), program.operations.begin() + 50);
    CHECK(beside(program, 1, service).late <= worst + worst / 25);
}

TEST(a_flood_delays_by_no_more_than_the_bound) {
    Program program;
    for (unsigned number = 0; number < 1000; ++number)
        program.operations.push_back(kernel(100, 0, 20'000, 8, 10 * us));
    const Outcome outcome = beside(program, 4);
    CHECK(outcome.late <= alone() + bound);
    CHECK(outcome.worst <= alone() + bound + 10 * us);
}

TEST(a_kernel_of_ten_seconds_delays_by_no_more_than_the_bound) {
    Program program;
    program.operations.push_back(kernel(100, 0, 132, 1, 10'000 * ms));
    const Outcome outcome = beside(program);
    CHECK(outcome.worst <= alone() + bound);
    CHECK_EQUAL(outcome.low.filled, 0u);
}

TEST(ever_new_shapes_delay_by_no_more_than_the_bound) {
    Program program;
    for (unsigned number = 0; number < 4000; ++number)
        program.operations.push_back(kernel(1000 + number, 0, 132 + number, 1, 200 * us));
    const Outcome outcome = beside(program);
    CHECK(outcome.worst <= alone() + bound);
    CHECK(outcome.low.confined > 0);
}

// Short for so long that its profile is sure of it, then a block of 5 ms, then short again: one block delays,
// and the next long one does not; the delay is put down to it.
TEST(lengths_that_alternate_delay_by_one_block_and_are_named) {
    Program program;
    for (unsigned number = 0; number < 600; ++number)
        program.operations.push_back(kernel(100, 0, 132, 1, number % 60 == 59 ? 5 * ms : 5 * us));
    const Outcome outcome = beside(program);
    CHECK(outcome.worst <= alone() + bound + 6 * ms);
    CHECK(outcome.late <= alone() + bound);
    CHECK(outcome.low.surprises > 0);
    if (outcome.high.delays.worst > 100 * us) CHECK_EQUAL(outcome.high.blames, 1);
}

// As long as the high kernels that it would otherwise wait for.
TEST(lengths_that_alternate_do_not_hide_behind_long_kernels) {
    Program program;
    for (unsigned number = 0; number < 60; ++number)
        program.operations.push_back(kernel(100, 0, 132, 1, number % 20 == 19 ? 5 * ms : 50 * us));
    const Outcome outcome = beside(program, 1, rendering());
    CHECK(outcome.low.surprises > 0);
    CHECK(outcome.high.over_bound * 10 < outcome.high.steps);
}

// What is in flight delays as well as what is to come: neither is taken for gone.
TEST(long_kernels_in_a_row_delay_by_no_more_than_the_bound) {
    Program program;
    for (unsigned number = 0; number < 12; ++number)
        program.operations.push_back(
            kernel(100 + number, 0, 132 * (2 + number % 8), 1, (50 + number * 20) * us));
    const Outcome outcome = beside(program);
    CHECK(outcome.late <= alone() + bound);
    CHECK(outcome.worst <= alone() + bound + 270 * us);
    CHECK(outcome.work > 0.5);
}

// The same kernel sixty times, as long as most of the time between two, which lasts several times as long
// beside what takes the memory's bandwidth: its slowness is learnt, and is no news of the kernel itself.
TEST(kernels_that_slow_each_other_down_delay_by_no_more_than_the_bound) {
    Program service;
    service.name = "service";
    for (unsigned number = 0; number < 60; ++number) {
        service.operations.push_back(kernel(1, number * 30 * us, 64, 8, 22 * us));
        service.operations.back().shape.interference.sensitivity = 1;
    }
    service.iterations = {{service.operations.size(), 50 * us}};
    Program memory;
    for (unsigned number = 0; number < 60; ++number) {
        memory.operations.push_back(kernel(100, 0, 2048, 8, 40 * us));
        memory.operations.back().shape.interference.pressure = 2;
    }
    const Nanoseconds undisturbed = beside({}, 0, service).late;
    const Outcome outcome = beside(memory, 1, service);
    CHECK(outcome.late <= undisturbed + bound);
    CHECK(outcome.work > 0.1);
    CHECK(outcome.high.over_bound * 10 < outcome.high.steps);
    CHECK(outcome.high.slowed_time * 5 > outcome.high.beside_time);
    CHECK_EQUAL(outcome.low.slowed_caused, outcome.high.slowed_time);
    CHECK(outcome.high.trust > 0 && outcome.high.trust <= 1);
}

// The bound is a share of what an answer takes, not of the time until the next question.
TEST(pauses_allow_no_longer_delays) {
    Program service = inference();
    service.iterations = {{service.operations.size(), 30 * ms}};
    Program training;
    for (unsigned number = 0; number < 12; ++number)
        training.operations.push_back(
            kernel(100 + number, 0, 132 * (2 + number % 8), 1, (50 + number * 20) * us));
    const Nanoseconds undisturbed = beside({}, 0, service).late;
    const Outcome outcome = beside(training, 1, service);
    CHECK(outcome.late <= undisturbed + bound);
    CHECK(outcome.high.bound <= 45 * us);
    CHECK(outcome.work > 0.5);
}

// Sixteen launches 50 us apart, then a wait; `pause` before the ninth.
void iteration(Sequence& sequence, Nanoseconds& now, Nanoseconds pause) {
    Work work;
    work.known = true;
    work.expected = work.shortest = 10 * us;
    for (unsigned number = 0; number < 16; ++number, now += 50 * us) {
        if (number == 8) now += pause;
        work.key = 1 + number;
        sequence.launched(work, now, 0);
    }
    sequence.awaited(0, 0, 0);
    now += 100 * us;
}

TEST(a_pause_that_comes_once_is_no_slack) {
    const auto sequence = std::make_unique<Sequence>();
    Nanoseconds now = ms;
    for (int step = 0; step < 10; ++step) iteration(*sequence, now, 0);
    CHECK(sequence->known());
    CHECK_EQUAL(sequence->period(), 16u);
    const Nanoseconds usual = sequence->slack(sequence->next());
    CHECK(usual > 500 * us && usual < 15 * 40 * us + us);
    iteration(*sequence, now, 10 * ms);
    CHECK(sequence->slack(sequence->next()) < usual + 50 * us);
    for (int step = 0; step < 60; ++step) iteration(*sequence, now, 10 * ms);
    CHECK(sequence->slack(sequence->next()) > 9 * ms);  // but one that stays is
}

// By how far behind a wait they come: the pause is foreseen, and the iteration is as long as it is.
TEST(launches_of_one_kernel_are_told_apart) {
    const auto sequence = std::make_unique<Sequence>();
    Work work;
    work.key = 1;
    work.known = true;
    work.expected = 10 * us;
    Nanoseconds now = ms;
    for (unsigned launch = 0; launch < 60 * 40; ++launch, now += 50 * us) {
        sequence->launched(work, now, 0);
        if (launch % 40 < 39) continue;
        sequence->awaited(0, 0, 0);
        now += ms;
    }
    CHECK(sequence->known());
    CHECK_EQUAL(sequence->period(), 40u);
    CHECK_EQUAL(sequence->at(sequence->next()).ordinal, 0u);
    CHECK(sequence->at(sequence->next()).gap > 900 * us);
}

TEST(none_starves) {
    Program whole;
    whole.operations.push_back(kernel(100, 0, 132, 1, ms));
    whole.operations.back().whole = true;
    const Outcome outcome = beside(whole);
    CHECK(outcome.low.filled > 0);
    CHECK(outcome.work > Bounds{}.starvation_share * 0.7);
}

TEST(the_largest_grid_has_as_many_waves_as_it_takes) {
    CHECK(waves(UINT32_MAX, 132 * 8) == 4'067'204);
    CHECK(waves(UINT32_MAX, UINT32_MAX) == 1);
    CHECK(waves(133, 132) == 2 && waves(132, 132) == 1 && waves(0, 132) == 0);
}

// Behind a short one, of another stream. Seconds of more blocks than are counted exceed any number.
TEST(the_largest_grid_counts_as_in_flight) {
    const auto policy = make_policy("fikit", with_partitions());
    policy->opened(0, 5, 1.0, 0);
    Work longest = large();
    longest.gated = true;
    for (uint8_t stream = 0; stream < 3; ++stream) {
        longest.stream = stream;
        policy->arrived(0, longest, ms);
        CHECK_EQUAL(policy->decide(ms).verdict == Verdict::whole, stream < 2);
        policy->issued(0, longest, ms);
        longest.blocks = UINT32_MAX;
        longest.waves = waves(longest.blocks, 132 * longest.per_sm);
        longest.expected = longest.shortest = longest.longest = UINT32_MAX;
    }
}

}  // namespace
