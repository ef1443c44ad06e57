// What policies by level share: who waits and who is in flight at each level, fairness among equals, and the
// credit that keeps a level from starving.
//
//   equals       share by weighted virtual time: the session with the least expected/weight goes first; one
//                that comes back from idleness, or is new, starts where the others are by now; what it is
//                ahead of its equals it is at another level, too.
//   starvation   a level that could issue nothing earns `starvation_share` of the time as credit, and more of
//                it for what is not known, lest that stays so; once that covers the time that its next
//                operation lasts where it would run, it is entitled to go before the levels above. What
//                gets in otherwise uses up what there is; but it is saved for one of the equals at a time,
//                the session that goes first, lest what the others need less of is all that ever goes.
//   stalls       What is in flight may be waiting for what comes behind it: a kernel looks for a word that
//                another stream, or another process, writes. So when nothing was over for far longer than
//                all of it should take, it counts no longer against the bounds on what is in flight.
#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "policy.hpp"

namespace fikit::scheduling {

class Levels : public Policy {
  public:
    void opened(unsigned session, int level, double weight, Nanoseconds now) override {
        sessions_[session] = Session{};
        sessions_[session].level = level;
        sessions_[session].inverse_weight = 1.0 / weight;
        sessions_[session].virtual_time = levels_[level].floor;
        sessions_[session].idle_from = told_until(now);
        join(session, level);
        levels_[level].since = now;
    }

    void changed(unsigned session, int level, double weight, Nanoseconds now) override {
        Session& entry = sessions_[session];
        leave(session, entry.level);
        levels_[entry.level].in_flight -= entry.in_flight;
        entry.virtual_time += levels_[level].floor - levels_[entry.level].floor;
        entry.level = level;
        entry.inverse_weight = 1.0 / weight;
        join(session, level);
        levels_[level].in_flight += entry.in_flight;
        if (level == highest_level) waiting_ &= ~bit(session);
        levels_[level].since = now;
        entry.idle_from = told_until(now);
    }

    void closed(unsigned session, Nanoseconds) override {
        Session& entry = sessions_[session];
        waiting_ &= ~bit(session);
        leave(session, entry.level);
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
        ++level.in_flight;
        if (!work.gated) {
            if (entry.in_flight++ == 0) idle_until(now, entry);
            high_at_ = now;
            return;
        }
        waiting_ &= ~bit(session);
        ++entry.in_flight;
        const Nanoseconds charged = charge(work);
        gated_in_flight_ += charged;
        if (gated_operations_++ == 0) {
            gated_.time -= now;
            progress_at_ = now;
            stalls_ = 0;
        }
        if (work.partition != 0 && confined_operations_++ == 0) [[unlikely]]
            gated_.confined -= now;
        level.floor = std::max(level.floor, entry.virtual_time);
        entry.virtual_time += static_cast<double>(work.expected) * entry.inverse_weight;
        if ((level.saver & level.members & waiting_) != 0) [[unlikely]]
            return;
        if (level.credit > 0)
            level.credit = std::max(0.0, level.credit - static_cast<double>(lasts(work, work.partition)));
        level.since = now;
    }

    using Policy::completed;
    void completed(unsigned session, const Work& work, Nanoseconds measured, Nanoseconds now,
                   Nanoseconds /*unfinished*/, Nanoseconds /*others*/) override {
        Session& entry = sessions_[session];
        --entry.in_flight;
        --levels_[entry.level].in_flight;
        if (!work.gated) {
            if (entry.in_flight == 0) entry.idle_from = told_until(now);
            high_at_ = now;
            return;
        }
        progress_at_ = now;
        gated_in_flight_ = std::max<Nanoseconds>(0, gated_in_flight_ - charge(work));  // it may be let be
        if (--gated_operations_ == 0) gated_.time += now;
        if (work.partition != 0 && --confined_operations_ == 0) [[unlikely]]
            gated_.confined += now;
        if (measured > 0)
            entry.virtual_time += static_cast<double>(measured - work.expected) * entry.inverse_weight;
    }

    void elsewhere(bool high_busy, Nanoseconds now) override {
        if (high_busy || high_elsewhere_) high_at_ = now;
        high_elsewhere_ = high_busy;
    }

    Nanoseconds in_flight(Nanoseconds now) const override {
        return in_flight(beside_high(now) || levels_[highest_level].in_flight > 0);
    }

    SessionStatistics statistics(unsigned session) const override {
        SessionStatistics told;
        tell_idle(session, told);
        return told;
    }

  protected:
    explicit Levels(const Bounds& bounds) : bounds_(bounds) {}

    // Time; of it that with gated work in flight, and with such on a partition.
    struct Stretch {
        Nanoseconds time = 0, gated = 0, confined = 0;
    };
    // As large as a power of two: what is found by its number is found by a shift.
    struct alignas(256) Session {
        Work head{};
        double virtual_time = 0, inverse_weight = 1;
        int level = lowest_level;
        uint32_t in_flight = 0;
        Stretch idle, idle_from;  // of a high one: while it has nothing in flight
    };
    struct Level {
        uint64_t members = 0;
        uint32_t in_flight = 0;
        Nanoseconds since = 0;  // credit is settled up to here
        double credit = 0;      // nanoseconds earned while it, or who saves, could not issue
        uint64_t saver = 0;     // bit of the session whose head it is saved for, while that waits
        double floor = 0;       // virtual time that its members have reached
    };

    static constexpr uint64_t bit(unsigned session) { return uint64_t{1} << session; }

    // How much of the bound on what is in flight an operation takes: an unknown one, all of it.
    Nanoseconds charge(const Work& work) const {
        return work.known || work.expected > bounds_.in_flight ? work.expected : bounds_.in_flight;
    }

    // How long it is expected to last there (0: on the whole GPU, n: on partition n - 1).
    Nanoseconds lasts(const Work& work, unsigned partition) const {
        const Nanoseconds time = charge(work);
        if (partition == 0 || work.waves == 0) return time;
        const uint32_t slots = uint32_t{bounds_.partitions[partition - 1]} * work.per_sm;
        return time * waves(work.blocks, slots) / work.waves;
    }

    Nanoseconds in_flight(bool beside) const {
        return beside ? bounds_.in_flight : quiet * bounds_.in_flight;
    }

    // If nothing of what is in flight is over by then, it is let be: sooner where some of it was before, as
    // what waits for each other comes one by one.
    Nanoseconds stalls_at(bool beside) const {
        const Nanoseconds least = beside ? bounds_.high_memory : least_stall;
        const Nanoseconds most = std::max(most_stall >> std::min(stalls_, 5u), least_stall);
        return progress_at_ + std::min(std::max(2 * gated_in_flight_, least), most);
    }
    void let_be(Nanoseconds now) {
        ++stalls_;
        gated_in_flight_ = 0;
        progress_at_ = now;
    }

    // Has a high session worked lately, here or in another executor?
    bool beside_high(Nanoseconds now) const { return high_at_ != 0 && now - high_at_ < bounds_.high_memory; }

    unsigned least(uint64_t candidates) const {
        auto best = static_cast<unsigned>(std::countr_zero(candidates));
        for (candidates &= candidates - 1; candidates != 0; candidates &= candidates - 1) {
            const auto next = static_cast<unsigned>(std::countr_zero(candidates));
            if (sessions_[next].virtual_time < sessions_[best].virtual_time) best = next;
        }
        return best;
    }

    // The head of the session must wait: settles its level's credit. Has that grown to cover the operation?
    // If not, `again` is when it will have; 0: never.
    bool entitled(unsigned session, Nanoseconds now, Nanoseconds& again, unsigned partition = 0) {
        const Session& entry = sessions_[session];
        Level& level = levels_[entry.level];
        again = 0;
        const uint64_t saver = level.saver & level.members & waiting_;
        if (least(saver | bit(session)) != session) return false;
        level.saver = bit(session);
        const double share = bounds_.starvation_share * (entry.head.known ? 1 : to_learn);
        const auto earned = static_cast<double>(now - level.since) * share;
        level.credit = std::min(level.credit + earned, credit_limit);
        level.since = now;
        const auto time = static_cast<double>(lasts(entry.head, partition));
        const double missing = std::min(time, credit_limit) - level.credit;
        if (missing > 0 && share > 0) again = now + 1 + static_cast<Nanoseconds>(missing / share);
        return missing <= 0;
    }

    void tell_idle(unsigned session, SessionStatistics& told) const {
        const Stretch& idle = sessions_[session].idle;
        told.idle_time = idle.time;
        told.idle_filled = idle.gated - idle.confined;
        told.idle_confined = idle.confined;
    }

    void join(unsigned session, int level) {
        levels_[level].members |= bit(session);
        inhabited_ |= 1u << level;
    }
    void leave(unsigned session, int level) {
        levels_[level].members &= ~bit(session);
        if (levels_[level].members == 0) inhabited_ &= ~(1u << level);
    }
    // Of the levels that have sessions, all but the highest.
    unsigned lower_levels() const { return inhabited_ & ~(1u << highest_level); }

    Bounds bounds_;
    std::array<Session, max_sessions> sessions_{};
    std::array<Level, lowest_level + 1> levels_{};
    unsigned inhabited_ = 0;  // levels that have sessions
    uint64_t waiting_ = 0;
    Nanoseconds gated_in_flight_ = 0;
    uint32_t gated_operations_ = 0;
    uint32_t stalls_ = 0;          // since none was in flight
    Nanoseconds progress_at_ = 0;  // one of them was over, or what is in flight was let be
    Nanoseconds high_at_ = 0;
    bool high_elsewhere_ = false;

  private:
    // From when the GPU was first used, up to now.
    Stretch told_until(Nanoseconds now) const {
        Stretch told{now, gated_.time, gated_.confined};
        if (gated_operations_ > 0) [[unlikely]] {
            told.gated += now;
            if (confined_operations_ > 0) told.confined += now;
        }
        return told;
    }
    void idle_until(Nanoseconds now, Session& entry) {
        const Stretch until = told_until(now);
        entry.idle.time += until.time - entry.idle_from.time;
        entry.idle.gated += until.gated - entry.idle_from.gated;
        entry.idle.confined += until.confined - entry.idle_from.confined;
    }

    static constexpr Nanoseconds quiet = 5;  // times as much may be in flight
    // How far behind its equals a session may fall without losing its claim: as much as short idle times
    // between operations cost it, not what it slept through.
    static constexpr double lag = 10e6;
    static constexpr double credit_limit = 1e9;
    static constexpr Nanoseconds least_stall = 10'000'000, most_stall = 200'000'000;
    static constexpr double to_learn = 2.5;  // times as much is earned for what is not known

    uint32_t confined_operations_ = 0;  // gated ones in flight on a partition
    // Sums over when any gated, and such, were in flight: of a time that lasts its beginning is taken off.
    struct {
        Nanoseconds time = 0, confined = 0;
    } gated_;
};

}  // namespace fikit::scheduling
