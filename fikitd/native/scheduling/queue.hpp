// What is before a high session's launches in the GPU's queue. Blocks of one priority are placed in the order
// in which their kernels came (Amert et al., "GPU Scheduling on the NVIDIA TX2", 2017, rules X1 and X2): as
// long as a kernel of another high session finds no room beside gated work, whatever came behind it waits
// too, even if there is room for that.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../clock.hpp"

namespace fikit::scheduling {

struct Queue {
    Nanoseconds longest = 0, all = 0;  // for which others' launches wait beside one gated operation
    Nanoseconds from = INT64_MAX;      // when the first of them comes

    void meets(Nanoseconds waits, Nanoseconds at) {
        if (waits <= 0) return;
        longest = std::max(longest, waits);
        all += waits;
        from = std::min(from, at);
    }
    void joins(const Queue& other) {
        longest = std::max(longest, other.longest);
        all += other.all;
        from = std::min(from, other.from);
    }
    // What starts then waits so long behind them, while the operation has `left` to go: together no longer
    // than they do.
    Nanoseconds behind(Nanoseconds start, Nanoseconds left) {
        if (start < from || left <= 0) return 0;
        const Nanoseconds waits = std::min({left, longest, all});
        all -= waits;
        return waits;
    }
};

// Beside what is on the GPU, and beside a candidate.
struct Queues {
    Queue running, candidate;
};

}  // namespace fikit::scheduling
