// What is known of each kernel key: durations measured on the device. Fixed size, open addressing, no
// allocation after construction; the dispatch thread alone touches it. Entries never move, but a new key may
// take the place of one that was not launched lately: who points at an entry compares the key.
//
// A key is (module content, function, grid, block, dynamic shared bytes); the device model is the profile's
// own (one executor, one device). A launch is measured (a timing event before and after, 4.75 us on the
// H200) while the key is new, and where that takes no more than a 512th of the kernels' time, until its
// window is full; then ever more rarely, until one takes far longer.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "clock.hpp"
#include "scheduling/policy.hpp"

namespace fikit {

struct KernelName {
    uint64_t module_hash = 0;
    std::string function;
};

struct KernelShape {
    uint32_t grid[3] = {1, 1, 1};
    uint32_t block[3] = {1, 1, 1};
    uint32_t shared_bytes = 0;
    uint64_t blocks() const { return uint64_t{grid[0]} * grid[1] * grid[2]; }
};

constexpr uint64_t mix(uint64_t hash, uint64_t value) {  // splitmix64's finaliser over a running hash
    hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    return hash ^ (hash >> 27);
}

uint64_t hash_bytes(const void* data, size_t size);

// From the launch of one kernel to that of the next in the same session, by the pair of them: FIKIT's SG.
struct KernelGap {
    static constexpr uint32_t window = 8;
    uint64_t before = 0;  // key of the first; 0: none
    uint32_t samples = 0, median = 0;
    std::array<uint32_t, window> times{};
    void measured(Nanoseconds time);
};

// The kernels that were launched last on a stream.
class Predecessors {
  public:
    void launched(uint64_t key) { keys_[next_++ % count] = key; }
    uint64_t hash() const {
        uint64_t hash = 0;
        for (uint32_t at = 0; at < count; ++at) hash = mix(hash, keys_[(next_ + at) % count]);
        return hash;
    }

  private:
    static constexpr uint32_t count = 4;
    std::array<uint64_t, count> keys_{};
    uint32_t next_ = 0;
};

struct KernelEntry {
    static constexpr uint32_t window = 16;
    static constexpr uint32_t known_after = 3;
    static constexpr uint32_t rarest = 256;
    static constexpr uint32_t apart = 32;  // launches; who launches far ahead had every other one measured
    static constexpr uint32_t worth = 2'560'000;  // ns of launches for each one that is measured are enough
    static constexpr uint32_t accidents = 2;  // durations in a row far from what is known that change nothing
    static constexpr uint32_t varies = 64;    // so many such durations: it is no reason to look more often
    static constexpr uint32_t mixed_after = 8, mixed_by = 20'000;  // measured launches; ns
    static constexpr uint32_t lately = 64;                         // measured launches

    uint64_t key = 0;
    KernelShape shape;
    uint32_t name = 0;  // index into Core::names_
    uint32_t waves = 1;
    scheduling::Work work;  // what policies are told of a launch; its `expected` is 0 before any measurement
    uint32_t samples = 0;   // measured launches
    uint32_t recent = 0;    // of them, since what was known before turned out not to hold any more
    uint32_t undisturbed = 0;      // of those, up to `known_after`
    uint32_t least = 0;            // of them, without what others may have taken
    uint32_t median = 0, p95 = 0;  // nanoseconds, of the window
    uint32_t shortest = 0;  // undisturbed: smoothed over launches beside nothing; the others only lower it
    uint32_t until_sample = 0, interval = 1;
    uint32_t wrong = 0, wrong_in_a_row = 0;  // durations less than half or more than twice of what was known
    std::array<uint32_t, 2> rare{};          // of those, the last two that surely were longer; 0: none lately
    uint32_t rare_for = 0;                   // that is forgotten after so many more that are measured
    bool changed = false;                    // listed in Profile
    bool launched = false;                   // since its place was last wanted
    // Its launches take times that the key does not tell apart: there are entries of what it comes behind.
    bool mixed = false;
    KernelEntry* any = nullptr;  // of such an entry: that of all launches of the key, as long as it has it
    std::array<uint32_t, window> durations{}, sure{};  // sure: without what others may have taken
    std::array<KernelGap, 2> gaps{};                   // after the kernels that mostly come before this one

    bool known() const { return recent >= known_after; }
    // What is known of it comes from beside others' work, and there was not much of that either.
    bool doubtful() const { return known() && undisturbed < known_after && recent < window; }
    // Waves of blocks that so many multiprocessors need.
    uint32_t waves_on(uint32_t multiprocessors) const {
        const uint64_t slots = uint64_t{multiprocessors} * work.per_sm;
        return static_cast<uint32_t>(std::min<uint64_t>((shape.blocks() + slots - 1) / slots, UINT32_MAX));
    }

    // Should this launch be measured? Counts the launch.
    bool sample_now() {
        launched = true;
        if (until_sample > 0) {
            --until_sample;
            return false;
        }
        sample_again();
        return true;
    }
    // One launch in so many is measured, at the least. A window that is full tells of the more of them the
    // longer it took to fill. As long as one that was far longer may come again soon, it is not enough.
    uint32_t rarely() const {
        const bool enough = recent >= window && (rare_for == 0 || wrong >= varies);
        return enough ? rarest : std::clamp(worth / std::max(median, 1u), 1u, rarest);
    }
    // `multiprocessors`: those that the launch was confined to, or 0. What is kept is the duration on all.
    // `others`: for so long work of the other side may have kept it from the GPU (beside.hpp): that it lasted
    // longer by that is no news.
    void measured(Nanoseconds duration, uint32_t multiprocessors = 0, Nanoseconds others = 0);
    // The session launched `before` so long before this one.
    void follows(uint64_t before, Nanoseconds time);
    // What another executor has measured of it, as if that had been here.
    void recall(uint32_t measured, uint32_t usual, uint32_t longest, uint32_t undisturbed_time);
    KernelEntry& of_key() { return any != nullptr && any->key == work.key ? *any : *this; }
    void is_part_of(KernelEntry& all);
    void tell();  // brings `work` up to date
    void sample_again();
    void forget();

  private:
    void compare(uint32_t own, bool far);
    void keep(uint32_t told, uint32_t own, bool disturbed);
    bool summarise();
    void look_again(bool unsettled);
};

// How long a kernel takes that was never measured, by those of its session that were.
class UsualKernel {
  public:
    static constexpr Nanoseconds least = 1000;  // no kernel is expected to take less

    void measured(const KernelEntry& kernel) {
        const Nanoseconds takes = kernel.shortest;
        mean_ += mean_ == 0 ? takes : (takes - mean_) / 16;
    }
    // A high session's is like its others: taken for longer, it would hide by what others make it late. Of
    // another `most` is expected.
    Nanoseconds guess(bool high, Nanoseconds most) const {
        return high && mean_ > 0 ? std::min(mean_, most) : most;
    }

  private:
    Nanoseconds mean_ = 0;  // the latest ones above all
};

// The entry of a launch that comes behind others. A key does not always tell a length: kernels that cover the
// GPU with a block for each SM, which take one tile after another (matrix products and attention of the
// libraries for Hopper), have one grid for all sizes. As programs repeat themselves, what comes before tells.
template <class Find>
KernelEntry& behind(const Predecessors& before, KernelEntry& all, Find find) {
    all.launched = true;
    KernelEntry& entry = find(mix(all.key, before.hash()));
    if (&entry != &all && entry.any != &all) entry.is_part_of(all);
    return entry;
}

class Profile {
  public:
    static constexpr uint32_t capacity = 1u << 15;
    static constexpr uint32_t places = 16;  // where a key may be

    Profile() : slots_(std::make_unique<KernelEntry[]>(capacity)) { changed_.reserve(capacity); }

    // The entry of the key, made when there is none: in the first place that is free, or whose kernel was not
    // launched since a place of these was last wanted.
    KernelEntry& find(uint64_t key, bool& fresh) {
        KernelEntry* free = nullptr;
        for (uint32_t place = 0; place < places; ++place) {
            KernelEntry& entry = at(key, place);
            fresh = entry.key != key;
            if (!fresh) return entry;
            if (entry.key == 0) {
                free = &entry;
                break;
            }
        }
        for (uint32_t place = 0; free == nullptr; ++place) {
            KernelEntry& entry = at(key, place % places);
            if (!std::exchange(entry.launched, false)) free = &entry;
        }
        const bool listed = free->changed;
        *free = {};
        free->key = key;
        free->changed = listed;
        return *free;
    }

    // A launch of the entry's took so long; as KernelEntry::measured.
    void measured(KernelEntry& entry, Nanoseconds duration, uint32_t multiprocessors,
                  Nanoseconds others = 0) {
        entry.measured(duration, multiprocessors, others);
        KernelEntry& told = entry.any != nullptr ? *entry.any : entry;
        if (told.changed) return;
        told.changed = true;
        changed_.push_back(&told);
    }
    // Visits entries that were measured since they were last visited, so many at most. False: there are no
    // more.
    template <class Visit>
    bool visit_changed(size_t most, Visit visit) {
        for (; most > 0 && !changed_.empty(); --most) {
            KernelEntry& entry = *changed_.back();
            changed_.pop_back();
            entry.changed = false;
            if (entry.samples > 0) visit(entry);  // not forgotten meanwhile
        }
        return !changed_.empty();
    }
    // Forgets what was measured of the slots [from, from + count); keys stay.
    void forget(uint32_t from, uint32_t count) {
        for (uint32_t at = from; at < std::min(from + count, capacity); ++at)
            if (slots_[at].key != 0) slots_[at].forget();
    }

    static uint64_t key_of(uint64_t function_hash, const KernelShape& shape) {
        uint64_t hash = mix(function_hash, uint64_t{shape.grid[0]} << 32 | shape.grid[1]);
        hash = mix(hash, uint64_t{shape.grid[2]} << 32 | shape.block[0]);
        hash = mix(hash, uint64_t{shape.block[1]} << 32 | shape.block[2]);
        hash = mix(hash, shape.shared_bytes);
        return hash == 0 ? 1 : hash;
    }

  private:
    KernelEntry& at(uint64_t key, uint32_t place) {
        return slots_[(static_cast<uint32_t>(key) + place) & (capacity - 1)];
    }

    std::unique_ptr<KernelEntry[]> slots_;
    std::vector<KernelEntry*> changed_;
};

}  // namespace fikit
