// How much gated work may be in flight under policy fikit (fikit.hpp): it is included by fikit.cpp alone.
#pragma once

#include "fikit.hpp"

namespace fikit::scheduling {

// Is what is in flight little enough that the session's head may join it? `full`: not for any other either.
inline bool Fikit::has_room(unsigned session, const Moment& moment, bool refused, bool& full) const {
    if (moment.beside && (runs_ == operations || gated_operations_ - let_be_ > runs_)) return false;
    if (gated_operations_ == let_be_) return true;
    const Work& head = sessions_[session].head;
    if (moment.beside && unknowns_ > 0 && unknown(head)) return false;
    const Nanoseconds ahead = moment.busy - moment.now;
    Nanoseconds most = Levels::in_flight(moment.beside);
    if (moment.beside && ahead >= least_near)
        most = std::min(most, near(moment.now, moment.busy + std::max(head.expected, head.longest)));
    const Nanoseconds all = refused ? most : together * most;
    // Of those that are not followed only what they are expected to take is known.
    if (gated_operations_ - let_be_ > runs_) {
        full = gated_in_flight_ >= all;
        return !full;
    }
    const Running& first = running(0);
    const Own& own = own_[session];
    const Own::Stream& stream = own.streams[head.stream];
    if (!moment.beside) {
        // What leaves SMs free is in nobody's way, however long it lasts.
        full = charged_ - first.charge >= all || std::min(charged_, ahead) >= all;
        const Nanoseconds behind = first.session == session ? own.charge - first.charge : own.charge;
        return !full && behind < most && std::min(own.charge, ahead) < most &&
               (stream.length < most || stream.operations <= 1);
    }
    if (charged_ - first.charge >= all || ahead >= all) {
        full = true;
        return false;
    }
    const bool own_first = first.session == session && first.stream == head.stream;
    const Nanoseconds behind = own_first ? stream.length - first.plan.length : stream.length;
    return behind < most && std::min(stream.length, ahead) < most;
}

// What is in flight counts no longer: it may never be over until something behind it is.
inline void Fikit::let_be(Nanoseconds now) {
    Levels::let_be(now);
    let_be_ = gated_operations_ - runs_;
    for (unsigned at = 0; at < runs_; ++at) {
        Running& run = running(at);
        Own& own = own_[run.session];
        if (!run.known && computes(run.plan.engine)) --unknowns_;
        run.known = true;
        charged_ -= run.charge;
        queued_ -= run.plan.adds;
        own.charge -= run.charge;
        own.soonest = std::min(own.soonest, now);
        own.streams[run.stream].length -= run.plan.length;
        run.charge = run.plan.adds = run.plan.length = 0;
        run.plan.end = std::min(run.plan.end, now);
    }
}

// There is no room for the session's head, unless what is in flight is let be for its sake: not of ever more
// long kernels in a row, which would be beyond recall.
[[gnu::noinline]] inline Decision Fikit::stalled(unsigned session, const Moment& moment, bool refused,
                                                 bool& full, Refusal& refusal) {
    const auto number = static_cast<uint8_t>(session);
    const Own::Stream& stream = own_[session].streams[sessions_[session].head.stream];
    if (stream.operations >= most_behind) return {Verdict::wait, number};
    const Nanoseconds at = stalls_at(moment.beside);
    if (moment.now < at) return {Verdict::wait, number, 0, at};
    let_be(moment.now);
    full = false;
    return place(session, {moment.now, busy_until(moment.now), moment.beside}, refused, full, refusal);
}

}  // namespace fikit::scheduling
