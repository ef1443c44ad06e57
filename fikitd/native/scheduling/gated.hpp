// Policy fikit's gated operations: as they arrive, while they are in flight, and what is learnt once they are
// over (fikit.hpp). For fikit.cpp alone.
#pragma once

#include "fikit.hpp"

namespace fikit::scheduling {

inline void Fikit::arrived(unsigned session, const Work& work, Nanoseconds now) {
    Levels::arrived(session, work, now);
    guests_[session] = {};
    const Nanoseconds longest = surprises_.arrived(work.key, steps_);
    Work& head = sessions_[session].head;
    if (longest <= head.longest) return;
    const double times = static_cast<double>(longest) / std::max(1.0, double(head.longest));
    head.block = std::max(head.block, static_cast<Nanoseconds>(times * static_cast<double>(head.block)));
    head.longest = longest;
}

inline void Fikit::issued_gated(unsigned session, const Work& work, Nanoseconds now) {
    Levels::issued(session, work, now);
    const bool planned = planned_for_ == session;
    const bool tried = std::exchange(tried_for_, max_sessions) == session;
    // Nobody is near whom it could delay. What comes behind it is not followed either: each completion is one
    // of those that are, as long as there are any.
    if (runs_ == operations || gated_operations_ - let_be_ > runs_ + 1) return;
    Running& made = running(runs_);
    if (!planned) {
        const uint32_t sms =
            work.partition == 0 ? bounds_.multiprocessors : bounds_.partitions[work.partition - 1];
        plan(made.plan, session, work, sms, busy_until(now), now);
    }
    ++runs_;
    ++issued_;
    made.session = static_cast<uint8_t>(session);
    made.stream = work.stream;
    made.known = work.known;
    made.planned = planned;
    made.tried = tried;
    made.charge = made.plan.area;
    made.longest = made.plan.length;
    if (!work.known) made.charge = charge(work);
    // What counts as longer than its profile says may be, but mostly isn't.
    const Nanoseconds longest = planned ? sessions_[session].head.longest : work.longest;
    made.feared = longest > work.longest;
    if (longest > work.expected) {
        if (work.known) made.charge = area(work, work.expected);
        made.plan.length = made.plan.length * work.expected / longest;
        made.plan.adds = made.plan.adds * work.expected / longest;
        made.plan.end -= made.longest - made.plan.length;
    }
    if (!work.known || made.plan.block == 0) made.plan.block = made.plan.length;
    if (!work.known && computes(work.engine)) ++unknowns_;
    queued_ += made.plan.adds;
    charged_ += made.charge;
    Own& own = own_[session];
    own.charge += made.charge;
    own.soonest = made.plan.from - made.plan.sooner + made.plan.length;
    own.streams[work.stream].length += made.plan.length;
    ++own.streams[work.stream].operations;
    if (!expects_high(now)) return;
    SessionStatistics& statistics = statistics_[session];
    ++(work.partition == 0 ? statistics.filled : statistics.confined);
    (work.partition == 0 ? statistics.filled_time : statistics.confined_time) += work.expected;
    for (unsigned left = used_; left != 0; left &= left - 1) {
        High& high = highs_[std::countr_zero(left)];
        if (high.outstanding == 0 && !std::exchange(high.pauses, true)) high.worked = high;
        witness(high, made);
        if (made.longest > high.step_time) [[unlikely]] {
            const uint64_t steps = statistics_[high.session].steps;
            if (!outlasted_.issued(high.session, work.key, made.plan.sms, steps))
                high.first_try.rests(steps, now);
        }
    }
}

// An operation lasted far longer than its profile has seen. What high sessions have in flight may have kept
// it, or have waited for it.
[[gnu::noinline]] inline void Fikit::surprised(unsigned session, const Work& work, const Running& running,
                                               Nanoseconds lasted) {
    ++statistics_[session].surprises;
    // What the profile says was too little by as much.
    const double times = static_cast<double>(lasted) / static_cast<double>(running.longest);
    const auto believed = static_cast<double>(std::max(work.longest, work.expected));
    unsigned beside = 0;
    Nanoseconds held = 0;
    for (unsigned left = used_; left != 0; left &= left - 1) {
        const High& high = highs_[std::countr_zero(left)];
        if (high.outstanding > 0) beside |= bit_of(high);
        for (uint32_t each = high.outstanding; each > 0; --each)
            held += high.sequence->at(high.sequence->size() - each).duration;
    }
    if (held < lasted / 2) beside = 0;
    surprises_.surprised(work.key, lasted, static_cast<Nanoseconds>(believed * times), beside, steps_);
}

inline void Fikit::completed_gated(unsigned session, const Work& work, Nanoseconds now,
                                   Nanoseconds unfinished, Nanoseconds others) {
    unsigned at = 0;
    while (at < runs_ && (running(at).session != session || running(at).stream != work.stream)) ++at;
    if (at == runs_) {
        if (let_be_ > 0) --let_be_;
        return;
    }
    const Running& over = running(at);
    if (!over.known && computes(over.plan.engine)) --unknowns_;
    const Nanoseconds start = std::max(over.plan.start, last_over_);
    last_over_ = ended(start + over.plan.length, unfinished, now);
    // What high sessions had in flight may have taken some of that; what else is, too: one mark tells of
    // several.
    const Nanoseconds lasted = last_over_ - start - others;
    const Nanoseconds usual = 4 * over.longest + 2 * queued_;
    if (lasted > usual && work.known && work.key != 0 && lasted > usual + in_flight(now))
        surprised(session, work, over, lasted);
    else if (over.feared && lasted > over.longest / 2)
        surprises_.confirmed(work.key, steps_);
    if (graphs_) [[unlikely]]
        hindered(over.plan);
    queued_ -= over.plan.adds;
    charged_ -= over.charge;
    Own& own = own_[session];
    own.charge -= over.charge;
    own.streams[work.stream].length -= over.plan.length;
    --own.streams[work.stream].operations;
    const bool first = at == 0;
    for (; at > 0; --at) running(at) = running(at - 1);
    ++first_run_;
    if (--runs_ > 0 && first) running(0).plan.end = last_over_ + running(0).plan.adds;
}

}  // namespace fikit::scheduling
