// How much gated work may be in flight under policy fikit (fikit.hpp): it is included by fikit.cpp alone.
#pragma once

#include "fikit.hpp"

namespace fikit::scheduling {

// Is what is in flight little enough that the session's head may join it? `full`: not for any other either.
inline bool Fikit::has_room(unsigned session, const Moment& moment, bool refused, bool& full) {
    if (moment.beside && (runs_ == operations || gated_operations_ - let_be_ > runs_)) return false;
    if (gated_operations_ == let_be_) return true;
    const Work& head = sessions_[session].head;
    if (moment.beside && unknowns_ > 0 && unknown(head)) return false;
    if (moment.beside) return has_room_beside(session, moment, refused, full);
    const Nanoseconds ahead = moment.busy - moment.now, most = Levels::in_flight(false);
    const Nanoseconds all = refused ? most : together * most;
    // Of those that are not followed only what they are expected to take is known.
    if (gated_operations_ - let_be_ > runs_) {
        full = gated_in_flight_ >= all;
        return !full;
    }
    const Running& first = running(0);
    const Own& own = own_[session];
    const Own::Stream& stream = own.streams[head.stream];
    // What leaves SMs free is in nobody's way, however long it lasts.
    full = charged_ - first.charge >= all || std::min(charged_, ahead) >= all;
    const Nanoseconds behind = first.session == session ? own.charge - first.charge : own.charge;
    return !full && behind < most && std::min(own.charge, ahead) < most &&
           (stream.length < most || stream.operations <= 1);
}

// Beside high work less may be in flight where that is near. What is too much in any case is so whatever high
// sessions do, until some of it is over: by `refused_until_` at the earliest.
inline bool Fikit::has_room_beside(unsigned session, const Moment& moment, bool refused, bool& full) {
    const Work& head = sessions_[session].head;
    const Running& first = running(0);
    const Own::Stream& stream = own_[session].streams[head.stream];
    const bool own_first = first.session == session && first.stream == head.stream;
    const Nanoseconds ahead = moment.busy - moment.now, others = charged_ - first.charge;
    const Nanoseconds behind = own_first ? stream.length - first.plan.length : stream.length;
    const auto room = [&](Nanoseconds most) {
        const Nanoseconds all = refused ? most : together * most;
        full = others >= all || ahead >= all;
        return !full && behind < most && std::min(stream.length, ahead) < most;
    };
    const Nanoseconds most = Levels::in_flight(true);
    const bool sole = (waiting_ & (waiting_ - 1)) == 0;
    const bool has_room = room(most);
    if (!has_room && (full || sole)) {
        const Nanoseconds bound = full && !refused ? together * most : most;
        const bool lasting = full ? others >= bound : behind >= bound;
        refused_until_ = lasting ? INT64_MAX : moment.busy - bound + 1;
        return false;
    }
    if (ahead < least_near) return has_room;
    return room(std::min(most, near(moment.now, moment.busy + std::max(head.expected, head.longest))));
}

// The answer, which holds as long as that, or not.
inline Decision Fikit::refuse(const Decision& answer, bool holds) {
    if (!holds) refused_until_ = 0;
    refused_ = answer;
    return answer;
}

inline Decision Fikit::wait(unsigned session, Refusal reason) {
    if (!guests_[session].refused) {
        guests_[session].refused = true;
        ++statistics_[session].refused[static_cast<unsigned>(reason)];
    }
    return {Verdict::wait, static_cast<uint8_t>(session)};
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
    refused_until_ = std::min(refused_until_, at);
    if (moment.now < at) return {Verdict::wait, number, 0, at};
    let_be(moment.now);
    full = false;
    return place(session, {moment.now, busy_until(moment.now), moment.beside}, refused, full, refusal);
}

}  // namespace fikit::scheduling
