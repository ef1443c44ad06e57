// Policy fikit's foresight: by how much a gated operation somewhere would make a high session late
// (fikit.hpp). For fikit.cpp alone, which makes one function of the whole decision.
#pragma once

#include "fikit.hpp"

namespace fikit::scheduling {

inline void Fikit::plan(Plan& plan, unsigned session, const Work& work, uint32_t sms, Nanoseconds busy,
                        Nanoseconds now) const {
    const uint32_t all = bounds_.multiprocessors;
    Nanoseconds length = std::max(work.expected, work.longest);
    plan.key = work.key;
    plan.engine = work.engine;
    plan.sms = plan.held = static_cast<uint16_t>(sms);
    plan.waves = plan.taken = plan.of = 1;
    plan.block = work.block;
    if (work.engine == Engine::kernel && work.blocks > 0) {
        const uint32_t whole = work.waves > 0 ? work.waves : waves(work.blocks, all * work.per_sm);
        plan.waves = whole;
        if (sms < all) {
            plan.waves = waves(work.blocks, sms * work.per_sm);
            length = length * plan.waves / whole;
        }
        if (plan.waves == 1) {
            plan.held = static_cast<uint16_t>(std::min(sms, work.blocks));
            plan.taken = static_cast<uint16_t>(waves(work.blocks, sms));
            plan.of = work.per_sm;
        }
    }
    plan.everywhere = plan.held == all && plan.taken == plan.of;
    // A copy over the link takes no multiprocessors, and next to nothing of the memory's bandwidth.
    const bool disturbs = computes(work.engine) || work.engine == Engine::on_device;
    plan.guest = disturbs ? interference_.guest(work.key, sms, all) : Interference::Guest{};
    const Nanoseconds soonest = now + Sequence::latency;
    const Own& mine = own_[session];
    const Nanoseconds behind = std::max(soonest, busy),
                      own = std::min(now + mine.streams[work.stream].length, busy);
    plan.length = length + between;
    plan.from = std::max(soonest, own);
    plan.sooner = static_cast<uint32_t>(plan.from - std::max(soonest, std::min(plan.from, mine.soonest)));
    plan.area = area(work, length);
    plan.end = std::max(behind + plan.area + between, plan.from + plan.length);
    plan.start = plan.end - plan.length;
    plan.adds = plan.end - behind;
}

// How much later a launch of a high session ends that starts when a gated operation still has `left` to go.
inline Nanoseconds Fikit::stall(const Plan& plan, const Sequence::Launch& launch, Nanoseconds left) const {
    if (plan.engine != Engine::kernel || launch.engine != Engine::kernel) {
        const bool both_compute = computes(plan.engine) && computes(launch.engine);
        return plan.engine == launch.engine || both_compute ? left : 0;
    }
    const uint32_t all = bounds_.multiprocessors;
    uint32_t room = (all - plan.held) * launch.per_sm;
    if (launch.blocks <= room) return 0;
    const Nanoseconds block = plan.block > 0 ? std::min(left, plan.block) : left;
    if (plan.everywhere) return block;
    if (plan.waves == 1) room += plan.held * ((plan.of - plan.taken) * launch.per_sm / plan.of);
    return waits_for_room(launch, room, block);
}

// How much later it ends that so few of its blocks find room until one of that length is over.
inline Nanoseconds Fikit::waits_for_room(const Sequence::Launch& launch, uint32_t room,
                                         Nanoseconds block) const {
    if (launch.blocks <= room) return 0;
    if (room == 0) return block;
    const uint32_t more =
        waves(launch.blocks, room) - waves(launch.blocks, bounds_.multiprocessors * launch.per_sm);
    return std::min(block, more * launch.block);
}

// The same, and how much longer it lasts beside that.
inline Nanoseconds Fikit::delay(const Plan& plan, const Sequence::Launch& launch, Nanoseconds left) const {
    const Nanoseconds stalled = stall(plan, launch, left);
    if (plan.guest.most == 0) return stalled;
    const auto beside = static_cast<float>(std::min(left, launch.duration));
    return stalled + static_cast<Nanoseconds>(interference_.share(launch.key, plan.guest) * beside);
}

// How much later a graph ends beside a gated operation that has `left` to go: its kernels come one behind
// another, and each time one ends others' blocks take its place. So it loses the operation's part of the GPU,
// as long as both are there.
inline Nanoseconds Fikit::hinders(const Plan& plan, const Sequence::Launch& graph, Nanoseconds left) const {
    if (!computes(plan.engine) || left <= 0) return 0;
    const Nanoseconds all = bounds_.multiprocessors;
    const Nanoseconds taken =
        std::min<Nanoseconds>(plan.sms, all * plan.area / std::max<Nanoseconds>(plan.length, 1) + 1);
    const Nanoseconds lost = left * taken / all;
    return taken == all ? lost : std::min(lost, graph.duration * taken / (all - taken));
}

// A high session's launches beside what is in flight and the candidate behind it: follows its two ends.
// `any`: there may be graphs among them, and they may be on several streams, whose ends are followed one by
// one.
template <bool any>
struct Fikit::Course {
    const Fikit& policy;
    const High& high;
    const Plan& candidate;
    Nanoseconds alone, end, held;
    unsigned run = 0;  // what is on the GPU at `end`
    Nanoseconds until = 0, first_until = 0;
    Queues ahead;
    bool joins = false;  // the candidate is behind nothing on its stream: it begins beside what is in flight
    bool side_by_side = false;
    std::array<Sequence::Course, any ? streams_told_apart : 0> streams;

    Course(const Fikit& all, const High& of, const Plan& plan, const Queues& others, Nanoseconds now)
        : policy(all),
          high(of),
          candidate(plan),
          alone(of.alone),
          end(of.end),
          held(of.sequence->held()),
          ahead(others) {
        if (policy.runs_ > 0) {
            until = first_until = std::max(now, policy.running(0).plan.end);
            joins = candidate.from == now + Sequence::latency;
        }
        if constexpr (any)
            if ((side_by_side = of.side_by_side())) streams = of.sequence->courses();
    }

    // It may come so much `later` than `at`, and find the candidate there.
    [[gnu::always_inline]] void launch(const Sequence::Launch& next, Nanoseconds at, Nanoseconds later) {
        if constexpr (any)
            if (side_by_side) {
                Sequence::Course& own = streams[next.stream];
                alone = own.alone, end = own.end;
                run = 0, until = first_until;  // it may begin before the one that was launched before
                beside_others(next, at, later);
                own = {alone, end};
                return;
            }
        beside_others(next, at, later);
    }
    // It is the oldest in flight, and was not over by then.
    void overdue(const Sequence::Launch& oldest, Nanoseconds then) {
        Nanoseconds& before = any && side_by_side ? streams[oldest.stream].end : end;
        before = std::max(before, then - oldest.duration);
    }
    // In flight are those, and what is over on other streams.
    bool is_over(const Sequence::Launch& launched) const { return any && side_by_side && launched.over; }
    // What was launched before the decision would be over then.
    void launched(const Sequence::Launch& next) {
        alone = std::min(alone, next.alone);
        if constexpr (any)
            if (side_by_side) streams[next.stream].alone = alone;
    }
    // By how much is it late where it waits behind that?
    Nanoseconds late(const Sequence::Launch& last) {
        if constexpr (any)
            if (side_by_side) {
                alone = end = 0;
                for (const Sequence::Course& each : streams) {
                    alone = std::max(alone, each.alone);
                    end = std::max(end, each.end);
                }
                alone += last.meets == Sequence::unmeasured ? high.meets : last.meets;
            }
        return std::max<Nanoseconds>(0, end - alone);
    }
    void waited() {
        alone = end;
        if constexpr (any)
            if (side_by_side) streams.fill({end, end});
    }
    // By how much is it late where it does not wait? By as much as the stream that is latest.
    Nanoseconds behind() const {
        if constexpr (any)
            if (side_by_side) {
                Nanoseconds most = 0;
                for (const Sequence::Course& each : streams) most = std::max(most, each.end - each.alone);
                return most;
            }
        return end - alone;
    }

    [[gnu::always_inline]] void beside_others(const Sequence::Launch& next, Nanoseconds at,
                                              Nanoseconds later) {
        alone = std::max(at - held, alone) + next.duration;
        const Nanoseconds start = std::max(at, end);
        end = start + next.duration;
        while (run < policy.runs_ && start >= until)
            if (++run < policy.runs_) until += policy.running(run).plan.adds;
        Nanoseconds longer = 0;
        if (any && next.is_graph()) {
            end += graph(next, start);
            return;
        }
        const bool before = run < policy.runs_;
        if (before)
            longer = std::max(policy.delay(policy.running(run).plan, next, until - start),
                              ahead.running.behind(start, until - start));
        if ((!before || start + later >= candidate.from) && start < candidate.end) {
            const Nanoseconds left = candidate.end - std::max(start, candidate.start);
            longer =
                std::max({longer, policy.delay(candidate, next, left), ahead.candidate.behind(start, left)});
            if (before && run == 0 && joins) [[unlikely]]
                longer = std::max(longer, beside_both(next, std::min(left, until - start)));
        }
        end += longer;
    }

    // The candidate's blocks pile up on what the first in flight leaves free of the SMs that it may have.
    [[gnu::noinline]] Nanoseconds beside_both(const Sequence::Launch& next, Nanoseconds left) const {
        const Plan& first = policy.running(0).plan;
        for (const Engine each : {first.engine, candidate.engine, next.engine})
            if (each != Engine::kernel) return 0;
        const uint32_t most = std::max(first.sms, candidate.sms);
        const uint32_t filled = std::min(first.fills() + candidate.fills(), most);
        const uint32_t room = (policy.bounds_.multiprocessors - filled) * next.per_sm;
        const Nanoseconds block = std::min(first.block, candidate.block);
        return policy.waits_for_room(next, room, block > 0 ? std::min(left, block) : left);
    }

    // What all that is in flight, and the candidate, add to a graph.
    [[gnu::noinline]] Nanoseconds graph(const Sequence::Launch& next, Nanoseconds start) const {
        const bool hindered =
            high.hindered != Sequence::nowhere && &next == &high.sequence->at(high.hindered);
        Nanoseconds longer = hindered ? high.hindrance : 0, from = start;
        for (unsigned each = run; each < policy.runs_; ++each) {
            const Plan& plan = policy.running(each).plan;
            const Nanoseconds over = each == run ? until : from + plan.adds;
            const Nanoseconds until_over = std::min(over, start + next.duration + longer);
            longer += policy.hinders(plan, next, until_over - std::max(from, plan.start));
            from = std::max(from, over);
        }
        if (candidate.from < start + next.duration + longer)
            longer += policy.hinders(candidate, next, candidate.end - std::max(start, candidate.start));
        return static_cast<Nanoseconds>(static_cast<double>(longer) * high.hindered_share);
    }
};

// Whether the candidate lasts longer than a step of the high session, and will be alone in that.
inline bool Fikit::outlasts(const High& high, const Plan& plan) const {
    if (plan.length <= high.step_time) return false;
    for (unsigned run = 0; run < runs_; ++run)
        if (running(run).longest > high.step_time) return false;
    return true;
}

// Nothing of the high session is on the GPU, and by what its pauses were like nothing will be until then.
inline bool Fikit::is_silent(const High& high, Nanoseconds now, Nanoseconds until) {
    return high.outstanding == 0 && high.sequence->silence.lasts(now - high.end, until - high.end);
}

// How much may be in flight of what is not over before high work comes; without a bound, if none will by
// then.
[[gnu::noinline]] inline Nanoseconds Fikit::near(Nanoseconds now, Nanoseconds until) const {
    Nanoseconds most = INT64_MAX;
    for (unsigned left = used_; left != 0; left &= left - 1) {
        const High& high = highs_[std::countr_zero(left)];
        if (high.step_time == 0 || high.told == 0) continue;  // else its steps are guesses
        const Sequence& sequence = *high.sequence;
        Nanoseconds next = now;
        if (high.outstanding == 0 && sequence.known()) next = sequence.expected();
        if (next >= until || (next <= now && is_silent(high, now, now + bounds_.in_flight))) continue;
        most = std::min(most, std::max(least_near, high.step_time / near_part));
    }
    return most;
}

// Is it later behind that launch than the idle time until it waits makes good? And a quarter more: that may
// be longer this time.
[[gnu::noinline]] inline bool Fikit::is_hopeless(const High& high, Sequence::Position position,
                                                 Nanoseconds late) {
    return high.waits && late > 0 && late > high.sequence->slack(position) * 5 / 4;
}

// Walks through the launches of a high session up to the end of the candidate. By how much would it be
// delayed more than is allowed, at the worst of its waits?
template <bool any>
[[gnu::noinline]] inline Fikit::Foreseen Fikit::excess(const High& high, const Plan& plan,
                                                       const Queues& others, Nanoseconds now) const {
    Sequence& sequence = *high.sequence;
    if (sequence.size() == 0 || is_silent(high, now, plan.end)) return {0, 0};
    Nanoseconds most = high.allowed;
    if (outlasts(high, plan)) {
        const Nanoseconds late =
            outlasted_.late(high.session, plan.key, plan.sms, high.bound, statistics_[high.session].steps);
        // What it is late by now it may catch up with by itself, not beside that.
        const Nanoseconds behind = std::max<Nanoseconds>(0, high.end - high.alone);
        const bool can_wait = plan.length <= high.pause;
        if (late > high.bound || (late != Outlasted::unmeasured && !can_wait))
            return {std::max(late + behind, high.spent) - high.bound, 0};
        // One step tells, however little is trusted in. What is foreseen of so many launches is rather too
        // much, but not by as much as they may spare. Now and then it may be far too much: what was seen of
        // interference first was, or that would never be found out.
        const bool once = high.first_try.is_due(statistics_[high.session].steps, now);
        if (!can_wait)
            most = high.bound + std::max<Nanoseconds>(0, high.bound - high.spared) * (once ? 4 : 1) / 2;
    }
    const bool known = sequence.known(), sure = sequence.is_sure();
    Course<any> course(*this, high, plan, others, now);
    Nanoseconds allowed = most - high.spent, worst = -high.bound;
    Sequence::Position position = sequence.size() - high.outstanding;
    // Other high sessions' work may be before it, and nobody foresees that.
    if (high.outstanding > 0 && levels_[highest_level].in_flight > high.outstanding) [[unlikely]]
        course.overdue(sequence.at(position), now - high.notice);
    for (; position < sequence.size(); ++position) {
        const Sequence::Launch& launch = sequence.at(position);
        if (course.is_over(launch)) continue;
        course.launch(launch, launch.at + Sequence::latency, 0);
        course.launched(launch);
    }
    const Sequence::Launch* typical = known ? nullptr : &sequence.typical();
    Nanoseconds issued = sequence.last().at;
    // Once what repeats has come beside the candidate as a whole, so does that; but it adds up where waits
    // share a bound.
    uint32_t repeats = known && !high.several ? sequence.period() : foresight;
    position = sequence.next();
    uint32_t seen = 0, stop = at_once;
    for (;; ++seen, ++position) {
        if (position == sequence.size()) position -= sequence.period();
        const Sequence::Launch& launch = known ? sequence.at(position) : *typical;
        issued = std::max(issued + launch.gap - launch.doubt(), now);
        // It waits in between: what it is late by then is a delay, and over.
        if (known && launch.ordinal == 0) {
            if (seen > 0 || high.outstanding > 0) {  // else it is over by now
                const Sequence::Launch& last = sequence.at(position - 1);
                Nanoseconds late = course.late(last);
                // What it waits for can't be caught up with any more: the candidate may come before that.
                const Nanoseconds start = course.end - last.duration;
                if (plan.from - plan.sooner < start && start < plan.from)
                    late += stall(plan, last, plan.length);
                worst = std::max(worst, late - allowed);
                if (worst > 0) return {worst, seen};
                issued += late;
                if (high.several) allowed -= late;
            }
            if (!high.several) allowed = most;
            course.waited();
        }
        const Nanoseconds at = issued + Sequence::latency;
        if (at >= plan.end) break;
        if (at >= plan.start && repeats-- == 0) break;
        if (seen == stop) [[unlikely]] {
            const Nanoseconds late = course.behind();
            if (seen == foresight) return {at < plan.start || late > 0 ? high.bound : worst, seen};
            if (known && is_hopeless(high, position - 1, late - allowed)) return {late - allowed, seen};
            stop += at_once;
        }
        course.launch(launch, at, tardy);
        // Idle time between launches that may well last longer makes nothing good.
        if (!sure && course.behind() > allowed) return {course.behind() - allowed, seen};
    }
    const Nanoseconds late = course.behind();
    if (late <= 0) return {worst, seen};
    const double slack = known ? high.absorbs * static_cast<double>(sequence.slack(position)) : 0;
    return {std::max(worst, late - static_cast<Nanoseconds>(slack) - allowed), seen};
}

// What of each high session's launches finds no room before the candidate ends.
[[gnu::noinline]] inline void Fikit::queue(const Plan& plan, Nanoseconds now) const {
    for (unsigned left = used_; left != 0; left &= left - 1) {
        const unsigned number = std::countr_zero(left);
        const High& high = highs_[number];
        const Sequence& sequence = *high.sequence;
        Queues& queue = queues_[number] = {};
        const auto beside_running = [&](const Sequence::Launch& launch, Nanoseconds at) {
            if (runs_ > 0) queue.running.meets(stall(running(0).plan, launch, running(0).plan.length), at);
        };
        for (Sequence::Position position = sequence.size() - high.outstanding; position < sequence.size();
             ++position)
            beside_running(sequence.at(position), 0);
        if (!sequence.known()) continue;
        Nanoseconds issued = sequence.last().at;
        Sequence::Position position = sequence.next();
        for (unsigned seen = 0; seen < queued_before; ++seen, ++position) {
            if (position == sequence.size()) position -= sequence.period();
            const Sequence::Launch& launch = sequence.at(position);
            issued = std::max(issued + launch.gap - launch.doubt(), now);
            const Nanoseconds at = issued + Sequence::latency;
            if (at >= plan.end) break;
            beside_running(launch, at);
            queue.candidate.meets(stall(plan, launch, plan.length), at);
        }
    }
}

// What of that the launches of one of them may be behind.
inline Queues Fikit::ahead_of(unsigned number) const {
    Queues before;
    for (unsigned left = used_ & ~(1u << number); left != 0; left &= left - 1) {
        const Queues& other = queues_[std::countr_zero(left)];
        before.running.joins(other.running);
        before.candidate.joins(other.candidate);
    }
    return before;
}

// Most candidates need no walk. All launches that come before they end, each delayed as much as any can be,
// but together by no more than the time until then, are late by no more than the slack absorbs, or than is
// allowed in any case.
inline bool Fikit::plainly_fits(const High& high, const Plan& plan, Nanoseconds now) const {
    Sequence& sequence = *high.sequence;
    if (!sequence.known() || high.awaits) return false;
    const Nanoseconds left = plan.end - now, late = std::max<Nanoseconds>(0, high.end - high.alone);
    const Sequence::Position next = sequence.next();
    const auto absorbed = static_cast<Nanoseconds>(static_cast<double>(sequence.slack(next)) * high.absorbs);
    if (late + left <= absorbed) return true;
    Nanoseconds block = plan.block > 0 ? plan.block : left;
    float longer = plan.guest.most;
    for (unsigned at = 0; at < runs_; ++at) {
        block = std::max(block, running(at).plan.block);
        longer = std::max(longer, running(at).plan.guest.most);
    }
    const uint32_t foreseen = sequence.within(plan.end - sequence.last().at - Sequence::latency);
    Nanoseconds most = late + (high.outstanding + foreseen) * std::max(block, high.graph_wait);
    if (longer > 0) most += static_cast<Nanoseconds>(longer * static_cast<float>(left));
    if (most <= high.allowed - high.spent) return true;
    // A wait before then would leave it less.
    return most <= absorbed && sequence.at(next + foreseen - (foreseen > 0)).step == sequence.at(next).step;
}

[[gnu::always_inline]] inline bool Fikit::fits(const Plan& plan, Nanoseconds now) const {
    if ((high_elsewhere_ || unforeseeable_ > 0) && plan.sms == bounds_.multiprocessors &&
        plan.block > bounds_.delay_least)
        return false;
    bool queued = (used_ & (used_ - 1)) == 0;  // nobody is before the only one
    for (unsigned left = used_; left != 0; left &= left - 1) {
        const unsigned number = std::countr_zero(left);
        const High& high = highs_[number];
        if (high.kept_free && (high.outstanding > 0 ||
                               (high.side_by_side() && now - high.end < bounds_.high_memory))) [[unlikely]]
            return false;
        if (plainly_fits(high, plan, now)) continue;
        if (!std::exchange(queued, true)) queue(plan, now);
        const Queues others = ahead_of(number);
        const bool any = high.graph_wait != 0 || high.side_by_side();
        const Foreseen told =
            any ? excess<true>(high, plan, others, now) : excess<false>(high, plan, others, now);
        if (told.excess <= 0) continue;
        foreseen_ += told.launches;
        return false;
    }
    return true;
}

}  // namespace fikit::scheduling
