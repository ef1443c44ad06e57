// See fikit.hpp.
#include "fikit.hpp"

#include <cmath>
#include <utility>

#include "gated.hpp"
#include "lateness.hpp"
#include "learning.hpp"
#include "room.hpp"

namespace fikit::scheduling {

void Fikit::enlist(unsigned session, Nanoseconds now) {
    for (unsigned number = 0; number < predictors; ++number) {
        if ((used_ >> number & 1) != 0) continue;
        used_ |= 1u << number;
        places_[session] = &highs_[number];
        highs_[number] = High{};
        highs_[number].sequence = &sequences_[number];
        highs_[number].session = static_cast<uint8_t>(session);
        outlasted_.forget(session);
        highs_[number].sequence->forget(now);
        highs_[number].closed_at = highs_[number].step_at = highs_[number].end = highs_[number].alone = now;
        set_bound(highs_[number]);
        return;
    }
    ++unforeseeable_;
}

void Fikit::discharge(unsigned session) {
    if (places_[session] == nullptr) {
        --unforeseeable_;
        return;
    }
    const High& high = *places_[session];
    statistics_[session] = statistics(session);
    used_ &= ~bit_of(high);
    surprises_.told(bit_of(high), 0);
    for (uint32_t left = high.outstanding; left > 0; --left) {
        const Sequence::Launch& launch = high.sequence->at(high.sequence->size() - left);
        if (!high.side_by_side())
            unfollowed_.issued(session, high.stream());
        else if (!launch.over)
            unfollowed_.issued(session, launch.stream);
    }
    places_[session] = nullptr;
}

void Fikit::issued(unsigned session, const Work& work, Nanoseconds now) {
    if (work.gated) return issued_gated(session, work, now);
    Levels::issued(session, work, now);
    High* high = high_of(session);
    if (high == nullptr && (high = take_place(session, now)) == nullptr)
        return unfollowed_.issued(session, work.stream);
    if (high->outstanding == 0) {
        if (now - high->end > high->patience || high->end - high->alone > notable ||
            high->sequence->may_wait()) [[unlikely]]
            look_for_wait(session, *high, work, now);
        high->pauses = false;
    } else if (high->polls) [[unlikely]] {
        presume_wait(session, *high, work, now);
    }
    ++high->outstanding;
    high->awaits = false;
    const bool begins = high->sequence->size() == high->step_from;
    if (begins) begin_step(*high, now);
    high->sequence->launched(work, now, static_cast<uint32_t>(issued_ - runs_));
    const Sequence::Launch& launch = high->sequence->last();
    if (begins) high->pause = std::min(bounds_.high_memory, launch.gap - 2 * launch.deviation);
    if (on_stream(work.engine, work.stream) != high->mostly) [[unlikely]]
        launched_otherwise(*high, work);
    high->lasting += launch.duration;
    if (launch.own == 0) high->unmeasured += launch.duration;
}

void Fikit::awaited(unsigned session, bool found, Nanoseconds now) {
    High* high = high_of(session);
    if (high == nullptr) return;
    seen_to_wait(*high);
    const Sequence::Position told = std::exchange(high->told, high->sequence->size());
    if (!high->sequence->waited()) waited(session, *high, found, now);
    if (high->told != told) high->sequence->told(static_cast<uint32_t>(high->told - told));
}

// What its program goes on with may be issued before all that it waited for is seen to be over.
inline void Fikit::waited(unsigned session, High& high, bool found, Nanoseconds now) {
    pause_passed(high);
    const Nanoseconds row = high.row_end == high.sequence->size() ? high.row : 0;
    high.sparing += high.sequence->awaited(spared_[session], std::exchange(high.rowed, 0), row);
    high.settles = high.sequence->size();
    high.found = found;
    high.awaits = high.outstanding > 0;
    if (!high.awaits) settle(session, high, high.settles, now);
}

void Fikit::completed(unsigned session, const Work& work, Nanoseconds measured, Nanoseconds now,
                      Nanoseconds unfinished, Nanoseconds others) {
    Levels::completed(session, work, measured, now, unfinished, others);
    if (work.gated) {
        completed_gated(session, work, now, unfinished, others);
        if (sessions_[session].level == highest_level) [[unlikely]]
            begins_behind(session, work.stream, now);
        return;
    }
    if (unfollowed_.completed(session, work.stream)) [[unlikely]]
        return begins_behind(session, work.stream, now);
    High* high = high_of(session);
    if (high == nullptr || high->outstanding == 0) return;
    if (work.stream != high->stream()) [[unlikely]] {
        if (high->side_by_side()) completed_side_by_side(session, *high, work, measured, now, unfinished);
        return;  // else it was left behind
    }
    const Sequence::Position position = high->sequence->size() - high->outstanding;
    const Sequence::Launch& launch = high->sequence->at(position);
    // Streams complete in an order of their own: what is of another key was launched elsewhere.
    if (measured > 0 && work.key == launch.key) [[unlikely]]
        high->sequence->measured(position, measured, static_cast<uint32_t>(issued_));
    // Behind others' work or its own it is late for other reasons than that it is seen late; nobody
    // knows how late what is seen with more behind it is.
    const Nanoseconds start = launch.at + Sequence::latency;
    if (runs_ == 0 && last_over_ < launch.at && start > high->end && unfinished != 0)
        notice(*high, now - start - launch.duration - high->notice);
    const Nanoseconds latest = now - high->notice;
    const Nanoseconds at =
        ended(std::max(start, high->end) + launch.duration, unfinished - high->notice, latest);
    compare(session, *high, launch, at, latest, latest, high->seen);
    // What one look saw over has begun long before: beside what was over only since then.
    if (--high->outstanding > 0 && at >= last_over_) [[unlikely]]
        high->sequence->begins(position + 1, static_cast<uint32_t>(issued_ - runs_));
    high->end = at;
    high->alone = std::min(launch.alone, at);
    if (position + 1 == high->settles || (high->outstanding == 0 && !high->waits)) [[unlikely]]
        settle(session, *high, position + 1, now);
}

void Fikit::held(unsigned session, Nanoseconds time) {
    High* const high = high_of(session);
    if (high == nullptr) return;
    // By its own work alone it would have been held up, too.
    const bool alone = runs_ == 0 && high->sequence->last().gated == static_cast<uint32_t>(issued_);
    if (time == 0 || !alone) high->sequence->held(time);
}

// The session has what it waited for, the launches up to a position: what it is late by, it was delayed by.
void Fikit::settle(unsigned session, High& high, Sequence::Position position, Nanoseconds now) {
    if (high.side_by_side()) [[unlikely]]
        meet(high, position);
    // Beside nothing it was late for nobody: so late it is seen.
    if (!high.beside && high.outstanding == 0 && !high.side_by_side())
        notice(high, high.end - high.sequence->at(position - 1).alone);
    const Nanoseconds late = high.found ? 0 : high.end - high.alone;
    if (high.graph_wait != 0) [[unlikely]]
        learn_hindrance(high, position, high.end - high.alone);
    if (high.beside && late > noise) {
        high.spent += late;
        Delays& delays = statistics_[session].delays;
        ++delays.count;
        delays.sum += late;
        if (high.suspect < max_sessions && high.suspect != session) {
            Delays& caused = statistics_[high.suspect].caused;
            ++caused.count;
            caused.sum += late;
            caused.worst = std::max(caused.worst, late);
            if (late > delays.worst) statistics_[session].blames = static_cast<int>(high.suspect);
        }
        delays.worst = std::max(delays.worst, late);
    }
    surprises_.told(bit_of(high), high.end - high.alone);
    high.alone = high.end;                  // it is over
    high.guessed = high.beside ? late : 0;  // beside nothing the host may have made it late
    // Of who tells of it, the gap behind has varied by that, and so may the next one.
    if (high.waits && position != high.told) high.sequence->delayed(position, late);
    if (high.fills && high.outstanding == 0) high.sequence->over(high.end);
    high.beside = runs_ > 0;
    high.suspect = max_sessions;
    high.suspect_block = 0;
    for (unsigned at = 0; at < runs_; ++at) suspect(high, running(at));
    high.awaits = false;
    high.settles = Sequence::nowhere;
    high.found = false;
    // Several waits make a step where iterations have several, as long as it is too short for a bound of its
    // own, or follow each other so soon that the least bound on each were more than `delay_share`. As long as
    // each pause is taken for one that is each one's own: whom nobody may make late is never seen to wait.
    const uint32_t period = high.sequence->known() ? high.sequence->period() : 0;
    if ((high.end - high.closed_at >= long_step_ || !high.waits) &&
        (position - high.step_from >= period || high.end - high.step_at >= long_step_))
        close_step(session, high, position, now);
}

// What was in flight while the session paused is none of its step.
[[gnu::noinline]] void Fikit::begin_step(High& high, Nanoseconds now) {
    high.step_at = now;
    static_cast<Witnessed&>(high) = {};
    for (unsigned at = oldest_at(now); at < runs_; ++at) witness(high, running(at));
}

void Fikit::close_step(unsigned session, High& high, Sequence::Position position, Nanoseconds now) {
    SessionStatistics& statistics = statistics_[session];
    // Often it is told with the program's next launch, which may come much later.
    const Nanoseconds length = std::max<Nanoseconds>(0, high.end - high.step_at);
    high.step_time = high.step_time == 0 ? length : high.step_time + (length - high.step_time) / 8;
    high.spared += (high.sparing - high.spared) / 8;
    high.sparing = 0;
    ++statistics.steps;
    ++steps_;
    statistics.step_time = high.step_time;
    statistics.over_bound += high.spent > statistics.bound;
    if (high.rests > 0) --high.rests;
    // Beside one that outlasts it nothing is a matter of trust.
    const unsigned oldest = oldest_at(now);
    const bool outlasted = runs_ == oldest + 1 && high.step_issued == issued_;
    if (high.spent > statistics.bound) {
        high.first_try.rests(statistics.steps, now);
        const double times = static_cast<double>(high.spent) / static_cast<double>(statistics.bound);
        if (high.tried) {
            high.rests = high.rest;
            high.rest = std::min(2 * high.rest, most_rest);
        }
        if (!high.unplanned && !outlasted) {
            const double counts = std::min(times, barely * (times - 1));
            high.trust = std::max(least_trust, high.trust * std::pow(0.8, counts));
            high.calm = 0;
        }
    } else if (runs_ > 0 || waiting_ != 0) {
        ++high.calm;
        high.trust = std::min(most_trust, high.trust * (1.001 + 5e-6 * high.calm));
    }
    if (outlasted) {
        const Plan& plan = running(oldest).plan;
        if (!outlasted_.measured(session, plan.key, plan.sms, high.spent, high.bound))
            high.first_try.found(high.spent > high.bound);
    } else if (high.spent > statistics.bound && high.outlasting != 0 && high.told != 0 &&
               high.passing < high.spent)
        // It may be over by now: often a step is told of with the next one. Others beside it are foreseen,
        // and what tells of no wait has steps that are guesses. What has blocks so long may be to blame.
        if (!outlasted_.measured(session, high.outlasting, high.outlasting_sms, high.spent, high.bound))
            high.first_try.found(true);
    high.step_issued = runs_ == oldest + 1 ? issued_ : 0;
    high.fills = high.lasting > length / 2;
    const bool unmeasured = high.fills && high.unmeasured > high.lasting / unmeasured_part;
    const bool unmet = std::exchange(high.unmet, false);
    // What was in flight when it began, or went by credit, was beside it all the same.
    const bool keeps = (unmet && high.kept_free % most_kept_free != 0) ||
                       ((unmeasured || unmet) && ++high.others_steps >= least_others_steps + high.free_steps);
    high.kept_free = keeps ? high.kept_free + 1 : 0;
    if (keeps) high.others_steps = 0, ++high.free_steps;
    high.lasting = high.unmeasured = 0;
    set_bound(high);
    statistics.bound = high.bound;
    statistics.trust = high.trust;
    high.spent = 0;
    high.several = high.sequence->waits_within(high.step_from, position);
    high.closed_at = high.end;
    high.step_at = now;
    high.step_from = position;
    if (high.sequence->size() != position) begin_step(high, high.sequence->at(position).at);
}

Decision Fikit::wait(unsigned session, Refusal reason) {
    if (!guests_[session].refused) {
        guests_[session].refused = true;
        ++statistics_[session].refused[static_cast<unsigned>(reason)];
    }
    return {Verdict::wait, static_cast<uint8_t>(session)};
}

inline Decision Fikit::place(unsigned session, const Moment& moment, bool refused, bool& full,
                             Refusal& refusal) {
    const auto number = static_cast<uint8_t>(session);
    refusal = Refusal::in_flight;
    if (!has_room(session, moment, refused, full)) return stalled(session, moment, refused, full, refusal);
    if (!moment.beside) return {Verdict::whole, number};
    const Work& work = sessions_[session].head;
    if (unknown(work) || moment.now < guests_[session].look_at) return search(session, moment, refusal);
    Plan& planned = running(runs_).plan;
    plan(planned, session, work, bounds_.multiprocessors, moment.busy, moment.now);
    planned_for_ = session;
    if (fits(planned, moment.now)) return {Verdict::whole, number};
    return search(session, moment, refusal);
}

// What does not go to the whole GPU: a partition, what its level is entitled to, or nothing yet.
[[gnu::noinline]] Decision Fikit::search(unsigned session, const Moment& moment, Refusal& refusal) {
    const Work& work = sessions_[session].head;
    const Nanoseconds now = moment.now;
    const auto number = static_cast<uint8_t>(session);
    const auto smallest = static_cast<uint8_t>(partitions_ - 1);
    const auto middle = static_cast<uint8_t>(partitions_ / 2);
    Nanoseconds ready_at = 0;  // then a smaller partition will do
    const bool can_confine = !work.whole && partitions_ > 0 && work.engine == Engine::kernel;
    if (unknown(work)) {
        if (can_confine && !delayed()) return {Verdict::partition, number, middle};
        refusal = Refusal::unknown;
    } else {
        Guest& guest = guests_[session];
        if (now < guest.look_at) {
            refusal = guest.refusal;
            return {Verdict::wait, number, 0, guest.look_at};
        }
        Plan& planned = running(runs_).plan;
        refusal = work.block > bounds_.delay_least && work.block > longest_bound() ? Refusal::too_long
                                                                                   : Refusal::bound;
        guest.refusal = refusal;
        if (guest.since == 0) guest.since = now;
        if (can_confine) {
            Nanoseconds least = 0;
            std::array<Plan, max_partitions> plans;
            const auto plan_for = [&](size_t index) {
                plan(plans[index], session, work, bounds_.partitions[index], moment.busy, now);
            };
            plan_for(0);
            for (size_t first = 0, next = 1; first < partitions_; first = next++) {
                for (; next < partitions_; ++next) {
                    plan_for(next);
                    if (plans[next].waves != plans[first].waves) break;
                }
                const Nanoseconds length = plans[first].length;
                if (first == 0) least = length;
                // What takes long on a small partition rather waits a while for room on a larger one.
                ready_at = guest.since + (length - least) / patience;
                if (ready_at > now || foreseen_ >= foresight) break;
                // Of those of equal speed the smallest.
                for (size_t index = next; index-- > first;) {
                    if (!fits(plans[index], now)) continue;
                    planned = plans[index];
                    return {Verdict::partition, number, static_cast<uint8_t>(index)};
                }
            }
        }
        planned_for_ = max_sessions;
        guest.look_at = now + std::max(planned.length / looks, foreseen_ * foresees);
    }
    Nanoseconds again = 0;
    if (!works_high(now)) {
        return can_confine ? Decision{Verdict::partition, number, middle} : Decision{Verdict::whole, number};
    }
    if (entitled(session, now, again, can_confine ? smallest + 1u : 0)) {
        return can_confine ? Decision{Verdict::partition, number, smallest}
                           : Decision{Verdict::whole, number};
    }
    if (work.at_least != 0 && gated_operations_ == 0 && may_try(work)) {
        tried_for_ = session;
        return can_confine ? Decision{Verdict::partition, number, middle} : Decision{Verdict::whole, number};
    }
    Nanoseconds when = Silence::never;
    for (unsigned left = used_; left != 0; left &= left - 1) {
        const High& high = highs_[std::countr_zero(left)];
        if (high.outstanding == 0)
            when = std::min(when, high.end + high.sequence->silence.tells_at(now - high.end));
    }
    // While high work is in flight that is forgotten when it is over, whenever that may be.
    for (const Nanoseconds other : {again, ready_at, high_at_ + bounds_.high_memory})
        if (other > now) when = std::min(when, other);
    return {Verdict::wait, number, 0, when < Silence::never ? when : 0};
}

// Whoever has saved up for its operation goes before the levels above, which would else take all the room
// there is.
[[gnu::noinline]] Decision Fikit::or_saved_up(const Decision& chosen, uint64_t below, const Moment& moment) {
    for (unsigned levels = lower_levels(); levels != 0; levels &= levels - 1) {
        const uint64_t candidates = levels_[std::countr_zero(levels)].members & below;
        if (candidates == 0) continue;
        const unsigned session = least(candidates);
        Refusal refusal = Refusal::level;
        Nanoseconds again = 0;
        bool full = false;
        if (entitled(session, moment.now, again)) {
            const Decision decision = place(session, moment, false, full, refusal);
            if (decision.verdict != Verdict::wait) return decision;
        }
        wait(session, refusal);
    }
    return chosen;
}

Decision Fikit::decide(Nanoseconds now) {
    Decision answer;
    if (waiting_ == 0) return answer;
    const Moment moment{now, busy_until(now), expects_high(now)};
    bool blocked = high_elsewhere_;  // nothing is foretold of another executor's sessions
    bool refused = false;            // what goes first did not fit
    uint64_t left = waiting_;
    planned_for_ = tried_for_ = max_sessions;
    foreseen_ = 0;
    for (unsigned levels = lower_levels(); left != 0 && levels != 0; levels &= levels - 1) {
        const Level& level = levels_[std::countr_zero(levels)];
        uint64_t candidates = level.members & left;
        left &= ~candidates;
        while (candidates != 0) {
            const unsigned session = least(candidates);
            candidates &= ~bit(session);
            Refusal refusal = Refusal::level;
            Nanoseconds again = 0;
            if (blocked && !entitled(session, now, again)) {
                wait(session, refusal);
                if (again != 0 && (answer.again_at == 0 || again < answer.again_at)) answer.again_at = again;
                continue;
            }
            bool full = false;
            const Decision decision = place(session, moment, refused, full, refusal);
            if (decision.verdict != Verdict::wait)
                return left == 0 ? decision : or_saved_up(decision, left, moment);
            wait(session, refusal);
            if (decision.again_at != 0 && (answer.again_at == 0 || decision.again_at < answer.again_at))
                answer.again_at = decision.again_at;
            if (full) return answer;
            refused |= refusal != Refusal::in_flight;
        }
        blocked = blocked || level.in_flight > 0;
    }
    return answer;
}

}  // namespace fikit::scheduling
