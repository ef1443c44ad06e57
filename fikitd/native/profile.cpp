#include "profile.hpp"

namespace fikit {

uint64_t hash_bytes(const void* data, size_t size) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    uint64_t hash = mix(0x66696b6974ull, size);
    for (; size >= 8; size -= 8, bytes += 8) {
        uint64_t word = 0;
        std::memcpy(&word, bytes, 8);
        hash = mix(hash, word);
    }
    uint64_t rest = 0;
    std::memcpy(&rest, bytes, size);
    return mix(hash, rest);
}

// The first `count` in order; what is not measured yet comes last.
template <size_t size>
static std::array<uint32_t, size> in_order(std::array<uint32_t, size> values, uint32_t count) {
    std::fill(values.begin() + count, values.end(), UINT32_MAX);
    std::sort(values.begin(), values.end());
    return values;
}

// One more. What was imported may be as many as can be told: it goes on as a full window.
template <uint32_t window>
static void count_one(uint32_t& samples) {
    if (++samples == 0) samples = window;
}

void KernelEntry::measured(Nanoseconds duration, uint32_t multiprocessors, Nanoseconds others) {
    // Who told how long it takes learns how long it did, and all of the key's launches are counted there.
    if (any != nullptr && any->key == work.key) {
        if (known())
            count_one<window>(any->samples);
        else
            any->measured(duration, multiprocessors, others);
    }
    const auto on_all = [&](Nanoseconds time) {  // it took more waves than on all of them
        if (multiprocessors != 0) time = time * std::max(waves, 1u) / std::max(waves_on(multiprocessors), 1u);
        return static_cast<uint32_t>(std::clamp<Nanoseconds>(time, 1, UINT32_MAX));
    };
    const bool disturbed = others > 0;
    uint32_t told = on_all(duration);
    const uint32_t own = on_all(std::max<Nanoseconds>(0, duration - others));
    least = recent == 0 ? own : std::min(least, own);
    if (disturbed && known() && told / 2 > median) told = std::max(own, 2 * median);
    const bool far = known() && ((told / 2 > median && !disturbed) || told < median / 2);
    compare(own, far);
    keep(told, own, disturbed);
    count_one<window>(samples);
    const uint32_t before = median;
    const bool accident = summarise();
    // The first one beside nothing counts, whatever those before it were.
    if (shortest == 0 || (undisturbed == 1 && !disturbed))
        shortest = told;
    else if (told < shortest)
        shortest -= (shortest - told + 3) / 4;
    else if (!disturbed)  // an accident moves it little
        shortest += std::min(told - shortest, shortest / 4) / 4;
    tell();
    // Once the median holds still, look less often; when it moves, look again.
    const uint32_t moved = before > median ? before - median : median - before;
    look_again(moved > median / 4 || (far && wrong < varies) || accident || doubtful());
}

// One that took so long of its own with what was known; `far`: less than half, or more than twice of that.
void KernelEntry::compare(uint32_t own, bool far) {
    wrong += far;
    wrong_in_a_row = far ? wrong_in_a_row + 1 : 0;
    // One launch in twenty that is longer is out of the window before the next one is in it.
    if (rare_for > 0 && --rare_for == 0) rare = {};
    if (known() && own / 2 > median) {
        rare = {own, rare[0]};
        rare_for = lately;
    }
    // What was learnt no longer holds: the kernel has other data now.
    if (wrong_in_a_row > accidents) {
        recent = undisturbed = wrong_in_a_row = shortest = rare_for = 0;
        rare = {};
    }
}

void KernelEntry::keep(uint32_t told, uint32_t own, bool disturbed) {
    if (disturbed || undisturbed == known_after) {
        durations[recent % window] = told;
        sure[recent % window] = disturbed ? std::min(own, told) : told;
        ++recent;
    } else {  // once there are enough of these, the others are forgotten
        durations[undisturbed] = told;
        sure[undisturbed] = told;
        ++undisturbed;
        recent = undisturbed == known_after ? undisturbed : std::max(recent, undisturbed);
    }
}

// What the window says; whether it has an accident.
bool KernelEntry::summarise() {
    const uint32_t count = std::min(recent, window);
    const auto sorted = in_order(durations, count);
    median = sorted[(count - 1) / 2];
    // In so small a window the 95th percentile is the largest. But what others' work may account for is none
    // of it: a kernel whose first few were long beside that would not go as long as they are in the window.
    // And as long as it is not full the only one that is far from all others is an accident (others'
    // processes may have had the GPU), until it comes again.
    const auto surely = in_order(sure, count);
    const bool accident =
        known() && recent < window && surely[count - 1] / 2 > median && surely[count - 2] / 2 <= median;
    p95 = std::max(median, surely[count - 1 - accident]);
    if (rare[1] != 0) p95 = std::max({p95, rare[0], rare[1]});
    if (count >= mixed_after) {  // an accident is not enough
        const uint32_t longer = std::max(surely[count - 2], std::min(rare[0], rare[1]));
        mixed = mixed || longer - surely[1] > std::max(mixed_by, surely[1] / 2);
    }
    return accident;
}

// When the next launch is measured.
void KernelEntry::look_again(bool unsettled) {
    // There are many entries of what a key comes behind: that would be half of all that is measured.
    interval = unsettled && any == nullptr ? 1 : std::min(interval * 2, rarely());
    if (!known() || interval == 1) until_sample = 0;
    // Kernels that a program launches once a step became known in the same one. From the next time on each is
    // measured in a step of its own.
    else if (recent == known_after + 1)
        until_sample = static_cast<uint32_t>((key >> 32) % std::min(apart, rarely()));
}

void KernelEntry::recall(uint32_t measured, uint32_t usual, uint32_t longest, uint32_t undisturbed_time) {
    samples = measured;
    recent = std::min(measured, known_after);
    undisturbed = 0;  // doubtful: it may have other data here, so the first three beside nothing replace it
    median = usual;
    p95 = std::max(usual, longest);
    shortest = least = undisturbed_time != 0 ? undisturbed_time : usual;
    durations = {p95, shortest, median};
    sure = durations;
    tell();
}

// Begins as an entry of some launches of a key. The first one is not measured: there may be no other.
void KernelEntry::is_part_of(KernelEntry& all) {
    any = &all;
    shape = all.shape;
    name = all.name;
    waves = all.waves;
    work = all.work;
    if (samples == 0) until_sample = 1;
    tell();
}

// Apart from sample_now(), which each launch passes through. Programs repeat themselves: of seven launches of
// a long kernel in each step every seventh would always be the same one. Every so many as a prime has each in
// turn, unless there are as many or a multiple of that: another prime has those.
void KernelEntry::sample_again() {
    static constexpr std::array<uint16_t, 11> primes = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31};
    until_sample = known() ? std::max(interval, std::min(apart, rarely())) : interval;
    if (!known() || until_sample >= apart || until_sample <= 1) return;
    size_t at = 0;
    while (at + 2 < primes.size() && primes[at + 1] <= until_sample + 1) ++at;
    at += recent < window / 2;
    until_sample = primes[at] - 1u;
}

void KernelEntry::follows(uint64_t before, Nanoseconds time) {
    KernelGap* gap = &gaps[0];
    for (KernelGap& each : gaps) {
        if (each.before == before) {
            gap = &each;
            break;
        }
        if (each.samples < gap->samples) gap = &each;
    }
    if (gap->before != before) *gap = {.before = before};
    gap->measured(time);
}

void KernelGap::measured(Nanoseconds time) {
    times[samples % window] = static_cast<uint32_t>(std::clamp<Nanoseconds>(time, 0, UINT32_MAX));
    count_one<window>(samples);
    const uint32_t count = std::min(samples, window);
    median = in_order(times, count)[(count - 1) / 2];
}

void KernelEntry::tell() {
    work.known = known();
    work.at_least = doubtful() ? least : 0;
    work.expected = median;
    work.longest = p95;
    work.shortest = shortest;
    work.waves = waves;
    work.block = p95 / std::max(waves, 1u);
}

void KernelEntry::forget() {
    samples = recent = undisturbed = median = p95 = shortest = until_sample = wrong = wrong_in_a_row =
        rare_for = 0;
    rare = {};
    interval = 1;
    gaps = {};
    tell();
}

}  // namespace fikit
