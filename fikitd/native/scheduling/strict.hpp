// Strict priority with bounds.
//
//   level 0            is issued at once and asks nobody.
//   level L > 0        is issued when no session of a lower number has work waiting or in flight, while the
//                      expected durations of all gated work in flight are below `in_flight` (so that the last
//                      operation may reach beyond it: the GPU must not run dry while it is waited for).
//   equals             share by weighted virtual time: the session with the least expected/weight goes first;
//                      one that comes back from idleness, or is new, starts where the others are by now.
//   beside high work   (a level-0 session that worked within `high_memory`) unknown kernels and kernels whose
//                      blocks last longer than `partition_block` are confined to the partition, where there
//                      is one; otherwise unknown ones wait and long ones take their chance in a gap.
//   starvation         a level that could issue nothing earns `starvation_share` of the time as credit; once
//                      that covers its next operation, it goes before the levels above.
//
// An unknown operation is issued when no gated work is in flight, and counts as the whole bound.
#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "policy.hpp"

namespace fikit::scheduling {

class Strict final : public Policy {
  public:
    explicit Strict(const Bounds& bounds) : bounds_(bounds) {}

    void opened(unsigned session, int level, double weight, Nanoseconds now) override {
        sessions_[session] = Session{};
        sessions_[session].level = level;
        sessions_[session].inverse_weight = 1.0 / weight;
        sessions_[session].virtual_time = levels_[level].floor;
        levels_[level].members |= bit(session);
        levels_[level].since = now;
    }

    void changed(unsigned session, int level, double weight, Nanoseconds now) override {
        Session& entry = sessions_[session];
        levels_[entry.level].members &= ~bit(session);
        levels_[entry.level].in_flight -= entry.in_flight;
        if (level != entry.level) entry.virtual_time = levels_[level].floor;
        entry.level = level;
        entry.inverse_weight = 1.0 / weight;
        levels_[level].members |= bit(session);
        levels_[level].in_flight += entry.in_flight;
        if (level == highest_level) waiting_ &= ~bit(session);
        levels_[level].since = now;
    }

    void closed(unsigned session, Nanoseconds) override {
        Session& entry = sessions_[session];
        waiting_ &= ~bit(session);
        levels_[entry.level].members &= ~bit(session);
        levels_[entry.level].in_flight -= entry.in_flight;
        entry = Session{};
    }

    void arrived(unsigned session, const Work& work, Nanoseconds now) override {
        Session& entry = sessions_[session];
        entry.head = work;
        Level& level = levels_[entry.level];
        if (entry.in_flight == 0) entry.virtual_time = std::max(entry.virtual_time, level.floor - lag);
        if ((level.members & waiting_) == 0) level.since = now;
        waiting_ |= bit(session);
    }

    void withdrawn(unsigned session, Nanoseconds) override { waiting_ &= ~bit(session); }

    void issued(unsigned session, const Work& work, Nanoseconds now) override {
        Session& entry = sessions_[session];
        Level& level = levels_[entry.level];
        waiting_ &= ~bit(session);
        ++entry.in_flight;
        ++level.in_flight;
        if (!work.gated) {
            high_at_ = now;
            return;
        }
        gated_in_flight_ += charge(work);
        ++gated_operations_;
        level.floor = std::max(level.floor, entry.virtual_time);
        entry.virtual_time += static_cast<double>(work.expected) * entry.inverse_weight;
        level.credit = std::max(0.0, level.credit - static_cast<double>(charge(work)));
        level.since = now;
    }

    void completed(unsigned session, const Work& work, Nanoseconds measured, Nanoseconds now) override {
        Session& entry = sessions_[session];
        --entry.in_flight;
        --levels_[entry.level].in_flight;
        if (!work.gated) {
            high_at_ = now;
            return;
        }
        gated_in_flight_ -= charge(work);
        --gated_operations_;
        if (measured > 0)
            entry.virtual_time += static_cast<double>(measured - work.expected) * entry.inverse_weight;
    }

    void elsewhere(bool high_busy, Nanoseconds now) override {
        if (high_busy || high_elsewhere_) high_at_ = now;
        high_elsewhere_ = high_busy;
    }

    Decision decide(Nanoseconds now) override {
        using Verdict = Decision::Verdict;
        Decision answer, choice;
        if (waiting_ == 0) return answer;
        bool blocked = levels_[highest_level].in_flight > 0 || high_elsewhere_;
        uint64_t left = waiting_;
        for (int number = highest_level + 1; left != 0; ++number) {
            const Level& level = levels_[number];
            const uint64_t candidates = level.members & left;
            if (candidates != 0) {
                left &= ~candidates;
                bool entitled = false;
                const Decision decision = place(least(candidates), blocked, now, entitled);
                // Whoever has saved up for its operation goes before the levels above, which would else take
                // all the room there is.
                if (entitled) return decision;
                if (decision.verdict != Verdict::wait && choice.verdict == Verdict::wait) choice = decision;
                if (decision.again_at != 0 && (answer.again_at == 0 || decision.again_at < answer.again_at))
                    answer.again_at = decision.again_at;
            }
            blocked = blocked || candidates != 0 || level.in_flight > 0;
        }
        return choice.verdict != Verdict::wait ? choice : answer;
    }

  private:
    struct Session {
        Work head{};
        double virtual_time = 0, inverse_weight = 1;
        int level = lowest_level;
        uint32_t in_flight = 0;
    };
    struct Level {
        uint64_t members = 0;
        uint32_t in_flight = 0;
        Nanoseconds since = 0;  // credit is settled up to here
        double credit = 0;      // nanoseconds earned while it could not issue
        double floor = 0;       // virtual time that its members have reached
    };

    // How far behind its equals a session may fall without losing its claim: as much as short idle times
    // between operations cost it, not what it slept through.
    static constexpr double lag = 10e6;
    static constexpr double credit_limit = 1e9;

    bool has_partition() const { return bounds_.partitions[0] != 0; }

    static constexpr uint64_t bit(unsigned session) { return uint64_t{1} << session; }

    Nanoseconds charge(const Work& work) const {
        return work.known || work.expected > bounds_.in_flight ? work.expected : bounds_.in_flight;
    }

    unsigned least(uint64_t candidates) const {
        auto best = static_cast<unsigned>(std::countr_zero(candidates));
        for (candidates &= candidates - 1; candidates != 0; candidates &= candidates - 1) {
            const auto next = static_cast<unsigned>(std::countr_zero(candidates));
            if (sessions_[next].virtual_time < sessions_[best].virtual_time) best = next;
        }
        return best;
    }

    // May the head of `session` go now, and where? `entitled`: only because its level has saved up for it.
    Decision place(unsigned session, bool blocked, Nanoseconds now, bool& entitled) {
        using Verdict = Decision::Verdict;
        const Session& entry = sessions_[session];
        const Work& work = entry.head;
        const bool beside_high = now - high_at_ < bounds_.high_memory && high_at_ != 0;
        const bool confine =
            beside_high && !work.whole && (!work.known || work.block > bounds_.partition_block);
        const bool must_wait = blocked || (beside_high && !work.known && (work.whole || !has_partition()));
        const auto number = static_cast<uint8_t>(session);
        if (must_wait) {
            Level& level = levels_[entry.level];
            const auto earned = static_cast<double>(now - level.since) * bounds_.starvation_share;
            level.credit = std::min(level.credit + earned, credit_limit);
            level.since = now;
            const double missing = std::min(static_cast<double>(charge(work)), credit_limit) - level.credit;
            if (missing > 0) {
                Nanoseconds again = 0;
                if (bounds_.starvation_share > 0)
                    again = now + 1 + static_cast<Nanoseconds>(missing / bounds_.starvation_share);
                if (!blocked && (again == 0 || high_at_ + bounds_.high_memory < again))
                    again = high_at_ + bounds_.high_memory;
                return {Verdict::wait, number, 0, again};
            }
            entitled = true;
        }
        if (gated_operations_ > 0 && (!work.known || gated_in_flight_ >= bounds_.in_flight))
            return {Verdict::wait, number};
        return {confine && has_partition() ? Verdict::partition : Verdict::whole, number};
    }

    Bounds bounds_;
    std::array<Session, max_sessions> sessions_{};
    std::array<Level, lowest_level + 1> levels_{};
    uint64_t waiting_ = 0;
    Nanoseconds gated_in_flight_ = 0;
    uint32_t gated_operations_ = 0;
    Nanoseconds high_at_ = 0;
    bool high_elsewhere_ = false;
};

}  // namespace fikit::scheduling
