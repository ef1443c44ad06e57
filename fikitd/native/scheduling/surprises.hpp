// Gated kernels that lasted far longer than their profile has ever seen: for the next launches of the key
// that is what counts, for more of them each time that it is soon again, and anew whenever it is seen to be
// true. How rare it is hardly matters: a step has many launches, and one in a hundred steps is what its p99
// allows. So any such key is believed again only once twice as many steps are over since any surprised.
//
// Work of a high session that is in flight when the kernel is over may have waited for it, or kept it from
// the GPU: nobody can tell yet. If the session turns out not to have been late by that, it was the latter, or
// did no harm, and nothing was learnt. Fixed size; who meets another's place takes it over.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "../clock.hpp"

namespace fikit::scheduling {

class Surprises {
  public:
    // A launch of the key lasted so long, which counts as `longest` of its profile; high sessions have made
    // so many steps. `beside`: who had work in flight then that may have kept it, by bits.
    void surprised(uint64_t key, Nanoseconds lasted, Nanoseconds longest, unsigned beside, uint64_t step) {
        Entry& entry = at(key);
        before_ = entry;
        const bool again = entry.key == key && step - entry.step < soon;
        if (again && counts(entry, step)) longest = std::max(longest, entry.longest);
        entry = {key, longest, step, 0, again ? std::min(grows * entry.counts, most) : least};
        latest_ = &entry;
        step_ = step;
        lasted_ = lasted;
        beside_ = beside;
    }
    // A launch that counted as that long was.
    void confirmed(uint64_t key, uint64_t step) {
        Entry& entry = at(key);
        if (entry.key != key) return;
        entry.step = step_ = step;
        entry.since = 0;
    }
    // What a launch of the key that arrives counts as; 0: as its profile says.
    Nanoseconds arrived(uint64_t key, uint64_t step) {
        Entry& entry = at(key);
        if (entry.key != key || !counts(entry, step)) return 0;
        ++entry.since;
        return entry.longest;
    }
    // What that session has had in flight was late by so much; by nothing, if it is gone.
    void told(unsigned high, Nanoseconds late) {
        if ((beside_ & high) == 0) [[likely]]
            return;
        beside_ &= ~high;
        if (late > lasted_ / 2)
            beside_ = 0;
        else if (beside_ == 0)
            *latest_ = before_;
    }

  private:
    struct Entry {
        uint64_t key = 0;
        Nanoseconds longest = 0;
        uint64_t step = 0;               // when it last was so long
        uint32_t since = 0, counts = 0;  // launches of its key since then; for so many it counts
    };
    static constexpr uint32_t least = 4, grows = 4, most = 1u << 14;  // launches
    static constexpr uint64_t lasts = 192, soon = 2 * lasts;          // steps

    Entry& at(uint64_t key) { return entries_[key % entries_.size()]; }
    bool counts(const Entry& entry, uint64_t step) const {
        return entry.since < entry.counts && step - step_ < lasts && step - entry.step < soon;
    }

    std::array<Entry, 512> entries_{};
    Entry before_;  // what the latest one took the place of
    Entry* latest_ = nullptr;
    uint64_t step_ = 0;
    Nanoseconds lasted_ = 0;
    unsigned beside_ = 0;  // who had work in flight at the latest one that is not over yet
};

}  // namespace fikit::scheduling
