// What is known of kernels: durations as they were measured, by themselves and beside others' work, the gaps
// behind them, and whose place a new one takes.
#include <utility>
#include <vector>

#include "beside.hpp"
#include "check.hpp"
#include "profile.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

TEST(durations_give_median_and_percentile) {
    KernelEntry entry;
    CHECK(!entry.known());
    for (const Nanoseconds duration : {300, 100, 200}) entry.measured(duration);
    CHECK(entry.known());
    CHECK_EQUAL(entry.median, 200u);
    CHECK_EQUAL(entry.p95, 300u);
    KernelEntry many;
    for (Nanoseconds duration = 1; duration <= 40; ++duration) many.measured(duration * 1000);
    CHECK_EQUAL(many.median, 32'000u);  // of the last sixteen: 25 to 40
    CHECK_EQUAL(many.p95, 40'000u);
    KernelEntry extreme;
    extreme.measured(-5);
    CHECK_EQUAL(extreme.median, 1u);
    extreme.measured(int64_t{1} << 40);
    CHECK_EQUAL(extreme.p95, UINT32_MAX);
    many.waves = 4;
    many.tell();
    CHECK_EQUAL(many.work.expected, 32'000);
    CHECK_EQUAL(many.work.longest, 40'000);
    CHECK(many.work.shortest > 10'000 && many.work.shortest < 40'000);  // follows, smoothed
    CHECK_EQUAL(many.work.block, 10'000);
    KernelEntry disturbed = many;  // by others' work: that it lasts longer is no news
    for (int i = 0; i < 40; ++i) disturbed.measured(200'000, 0, 200'000);
    CHECK_EQUAL(disturbed.shortest, many.shortest);
    CHECK_EQUAL(disturbed.wrong, many.wrong);
    many.waves = 0;  // not computed yet
    many.tell();
    CHECK_EQUAL(many.work.block, 40'000);
}

// What waited behind others' work is known to be doubtful until it was measured beside nothing, and then
// those measurements alone count. Later only what others' work can't account for does, beyond twice the
// usual.
TEST(what_others_work_took_is_not_the_kernels) {
    KernelEntry entry;
    for (int i = 0; i < 4; ++i) {
        CHECK(entry.sample_now());  // and so is each launch, meanwhile
        entry.measured(2'500'000, 0, 2'500'000);
    }
    CHECK(entry.work.known && entry.work.at_least == 1);
    CHECK_EQUAL(entry.work.longest, 2'500'000);
    for (int i = 0; i < 2; ++i) entry.measured(50'000);
    CHECK_EQUAL(entry.work.at_least, 1u);
    CHECK_EQUAL(entry.work.shortest, 50'000);
    entry.measured(51'000);
    CHECK(entry.work.known && entry.work.at_least == 0);
    CHECK_EQUAL(entry.work.longest, 51'000);
    for (int i = 0; i < 40; ++i) entry.measured(i % 2 == 0 ? 50'000 : 2'549'000, 0, 2'500'000);
    CHECK(entry.work.longest <= 105'000);
    for (int i = 0; i < 40; ++i) entry.measured(i % 2 == 0 ? 50'000 : 400'000, 0, Beside::some_time);
    CHECK(entry.work.longest <= 105'000);
    for (int i = 0; i < 40; ++i) entry.measured(i % 2 == 0 ? 50'000 : 400'000, 0, 30'000);
    CHECK_EQUAL(entry.work.longest, 370'000);
    KernelEntry confined;
    confined.work.blocks = confined.shape.grid[0] = 132;
    for (int i = 0; i < 3; ++i) confined.measured(40'000, 66);
    CHECK_EQUAL(confined.work.longest, 20'000);
    for (int i = 0; i < 2; ++i) confined.measured(200'000, 66, 60'000);  // so much of it there was others'
    CHECK_EQUAL(confined.work.longest, 70'000);
    KernelEntry never;  // beside nothing: in the end that is what there is
    for (int i = 0; i < 20; ++i) never.measured(2'500'000, 0, 2'500'000);
    CHECK(never.work.known && never.work.at_least == 0);
    KernelEntry first;  // what the first ones took beside others says little of the longest
    for (const Nanoseconds took : {2'900'000, 3'700'000, 1'500'000, 1'600'000, 1'500'000})
        first.measured(took, 0, 2'600'000);
    CHECK_EQUAL(first.work.expected, 1'600'000);
    CHECK_EQUAL(first.work.longest, 1'600'000);
    first.measured(2'900'000, 0, 100'000);  // this does
    CHECK_EQUAL(first.work.longest, 2'800'000);
    KernelEntry most;  // of what it took, others took less
    for (int i = 0; i < 4; ++i) most.measured(2'500'000 + i * 10, 0, 1'000'000);
    CHECK_EQUAL(most.work.at_least, 1'500'000u);
}

// Others' work is what was in flight at any time since an operation was issued, as far as it holds the GPU.
TEST(work_of_the_other_side_is_summed) {
    Beside beside(132);
    scheduling::Work high, low, copy;
    high.blocks = 66;
    high.expected = 20'000;
    low.blocks = 4000;
    low.expected = 50'000;
    low.gated = true;
    copy.engine = scheduling::Engine::to_device;
    copy.expected = 1'000'000;
    const Beside::Entry before = beside.enter(high);
    CHECK(beside.high());
    CHECK_EQUAL(beside.leave(high, before).most, 0);
    CHECK(!beside.high());
    const Beside::Entry early = beside.enter(high), first = beside.enter(low), moved = beside.enter(copy);
    CHECK_EQUAL(beside.leave(high, early).most, Beside::some_time);
    const Beside::Entry late = beside.enter(high);
    const Beside::Others others = beside.leave(low, first);
    CHECK_EQUAL(others.most, 2 * 10'001);  // each on half of the GPU
    CHECK_EQUAL(others.over, 10'001);
    CHECK_EQUAL(beside.leave(high, late).most, Beside::some_time);
    CHECK_EQUAL(beside.leave(copy, moved).most, Beside::some_time);
    const Beside::Entry alone = beside.enter(low);
    CHECK_EQUAL(beside.leave(low, alone).most, 0);
    high.whole = true;  // as wide as nobody knows
    const Beside::Entry second = beside.enter(low), graph = beside.enter(high);
    CHECK_EQUAL(beside.leave(low, second).most, 20'000);
    CHECK_EQUAL(beside.leave(high, graph).most, Beside::some_time);
    CHECK(!beside.high());
}

// New kernels are measured often, settled ones ever more rarely, and one that changes is looked at again.
TEST(sampling_becomes_rare) {
    KernelEntry entry;
    const auto samples_in = [&](int launches, Nanoseconds duration) {
        int samples = 0;
        for (int launch = 0; launch < launches; ++launch)
            if (entry.sample_now()) {
                ++samples;
                entry.measured(duration);
            }
        return samples;
    };
    CHECK_EQUAL(samples_in(3, 10'000), 3);
    CHECK(samples_in(10'000, 10'000) < 60);
    CHECK_EQUAL(entry.interval, KernelEntry::rarest);
    samples_in(5000, 50'000);
    CHECK_EQUAL(entry.median, 50'000u);
}

// What a program launches once a step, many kernels of it, is not measured in one and the same step: that one
// would take far longer than the others.
TEST(kernels_of_a_step_are_measured_in_different_ones) {
    static constexpr uint64_t kernels = 640, steps = 600;
    std::vector<KernelEntry> entries(kernels);
    for (uint64_t kernel = 0; kernel < kernels; ++kernel) entries[kernel].key = mix(0, kernel);
    for (uint64_t step = 0; step < steps; ++step) {
        uint64_t measured = 0;
        for (KernelEntry& entry : entries) {
            if (!entry.sample_now()) continue;
            ++measured;
            entry.measured(2'000);
        }
        if (step > 2 * KernelEntry::known_after) CHECK(measured < kernels / 12);
    }
    for (const KernelEntry& entry : entries) CHECK(entry.recent >= 8);
}

// Of long kernels, few of which are launched, each tells until the window is full, as that takes little of
// the time: what was learnt in a bad moment is soon forgotten.
TEST(the_one_launch_of_a_step_that_lasts_longer_is_found) {
    for (int launches = 2; launches < 10; ++launches)
        for (int longer = 0; longer < launches; ++longer) {
            KernelEntry entry;
            for (int launch = 0; launch < 20 * launches; ++launch)
                if (entry.sample_now()) entry.measured(launch % launches == longer ? 1'400'000 : 400'000);
            CHECK(entry.mixed || entry.work.longest == 1'400'000);
        }
}

// Of twenty launches of a step one lasts eight times as long: that stays known, though the window holds
// sixteen; and the key's launches are told apart. Where it happened once it is soon forgotten, not after
// thousands.
TEST(what_is_rare_but_comes_again_is_remembered) {
    KernelEntry entry;
    uint32_t found = 0, missed = 0;
    for (uint32_t launch = 0; launch < 60'000; ++launch) {
        if (found == 0 && entry.rare[1] != 0) found = launch;
        missed += found != 0 && launch > found && entry.work.longest < 480'000;
        if (entry.sample_now()) entry.measured(launch % 20 == 13 ? 480'000 : 60'000);
    }
    CHECK(found != 0 && found < 4000);
    CHECK_EQUAL(missed, 0u);
    CHECK(entry.mixed);
    KernelEntry once;
    for (int launch = 0; launch < 20'000; ++launch)
        if (once.sample_now()) once.measured(60'000);
    once.measured(480'000);
    CHECK_EQUAL(once.work.longest, 480'000);
    for (int launch = 0; launch < 1200; ++launch)
        if (once.sample_now()) once.measured(60'000);
    CHECK_EQUAL(once.work.longest, 60'000);
    CHECK(!once.mixed);
}

TEST(long_kernels_are_soon_known) {
    KernelEntry entry;
    for (const Nanoseconds duration : {12'900'000, 3'340'000, 3'340'000, 12'900'000, 3'340'000})
        entry.measured(duration);
    CHECK_EQUAL(entry.work.longest, 12'900'000);
    int launches = 0;
    for (; entry.samples < KernelEntry::window; ++launches)
        if (entry.sample_now()) entry.measured(3'340'000);
    CHECK(launches < 30);
    KernelEntry middle;
    for (launches = 0; middle.samples < KernelEntry::window; ++launches)
        if (middle.sample_now()) middle.measured(500'000);
    CHECK(launches < 100);
    KernelEntry small;
    for (launches = 0; small.samples < KernelEntry::window; ++launches)
        if (small.sample_now()) small.measured(10'000);
    CHECK(launches > 300);
}

// One accident is a reason to look again, not to measure every other launch of those that are issued before
// the next duration is known.
TEST(launches_far_ahead_are_not_all_measured) {
    KernelEntry entry;
    for (int launch = 0; launch < 1000; ++launch)
        if (entry.sample_now()) entry.measured(10'000);
    entry.measured(100'000);
    CHECK_EQUAL(entry.interval, 1u);
    int measured = 0;
    for (int launch = 0; launch < 60; ++launch) measured += entry.sample_now();
    CHECK(measured >= 1 && measured <= 2);
    entry.measured(10'000);
    CHECK(entry.interval < KernelEntry::rarest);
}

// As long as little is known, one that lasted far longer than all others counts once there is another:
// others' processes may have had the GPU. Until then each launch tells, so a kernel that is longer at one
// place of seven is soon known to be.
TEST(one_accident_is_not_what_to_expect) {
    KernelEntry entry;
    for (const Nanoseconds duration : {890'000, 5'700'000, 890'000}) entry.measured(duration);
    CHECK_EQUAL(entry.work.longest, 890'000);
    KernelEntry again = entry;
    again.measured(5'700'000);
    CHECK_EQUAL(again.work.longest, 5'700'000);
    int launches = 0;
    for (; entry.samples < KernelEntry::window - 1; ++launches)
        if (entry.sample_now()) entry.measured(900'000);
    CHECK_EQUAL(launches, static_cast<int>(KernelEntry::window) - 4);
    CHECK_EQUAL(entry.work.longest, 900'000);

    KernelEntry uneven;
    int missed = 0;
    for (int launch = 0; launch < 7000; ++launch) {
        if (launch > 120) missed += uneven.work.longest < 1'400'000;
        if (uneven.sample_now()) uneven.measured(launch % 7 == 6 ? 1'400'000 : 440'000);
    }
    CHECK_EQUAL(missed, 0);
}

// A kernel that has other data than before is known anew after a few launches, and it is counted.
TEST(what_no_longer_holds_is_learnt_anew) {
    KernelEntry entry;
    for (int launch = 0; launch < 1000; ++launch)
        if (entry.sample_now()) entry.measured(10'000);
    CHECK_EQUAL(entry.interval, KernelEntry::rarest);
    entry.measured(100'000);  // one may be an accident
    CHECK_EQUAL(entry.median, 10'000u);
    entry.measured(10'000);
    CHECK(entry.known());
    CHECK_EQUAL(entry.wrong, 1u);
    const uint32_t samples = entry.samples;
    for (int launch = 0; launch < 3; ++launch) {
        CHECK(entry.sample_now() || launch == 0);
        entry.measured(3'000);
    }
    CHECK(!entry.known());
    for (int launch = 0; launch < 2; ++launch) {
        CHECK(entry.sample_now());
        entry.measured(3'000);
    }
    CHECK(entry.known());
    CHECK_EQUAL(entry.median, 3'000u);
    CHECK_EQUAL(entry.wrong, 4u);
    CHECK_EQUAL(entry.samples, samples + 5);  // what was forgotten was measured all the same
}

// By another executor, maybe of a daemon before: it counts at once, and is replaced by what is measured here.
TEST(what_was_learnt_elsewhere_is_known_and_looked_at_again) {
    KernelEntry entry;
    entry.recall(40, 50'000, 60'000, 45'000);
    CHECK(entry.work.known);
    CHECK_EQUAL(entry.work.at_least, 45'000u);
    CHECK_EQUAL(entry.work.expected, 50'000);
    CHECK_EQUAL(entry.work.longest, 60'000);
    CHECK(entry.sample_now());
    entry.measured(52'000);
    CHECK_EQUAL(entry.samples, 41u);
    CHECK_EQUAL(entry.median, 50'000u);
    for (int i = 0; i < 3; ++i) {  // it has other data now
        CHECK(i == 2 || entry.sample_now());
        entry.measured(500'000);
    }
    CHECK_EQUAL(entry.median, 500'000u);
    CHECK_EQUAL(entry.work.at_least, 0u);
    KernelEntry little;
    little.recall(2, 50'000, 60'000, 45'000);
    CHECK(!little.work.known);
}

TEST(gaps_are_kept_by_what_came_before) {
    KernelEntry entry;
    for (const Nanoseconds time : {10, 30, 20}) entry.follows(7, time);
    entry.follows(8, 500);
    entry.follows(9, 900);  // takes the place of the rarer one
    CHECK_EQUAL(entry.gaps[0].before, 7u);
    CHECK_EQUAL(entry.gaps[0].median, 20u);
    CHECK_EQUAL(entry.gaps[1].before, 9u);
    CHECK_EQUAL(entry.gaps[1].samples, 1u);
}

KernelShape shape_of(uint32_t grid) {
    KernelShape shape;
    shape.grid[0] = grid;
    return shape;
}

// A program whose shapes never repeat takes the places of its own: what is launched meanwhile stays known.
TEST(a_full_profile_gives_way_to_new_kernels) {
    Profile profile;
    bool fresh = false;
    const uint64_t kept = Profile::key_of(77, shape_of(1));
    for (int i = 0; i < 3; ++i) profile.measured(profile.find(kept, fresh), 5, 0);
    for (uint32_t grid = 2; grid < 4 * Profile::capacity; ++grid) {
        const uint64_t key = Profile::key_of(77, shape_of(grid));
        KernelEntry& entry = profile.find(key, fresh);
        CHECK(fresh && entry.key == key && entry.samples == 0);
        entry.sample_now();
        profile.measured(entry, 5, 0);
        CHECK(&profile.find(key, fresh) == &entry && !fresh);
        if (grid % 64 == 0) profile.find(kept, fresh).sample_now();
    }
    CHECK(profile.find(kept, fresh).known() && !fresh);
    profile.find(Profile::key_of(77, shape_of(2)), fresh);
    CHECK(fresh);
    uint32_t visited = 0;
    CHECK(!profile.visit_changed(SIZE_MAX, [&](const KernelEntry&) { ++visited; }));
    CHECK(visited > Profile::capacity / 2 && visited <= Profile::capacity);
    profile.forget(0, Profile::capacity);
    CHECK(!profile.find(kept, fresh).known() && !fresh);
}

TEST(keys_tell_shapes_apart) {
    KernelShape shape;
    const uint64_t plain = Profile::key_of(1, shape);
    for (uint32_t* word : {&shape.grid[0], &shape.grid[1], &shape.grid[2], &shape.block[0], &shape.block[1],
                           &shape.block[2], &shape.shared_bytes}) {
        const uint32_t before = *word;
        *word = 7;
        CHECK(Profile::key_of(1, shape) != plain);
        *word = before;
    }
    CHECK(Profile::key_of(2, shape) != plain);
    CHECK(hash_bytes("abc", 3) != hash_bytes("abd", 3));
    CHECK(hash_bytes("abc\0", 4) != hash_bytes("abc", 3));
}
// What changed is told once, in pieces.
TEST(changed_entries_are_visited_once) {
    Profile profile;
    bool fresh = false;
    for (uint64_t key = 1; key <= 5; ++key)
        for (int i = 0; i < 3; ++i) profile.measured(profile.find(key, fresh), 100, 0);
    int seen = 0;
    const auto visit = [&](const KernelEntry&) { ++seen; };
    CHECK(profile.visit_changed(3, visit));
    CHECK_EQUAL(seen, 3);
    CHECK(!profile.visit_changed(3, visit));
    CHECK_EQUAL(seen, 5);
    profile.measured(profile.find(2, fresh), 100, 0);
    CHECK(!profile.visit_changed(3, visit));
    CHECK_EQUAL(seen, 6);
    profile.measured(profile.find(2, fresh), 100, 0);
    profile.forget(0, Profile::capacity);
    CHECK(!profile.visit_changed(3, visit));
    CHECK_EQUAL(seen, 6);
    profile.measured(profile.find(2, fresh), 100, 0);
    CHECK(!profile.visit_changed(3, visit));
    CHECK_EQUAL(seen, 7);
}

// One key, two lengths: told apart by the kernels before. The first launch behind some is not measured, as
// there may be no other, and until enough are known the key's own entry tells, and learns.
TEST(kernels_of_several_lengths_are_told_apart_by_what_they_come_behind) {
    Profile profile;
    bool fresh = false;
    const auto find = [&](uint64_t key) -> KernelEntry& { return profile.find(key, fresh); };
    KernelEntry& all = find(7);
    all.work.key = 7;
    for (int i = 0; i < 16; ++i) all.measured(i == 9 ? 900'000 : 100'000 + i * 1000);
    CHECK(!all.mixed);  // an accident, and what they vary by
    for (int i = 0; i < 2; ++i) all.measured(300'000);
    CHECK(all.mixed);
    Predecessors one, other;
    for (const uint64_t key : {1, 2, 3, 4}) one.launched(key);
    for (const uint64_t key : {1, 2, 4, 3}) other.launched(key);
    KernelEntry& behind_one = behind(one, all, find);
    CHECK(&behind_one != &all && &behind_one == &behind(one, all, find));
    CHECK(&behind_one != &behind(other, all, find));
    one.launched(1);
    CHECK(&behind_one != &behind(one, all, find));
    CHECK(!behind_one.sample_now());
    const uint32_t before = all.samples;
    for (uint32_t i = 1; i <= 3; ++i) {
        CHECK(!behind_one.known() && behind_one.sample_now());
        profile.measured(behind_one, 90'000, 0);
        CHECK_EQUAL(all.samples, before + i);
    }
    CHECK(behind_one.known() && !behind_one.sample_now());
    CHECK_EQUAL(behind_one.work.expected, 90'000);
    CHECK_EQUAL(behind_one.work.longest, 90'000);
    CHECK_EQUAL(behind_one.work.key, 7u);
    const uint32_t learnt = all.recent;
    profile.measured(behind_one, 400'000, 0);
    CHECK_EQUAL(all.recent, learnt);
    CHECK_EQUAL(all.samples, before + 4);  // it is a launch of the key that was measured
    int seen = 0;
    profile.visit_changed(10, [&](const KernelEntry& entry) { seen += &entry == &all ? 1 : 100; });
    CHECK_EQUAL(seen, 1);
    all = {};  // another kernel has its place
    all.key = 8;
    profile.measured(behind_one, 400'000, 0);
    CHECK_EQUAL(all.samples, 0u);
    CHECK(&behind_one.of_key() == &behind_one);
}
}  // namespace
