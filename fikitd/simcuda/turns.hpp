// Turns: who has the SMs where several contexts share a device without MPS.
//
// The hardware gives each context that has work a slice, longer than most kernels, and may stop a kernel in
// the middle; a change of context costs on its own. One that runs out of work gives its slice up. Pure in
// time and plain old data, so that it also lies in memory that processes share.
#pragma once

#include <optional>

#include "model.hpp"

namespace fikit::sim {

struct Turns {
    int holder = -1;            // who has the SMs, or had them last
    Nanoseconds since = 0;      // from when: the end of the change of context
    Nanoseconds slice_end = 0;  // while somebody waits for it

    // Brings the turns up to `now`. `busy(index)` says who of `count` has work. Returns when to ask again
    // even if nobody's work changes.
    template <typename Busy>
    std::optional<Nanoseconds> update(Nanoseconds now, int count, Busy busy) {
        const auto next_busy = [&] {
            for (int step = 1; step < count; ++step) {
                const int other = (holder + step) % count;
                if (other != holder && busy(other)) return other;
            }
            return -1;
        };
        if (holder < 0 || holder >= count) {
            for (int index = 0; index < count; ++index) {
                if (busy(index)) return take(index, now), std::nullopt;
            }
            return std::nullopt;
        }
        const int other = next_busy();
        if (other < 0) {
            slice_end = 0;
            return now < since ? std::optional(since) : std::nullopt;
        }
        if (now < since) return since;  // the change of context cannot be broken off
        if (!busy(holder)) {
            take(other, now + model::context_switch);
        } else {
            // A slice is renewed for as long as nobody else wants it.
            const Nanoseconds end = since + ((now - since) / model::time_slice + 1) * model::time_slice;
            if (slice_end == 0) slice_end = end;
            if (now < slice_end) return slice_end;
            take(other, slice_end + model::context_switch);
        }
        return since;
    }

    bool runs(int index, Nanoseconds now) const { return index == holder && now >= since; }

  private:
    void take(int index, Nanoseconds from) {
        holder = index;
        since = from;
        slice_end = 0;
    }
};

}  // namespace fikit::sim
