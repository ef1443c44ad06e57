// Whether an operation had work of the other side on the GPU with it (gated work a high session's, and the
// other way round), and for how long that may have kept gated work from it. What an operation took then says
// less of what it takes by itself.
#pragma once

#include <cstdint>

#include "scheduling/policy.hpp"

namespace fikit {

class Beside {
  public:
    struct Entry {
        Nanoseconds holds = 0;   // a high session's: it keeps others from the GPU for so long
        Nanoseconds before = 0;  // what the other side's sum was when it was issued
    };
    // For how long others kept it from the GPU: at most (0: there were none), and those of them alone that
    // are over by now. What is not may have begun, or have waited for this one.
    struct Others {
        Nanoseconds most = 0, over = 0;
    };
    // Others were there, and how much they kept it is not known: high work goes first, as far as it can.
    static constexpr Nanoseconds some_time = INT64_MAX;

    explicit Beside(uint32_t multiprocessors) : multiprocessors_(multiprocessors) {}

    Entry enter(const scheduling::Work& work) {
        if (work.gated) {
            ++gated_issued_;
            ++gated_in_flight_;
            return {0, high_over_};
        }
        const Entry entry{holds(work), gated_issued_ - (gated_in_flight_ > 0 ? 1 : 0)};
        ++high_in_flight_;
        high_issued_ += entry.holds;
        return entry;
    }
    // It is over.
    Others leave(const scheduling::Work& work, const Entry& entry) {
        if (work.gated) {
            --gated_in_flight_;
            return {high_issued_ - entry.before, high_over_ - entry.before};
        }
        --high_in_flight_;
        high_over_ += entry.holds;
        return {entry.before == gated_issued_ ? 0 : some_time, 0};
    }
    bool high() const { return high_in_flight_ > 0; }

  private:
    // What leaves multiprocessors free keeps others from a part of the GPU: as if from all of it for that
    // part of its time. Copies hold none.
    Nanoseconds holds(const scheduling::Work& work) const {
        if (!scheduling::computes(work.engine)) return 0;
        if (work.blocks >= multiprocessors_ || work.whole) return work.expected;
        return work.expected * work.blocks / multiprocessors_ + 1;
    }

    uint32_t multiprocessors_;
    uint32_t high_in_flight_ = 0, gated_in_flight_ = 0;
    int64_t gated_issued_ = 0;                     // operations
    Nanoseconds high_issued_ = 0, high_over_ = 0;  // what those of high sessions hold, summed
};

}  // namespace fikit
