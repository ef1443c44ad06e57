// Gated kernels that lasted far longer than their profile has ever seen: for the next launches of the key
// that is what counts, and for longer each time that it is soon again.
//
// Work of a high session that is in flight when the kernel is over may have waited for it, or kept it from
// the GPU: nobody can tell yet. If the session turns out not to have been late by that, it was the latter,
// and what was learnt is taken back. Fixed size; who meets another's place takes it over.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "../clock.hpp"

namespace fikit::scheduling {

class Surprises {
  public:
    // A launch of the key lasted so long, which counts as `longest` of its profile. `beside`: who had work in
    // flight then, by bits.
    void surprised(uint64_t key, Nanoseconds lasted, Nanoseconds longest, unsigned beside) {
        Entry& entry = entries_[key % entries_.size()];
        const bool again = entry.key == key && entry.since < soon * entry.counts;
        entry = {key, longest, 0, again ? std::min(2 * entry.counts, most) : least};
        latest_ = &entry;
        lasted_ = lasted;
        beside_ = beside;
    }
    // What a launch of the key that arrives counts as; 0: as its profile says.
    Nanoseconds arrived(uint64_t key) {
        Entry& entry = entries_[key % entries_.size()];
        return entry.key == key && entry.since++ < entry.counts ? entry.longest : 0;
    }
    // What that session has had in flight was late by so much; by nothing, if it is gone.
    void told(unsigned high, Nanoseconds late) {
        if ((beside_ & high) == 0) [[likely]]
            return;
        beside_ &= ~high;
        if (late > lasted_ / 2)
            beside_ = 0;
        else if (beside_ == 0)
            *latest_ = {};
    }

  private:
    struct Entry {
        uint64_t key = 0;
        Nanoseconds longest = 0;
        uint32_t since = 0, counts = 0;  // launches of its key; for so many it counts
    };
    static constexpr uint32_t least = 4, most = 128;  // launches
    static constexpr uint32_t soon = 16;              // times as many

    std::array<Entry, 512> entries_{};
    Entry* latest_ = nullptr;
    Nanoseconds lasted_ = 0;
    unsigned beside_ = 0;  // who had work in flight at the latest one that is not over yet
};

}  // namespace fikit::scheduling
