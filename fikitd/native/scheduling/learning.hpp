// What policy fikit learns from launches of high sessions: how much others slow them down, and where a
// program waits that does not say so (fikit.hpp). For fikit.cpp alone.
#pragma once

#include "fikit.hpp"

namespace fikit::scheduling {

inline void Fikit::opened(unsigned session, int level, double weight, Nanoseconds now) {
    Levels::opened(session, level, weight, now);
    statistics_[session] = {};
    statistics_[session].bound = bounds_.delay_least;
    unfollowed_.forget(session);
    guests_[session] = {};
    spared_[session] = 0;
    // It has delayed nobody, whatever the one before it of this number did.
    for (SessionStatistics& each : statistics_)
        if (each.blames == static_cast<int>(session)) each.blames = -1;
    for (High& high : highs_)
        for (unsigned* const suspect : {&high.suspect, &high.worked.suspect})
            if (*suspect == session) *suspect = max_sessions;
    if (level == highest_level) enlist(session, now);
}

// Who was one too many to be predicted works: is there a place by now, or one of who has been silent for so
// long that nobody expects it?
[[gnu::noinline]] inline Fikit::High* Fikit::take_place(unsigned session, Nanoseconds now) {
    constexpr unsigned all = (1u << predictors) - 1;
    for (unsigned at = 0; used_ == all && at < predictors; ++at) {
        const High& high = highs_[at];
        if (high.outstanding > 0 || now - high.end < remembered * bounds_.high_memory) continue;
        discharge(high.session);
        ++unforeseeable_;
    }
    if (used_ == all) return nullptr;
    --unforeseeable_;
    enlist(session, now);
    return high_of(session);
}

// The oldest gated operation in flight that is not over by then, whether anyone has seen that or not; or else
// the latest: one mark tells of several.
inline unsigned Fikit::oldest_at(Nanoseconds then) const {
    unsigned at = 0;
    while (at + 1 < runs_ && running(at).plan.end < then) ++at;
    return at;
}

// Whose blocks were the longest meanwhile?
inline void Fikit::suspect(High& high, const Running& running) {
    if (running.plan.block < high.suspect_block) return;
    high.suspect = running.session;
    high.suspect_block = running.plan.block;
}

// Gated work beside the step of a high session.
inline void Fikit::witness(High& high, const Running& running) {
    high.beside = true;
    high.tried |= running.tried;
    high.unplanned |= running.tried || (!running.planned && running.plan.block > high.bound);
    suspect(high, running);
    if (running.known && running.longest > high.step_time) [[unlikely]] {
        high.outlasting = running.plan.key;
        high.outlasting_sms = running.plan.sms;
    } else {
        high.passing = std::max(high.passing, running.plan.block);
    }
}

// What the session had in flight last was all of a wait, or of a step: what went in the pause since then was
// not beside that.
inline void Fikit::pause_passed(High& high) {
    if (std::exchange(high.pauses, false)) static_cast<Witnessed&>(high) = high.worked;
}

// An end was seen so much later than was known to be usual; what starts is never later than `latency`.
inline void Fikit::notice(High& high, Nanoseconds later) {
    constexpr Nanoseconds most = 800, part = 16;
    high.notice = std::max(-Sequence::latency, high.notice + std::clamp(later, -most, most) / part);
}

// Launches that one look saw completed, on one stream: what they took beyond what was foreseen is their
// interference with what ran beside them. `look`: which it was; `before`: when what is before them was over.
inline void Fikit::compare(unsigned session, High& high, const Sequence::Launch& launch, Nanoseconds at,
                           Nanoseconds latest, Nanoseconds look, Nanoseconds before) {
    if (look != high.looked) {
        high.looked = look;
        if (high.beside_run != nobody) {
            const Running& run = running_[high.beside_run];
            const Nanoseconds longer =
                std::max<Nanoseconds>(0, high.seen - high.foreseen - high.batch * high.others - noise);
            statistics_[session].beside_time += high.own;
            statistics_[run.session].beside_caused += high.own;
            if (longer != 0 || run.plan.guest.most != 0) [[unlikely]]  // mostly not
                learn(session, high, run, longer);
        }
        high.foreseen = before;
        high.own = high.others = 0;
        high.batch = 0;
        high.beside_run = nobody;
        if (runs_ > 0)
            high.beside_run =
                (first_run_ + oldest_at(std::max(before, launch.at + Sequence::latency))) % operations;
    }
    high.seen = at;
    ++high.batch;
    high.own += launch.duration;
    high.foreseen = std::max(high.foreseen, launch.at + Sequence::latency) + launch.duration;
    if (high.foreseen < latest && high.beside_run != nobody) [[unlikely]]  // else the rest does not matter
        wait_foreseen(high, launch);
}

// What of the time that the launch took it waited for others' blocks.
[[gnu::noinline]] inline void Fikit::wait_foreseen(High& high, const Sequence::Launch& launch) {
    if (high.outstanding > 1 && !high.side_by_side()) look_behind(high, high.seen);
    if (launch.is_graph()) {  // learn_hindrance() tells
        high.foreseen = INT64_MAX / 2;
        return;
    }
    const Running& guest = running_[high.beside_run];
    high.foreseen += stall(guest.plan, launch, guest.plan.block);
    for (unsigned run = 0; run < runs_; ++run)
        if (running(run).session != guest.session)
            high.others = std::max(high.others, running(run).plan.block);
}

[[gnu::noinline]] inline void Fikit::learn(unsigned session, const High& high, const Running& run,
                                           Nanoseconds longer) {
    statistics_[session].slowed_time += longer;
    statistics_[run.session].slowed_caused += longer;
    const float share = static_cast<float>(longer) / static_cast<float>(high.own);
    const Sequence& sequence = *high.sequence;
    const bool side_by_side = high.side_by_side();
    Sequence::Position position = side_by_side ? high.compared : sequence.size() - high.outstanding - 1;
    const uint8_t stream = sequence.at(position).stream;
    for (uint32_t left = high.batch; left > 0; --position) {
        const Sequence::Launch& launch = sequence.at(position);
        if (side_by_side && launch.stream != stream) continue;
        interference_.learn(launch.key, run.plan.guest, share);
        --left;
    }
}

// The operation is over: perhaps it ran beside graphs that are not, or were not when it began.
[[gnu::noinline]] inline void Fikit::hindered(const Plan& plan) {
    for (unsigned left = used_; left != 0; left &= left - 1) {
        High& high = highs_[std::countr_zero(left)];
        const bool over = high.outstanding == 0;
        const Sequence::Position position = high.sequence->size() - (over ? 1 : high.outstanding);
        const Sequence::Launch& graph = high.sequence->at(position);
        if (!graph.is_graph()) continue;
        const Nanoseconds began =
            over ? high.alone - graph.duration : std::max(graph.at + Sequence::latency, high.end);
        const Nanoseconds end = over ? std::min(high.end, last_over_) : last_over_;
        high.hindrance = (high.hindered == position ? high.hindrance : 0) +
                         hinders(plan, graph, end - std::max(began, last_over_ - plan.length));
        high.hindered = position;
    }
}

// The high session has waited for its launches up to there, and was late: if there was a graph among them, by
// how much of what was foreseen?
[[gnu::noinline]] inline void Fikit::learn_hindrance(High& high, Sequence::Position end,
                                                     Nanoseconds late) const {
    const Sequence::Launch& last = high.sequence->at(end - 1);
    const bool is_last = last.is_graph();
    if (!is_last &&
        (high.hindered == Sequence::nowhere || high.sequence->at(high.hindered).step != last.step))
        return;
    Nanoseconds foreseen = !is_last || high.hindered == end - 1 ? high.hindrance : 0;
    for (unsigned at = 0; at < runs_ && is_last; ++at) {
        const Plan& plan = running(at).plan;
        const Nanoseconds began = std::max(high.end - late - last.duration, plan.start);
        foreseen += hinders(plan, last, std::min(high.end, plan.end) - began);
    }
    constexpr Nanoseconds tellable = 5000;
    if (foreseen < tellable) return;
    const double told = static_cast<double>(late) / static_cast<double>(foreseen);
    const double change = std::clamp(told, least_hindered_share, most_hindered_share) - high.hindered_share;
    if (change > 0)
        high.hindered_share += change / 2;
    else if (late <= high.bound)  // a step that was over its bound makes nobody bolder
        high.hindered_share += change / 32;
}

// A launch that comes later by what others made the GPU late by shows that the program waited for it, whether
// it told of that or not; and it does so whenever it comes to that, until it is seen not to. Who tells of its
// waits is believed, unless that can be no chance. Of one who has told of none for as many launches as its
// steps have, a long pause is one in any case.
inline bool Fikit::shows_wait(unsigned session, High& high, const Work& work, Nanoseconds now) {
    const Sequence& sequence = *high.sequence;
    const bool silent = sequence.size() - high.told >= sequence.usual();
    bool waits = silent && (high.waits || sequence.known()) && now - high.end > long_pause;
    bool in_time = false;
    if (!waits && sequence.known()) {
        const Sequence::Launch& usual = sequence.at(sequence.next());
        if (usual.key != work.key) return false;
        const bool presumed = sequence.may_wait() && (silent || (high.beside && sequence.is_aligned()));
        waits = presumed;
        const Nanoseconds late = !high.waits ? high.guessed : high.beside ? high.end - high.alone : 0;
        const Nanoseconds later = now - sequence.last().at - usual.gap - sequence.held();
        // By chance the gap may be longer or shorter by about twice what it varies by.
        const bool sure = late > 4 * usual.deviation, likely = late > 2 * usual.deviation;
        if (late > notable && presumed) {
            in_time = sure && later <= late / 4;
            waits = !sure || high.sequence->came_in_time(in_time) < most_in_time;
        } else if (late > notable && (silent ? likely || late > usual.gap : sure && late > usual.gap)) {
            waits = later > late * 3 / 4 && later < late * 5 / 4;
        }
        if (waits && !presumed) high.sequence->surprised();
    }
    if (!waits) return false;
    seen_to_wait(high);
    waited(session, high, in_time, now);
    return true;
}

// Nothing of the session was on the GPU for a while: has it waited?
[[gnu::noinline]] inline void Fikit::look_for_wait(unsigned session, High& high, const Work& work,
                                                   Nanoseconds now) {
    Sequence& sequence = *high.sequence;
    const Nanoseconds pause = now - high.end;
    if (pause > long_pause) sequence.silence.ended(pause, gated_operations_ > 0);
    if (!sequence.waited() && !shows_wait(session, high, work, now)) return;
    // Several waits make a step where they follow each other, not over a long pause.
    if (pause > long_pause && sequence.size() != high.step_from) {
        pause_passed(high);
        close_step(session, high, sequence.size(), now);
    }
}

// A program that looks at memory all the time launches before anyone has seen that the GPU is done. Where it
// waited the last time it is presumed to again, if all may be over by now.
[[gnu::noinline]] inline void Fikit::presume_wait(unsigned session, High& high, const Work& work,
                                                  Nanoseconds now) {
    Sequence& sequence = *high.sequence;
    if (sequence.waited() || !sequence.known() || sequence.at(sequence.next()).key != work.key ||
        now + told_before < sequence.last().alone)
        return;
    if (!sequence.may_wait() && !sequence.may_have_waited(work.key)) return;
    if (sequence.size() - high.told < sequence.usual()) return;
    seen_to_wait(high);
    waited(session, high, false, now);
}

// What is the oldest in flight was over at `at`, late, and so it was when the next launch came, which nobody
// had seen by then. Did that wait for it? A kernel may tell its program a little before it ends.
[[gnu::noinline]] inline void Fikit::look_behind(High& high, Nanoseconds at) {
    Sequence& sequence = *high.sequence;
    const Sequence::Position position = sequence.size() - high.outstanding, next = position + 1;
    const Sequence::Launch &launch = sequence.at(position), &follower = sequence.at(next);
    const Nanoseconds late = at - launch.alone;
    if (late < notable || follower.at < at - told_before) return;
    if (follower.ordinal == 0 || next - high.told < sequence.usual()) return;
    const Sequence::Launch* const usual = sequence.before(next);
    if (usual == nullptr || late < 4 * usual->deviation) return;
    const Nanoseconds later = follower.at - launch.at - usual->gap;
    if (std::abs(later - late) > late / 8 + 1000) return;
    seen_to_wait(high);
    high.polls = true;
    sequence.split(next);
    high.settles = next;
}

// A launch that is not, as most are, a kernel on the session's one stream.
[[gnu::noinline]] inline void Fikit::launched_otherwise(High& high, const Work& work) {
    if (work.engine == Engine::graph) {
        high.graph_wait = any_time;
        graphs_ = true;
    }
    if (high.side_by_side()) {
        high.sequence->on_another_stream(work.stream, -1);
        if (work.stream != high.lately) high.alike = 0;
        high.lately = work.stream;
        // A kernel that runs on while so many others come and go is none of what repeats.
        if (high.outstanding > foresight) {
            const Sequence::Position oldest = high.sequence->size() - high.outstanding;
            unfollowed_.issued(high.session, high.sequence->completed(oldest).stream);
            pass_over(high);
        }
        // Nothing is remembered of the others.
        if (++high.alike > Sequence::capacity) high.mostly = on_stream(Engine::kernel, work.stream);
        return;
    }
    if (work.stream == high.stream()) return;
    // Behind what is over it may as well be on the same stream.
    if (high.outstanding > 1) {
        high.sequence->on_another_stream(work.stream, high.stream());
        high.compared = high.sequence->size() - high.outstanding - 1;
        high.lately = work.stream;
        high.alike = 0;
    }
    high.mostly = on_stream(Engine::kernel, high.outstanding > 1 ? High::all_streams : work.stream);
}

inline void Fikit::pass_over(High& high) {
    const Sequence& sequence = *high.sequence;
    while (high.outstanding > 0 && sequence.at(sequence.size() - high.outstanding).over) --high.outstanding;
}

// Work of its own that is not followed is over: what it launched behind that begins then, late for nobody.
[[gnu::noinline]] inline void Fikit::begins_behind(unsigned session, uint8_t stream, Nanoseconds now) {
    if (high_of(session) == nullptr) return;
    High& high = *high_of(session);
    const bool side_by_side = high.side_by_side();
    if (!side_by_side && stream != high.stream() && high.outstanding > 0) return;
    const Nanoseconds end = now - high.notice;
    if (side_by_side) {
        Sequence::Course& own = high.sequence->courses()[stream];
        own = {std::max(own.alone, end), std::max(own.end, end)};
    }
    high.end = std::max(high.end, end);
    high.alone = std::max(high.alone, end);
    high.sequence->begins_behind(high.outstanding, side_by_side ? stream : Sequence::any_stream, end);
}

// Streams run side by side: what is over is the oldest of its stream. All of it is late by what is last to
// end.
[[gnu::noinline]] inline void Fikit::completed_side_by_side(unsigned session, High& high, const Work& work,
                                                            Nanoseconds measured, Nanoseconds now,
                                                            Nanoseconds unfinished) {
    Sequence& sequence = *high.sequence;
    const Sequence::Position first = sequence.size() - high.outstanding;
    const Sequence::Position position = sequence.oldest(first, work.stream);
    if (position == Sequence::nowhere) return;  // it was left behind
    const Sequence::Launch& launch = sequence.completed(position);
    if (measured > 0 && work.key == launch.key && launch.gated == static_cast<uint32_t>(issued_))
        sequence.measured(position, measured, static_cast<uint32_t>(issued_));
    Sequence::Course& own = sequence.courses()[launch.stream];
    const Nanoseconds start = std::max(launch.at + Sequence::latency, own.end);
    if (work.known && runs_ == 0 && last_over_ < launch.at && launch.pause > 0 && unfinished != 0)
        notice(high, now - start - launch.duration - high.notice);
    const Nanoseconds latest = now - high.notice;
    const Nanoseconds at = ended(start + launch.duration, unfinished - high.notice, latest);
    const uint64_t look = static_cast<uint64_t>(latest) * streams_told_apart + launch.stream;
    compare(session, high, launch, at, latest, static_cast<Nanoseconds>(look), own.end);
    high.compared = position;
    own.end = at;
    own.alone = std::min(launch.alone, own.end);
    if (own.end < launch.alone) sequence.ended(position, own.end);
    high.end = std::max(high.end, own.end);
    high.alone = std::max(high.alone, std::min(own.alone + high.meets, high.end));
    pass_over(high);
    const Sequence::Position left = sequence.size() - high.outstanding;
    const bool settles = high.settles != Sequence::nowhere && first < high.settles && left >= high.settles;
    if (settles || (high.outstanding == 0 && !high.waits))
        settle(session, high, settles ? high.settles : left, now);
}

// It has waited for all of its streams: how much longer do they take, beside each other and waiting for each
// other, than each would? Here, or where it never was before anywhere.
[[gnu::noinline]] inline void Fikit::meet(High& high, Sequence::Position position) {
    Sequence& sequence = *high.sequence;
    Nanoseconds alone = 0;
    for (const Sequence::Course& each : sequence.courses()) alone = std::max(alone, each.alone);
    const Nanoseconds longer = std::max<Nanoseconds>(0, high.end - alone);
    Nanoseconds& here = sequence.meets(position - 1);
    const bool unmeasured = here == Sequence::unmeasured;
    high.meets = unmeasured ? high.meets_anywhere : here;
    const bool unknown = high.meets == Sequence::unmeasured;
    high.unmet |= high.beside && (unknown || (unmeasured && sequence.known()));
    // As long as nothing is known it is late by nothing. Of one beside which there always is something, the
    // least that was seen tells.
    if (unknown && high.beside) {
        high.least_met = high.unmet_waits == 0 ? longer : std::min(high.least_met, longer);
        if (++high.unmet_waits == most_unmet) high.meets_anywhere = high.least_met;
    }
    high.alone = unknown ? high.end : std::min(high.end, alone + high.meets);
    for (Nanoseconds* const meets : {&here, &high.meets_anywhere}) {
        if (!high.beside)
            *meets += *meets == Sequence::unmeasured ? longer + 1 : (longer - *meets) / 4;
        else if (longer < *meets)
            *meets -= (*meets - longer) / 8;
    }
    high.meets = std::max<Nanoseconds>(0, unmeasured ? high.meets_anywhere : here);
    for (Sequence::Course& each : sequence.courses()) each.alone = each.end;
}

}  // namespace fikit::scheduling
