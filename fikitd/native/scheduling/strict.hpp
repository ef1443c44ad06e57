// Strict priority with bounds.
//
//   level 0            is issued at once and asks nobody.
//   level L > 0        is issued when no session of a lower number has work waiting or in flight, while the
//                      expected durations of all gated work in flight are below `in_flight` (so that the last
//                      operation may reach beyond it: the GPU must not run dry while it is waited for).
//   equals, starvation levels.hpp
//   beside high work   (a level-0 session that worked within `high_memory`) unknown kernels and kernels whose
//                      blocks last longer than `partition_block` are confined to the largest partition, where
//                      there is one; otherwise unknown ones wait and long ones take their chance in a gap.
//
// Beside high work an unknown operation is issued when no gated work is in flight. It counts as the whole
// bound.
#pragma once

#include "levels.hpp"

namespace fikit::scheduling {

class Strict final : public Levels {
  public:
    explicit Strict(const Bounds& bounds) : Levels(bounds) {}

    Decision decide(Nanoseconds now) override {
        Decision answer, choice;
        if (waiting_ == 0) return answer;
        bool blocked = levels_[highest_level].in_flight > 0 || high_elsewhere_;
        uint64_t left = waiting_;
        for (unsigned levels = lower_levels(); left != 0 && levels != 0; levels &= levels - 1) {
            const Level& level = levels_[std::countr_zero(levels)];
            const uint64_t candidates = level.members & left;
            if (candidates != 0) {
                left &= ~candidates;
                bool saved_up = false;
                const Decision decision = place(least(candidates), blocked, now, saved_up);
                // Whoever has saved up for its operation goes before the levels above, which would else take
                // all the room there is.
                if (saved_up) return decision;
                if (decision.verdict != Verdict::wait && choice.verdict == Verdict::wait) choice = decision;
                if (decision.again_at != 0 && (answer.again_at == 0 || decision.again_at < answer.again_at))
                    answer.again_at = decision.again_at;
            }
            blocked = blocked || candidates != 0 || level.in_flight > 0;
        }
        return choice.verdict != Verdict::wait ? choice : answer;
    }

  private:
    bool has_partition() const { return bounds_.partitions[0] != 0; }

    // May the head of `session` go now, and where? `saved_up`: only because its level has saved up for it.
    Decision place(unsigned session, bool blocked, Nanoseconds now, bool& saved_up) {
        const Work& work = sessions_[session].head;
        const bool beside = beside_high(now);
        const bool confine = beside && !work.whole && (!work.known || work.block > bounds_.partition_block);
        const bool must_wait = blocked || (beside && !work.known && (work.whole || !has_partition()));
        const auto number = static_cast<uint8_t>(session);
        if (must_wait) {
            Nanoseconds again = 0;
            if (!entitled(session, now, again)) {
                const Nanoseconds forgotten = high_at_ + bounds_.high_memory;
                if (!blocked && (again == 0 || forgotten < again)) again = forgotten;
                return {Verdict::wait, number, 0, again};
            }
            saved_up = true;
        }
        if (gated_operations_ > 0 && ((!work.known && beside) || gated_in_flight_ >= in_flight(now))) {
            if (const Nanoseconds stall = stalls_at(beside); now < stall)
                return {Verdict::wait, number, 0, stall};
            let_be(now);
        }
        return {confine && has_partition() ? Verdict::partition : Verdict::whole, number};
    }
};

}  // namespace fikit::scheduling
