// Policy fikit's foresight: by how much a gated operation somewhere would make a high session late
// (fikit.hpp).
#include "fikit.hpp"

namespace fikit::scheduling {

Fikit::Plan Fikit::plan(unsigned session, const Work& work, uint32_t sms, Nanoseconds now) const {
    Plan plan{work.engine, sms,        1,
              1.0,         work.block, std::max(now + Sequence::latency, busy_until(now)),
              0,           0,          {work.key, sms, bounds_.multiprocessors}};
    Nanoseconds length = std::max(work.expected, work.longest);
    if (work.engine == Engine::kernel && work.blocks > 0) {
        const uint32_t all = bounds_.multiprocessors * work.per_sm, slots = sms * work.per_sm;
        const uint32_t whole = work.waves > 0 ? work.waves : (work.blocks + all - 1) / all;
        plan.waves = whole;
        if (sms < bounds_.multiprocessors) {
            plan.waves = (work.blocks + slots - 1) / slots;
            length = length * plan.waves / whole;
        }
        if (plan.waves == 1) plan.taken = static_cast<double>((work.blocks + sms - 1) / sms) / work.per_sm;
    }
    plan.end = plan.start + length + between;
    plan.from = sessions_[session].in_flight > 0 ? plan.start : now + Sequence::latency;
    return plan;
}

// How much later a launch of a high session ends that starts when a gated operation still has `left` to go.
Nanoseconds Fikit::stall(const Plan& plan, const Sequence::Launch& launch, Nanoseconds left) const {
    if (plan.engine != Engine::kernel || launch.engine != Engine::kernel)
        return plan.engine == launch.engine ? left : 0;
    const Nanoseconds block = std::min(left, plan.block > 0 ? plan.block : left);
    const auto beside = static_cast<uint32_t>((1 - plan.taken) * launch.per_sm);
    const uint32_t room =
        (bounds_.multiprocessors - plan.sms) * launch.per_sm + (plan.waves == 1 ? plan.sms * beside : 0);
    if (launch.blocks <= room) return 0;
    if (room == 0) return block;
    const uint32_t all = bounds_.multiprocessors * launch.per_sm;
    const uint32_t more = (launch.blocks + room - 1) / room - (launch.blocks + all - 1) / all;
    return std::min(block, more * launch.block);
}

// The same, and how much longer it lasts beside that.
Nanoseconds Fikit::delay(const Plan& plan, const Sequence::Launch& launch, Nanoseconds left) const {
    const float share = interference_.share(launch.key, plan.guest);
    const auto beside = static_cast<double>(std::min(left, launch.duration));
    return stall(plan, launch, left) + static_cast<Nanoseconds>(static_cast<double>(share) * beside);
}

// A high session's launches beside what is in flight and the candidate behind it: follows its two ends.
struct Fikit::Course {
    const Fikit& policy;
    const Plan& candidate;
    Nanoseconds alone, end;
    unsigned run = 0;  // what is on the GPU at `end`
    Nanoseconds until = 0;

    Course(const Fikit& all, const High& high, const Plan& plan, Nanoseconds now)
        : policy(all), candidate(plan), alone(high.alone), end(high.end) {
        if (policy.runs_ > 0) until = std::max(now, policy.running(0).plan.end);
    }

    void launch(const Sequence::Launch& next, Nanoseconds at) {
        alone = std::max(at, alone) + next.duration;
        const Nanoseconds start = std::max(at, end);
        end = start + next.duration;
        while (run < policy.runs_ && start >= until)
            if (++run < policy.runs_) until += policy.running(run).length;
        Nanoseconds longer = 0;
        const bool before = run < policy.runs_;
        if (before) longer = policy.delay(policy.running(run).plan, next, until - start);
        if ((!before || start >= candidate.from) && start < candidate.end)
            longer = std::max(
                longer, policy.delay(candidate, next, candidate.end - std::max(start, candidate.start)));
        end += longer;
    }
};

// Walks through the launches of a high session up to the end of the candidate. By how much would it be
// delayed more than is allowed, at the worst of its waits?
Nanoseconds Fikit::excess(const High& high, const Plan& plan, Nanoseconds now) const {
    const Sequence& sequence = *high.sequence;
    if (sequence.size() == 0) return 0;
    const bool known = sequence.known();
    Course course(*this, high, plan, now);
    const Nanoseconds bound = step_bound(high);
    // Half of the bound in any case: kernels that take several steps would otherwise never go.
    const auto all = static_cast<Nanoseconds>((1 + high.trust) / 2 * static_cast<double>(bound));
    Nanoseconds allowed = all - high.spent, worst = -bound;
    uint32_t position = sequence.size() - high.outstanding;
    for (; position < sequence.size(); ++position) {
        const Sequence::Launch& launch = sequence.at(position);
        course.launch(launch, launch.at + Sequence::latency);
    }
    Sequence::Launch typical;
    typical.duration = typical.block = high.duration;
    typical.blocks = static_cast<uint32_t>(high.demand);
    typical.gap = high.gap;
    Nanoseconds issued = sequence.last().at;
    uint32_t step = known ? sequence.at(sequence.next() - 1).step : 0;
    position = sequence.next();
    for (unsigned seen = 0;; ++seen, ++position) {
        const Sequence::Launch& launch = known ? sequence.at(position) : typical;
        issued = std::max(issued + launch.gap, now);
        const Nanoseconds late = std::max<Nanoseconds>(0, course.end - course.alone);
        if (launch.step != step) {  // it waits in between: what it is late by then is a delay, and over
            worst = std::max(worst, late - allowed);
            issued += late;
            step = launch.step;
            allowed = all;
            course.alone = course.end;
        }
        const Nanoseconds at = issued + Sequence::latency;
        if (at >= plan.end) break;
        if (known && seen == sequence.period()) break;  // from here on it repeats
        if (seen == foresight) return late > 0 ? bound : worst;
        course.launch(launch, at);
        if (worst > 0) return worst;
    }
    const Nanoseconds late = course.end - course.alone;
    if (late <= 0) return worst;
    const double slack = known ? high.trust * static_cast<double>(sequence.slack(position)) : 0;
    return std::max(worst, late - static_cast<Nanoseconds>(slack) - allowed);
}

// Most candidates need no walk: they cannot delay by more than lies before their end, and that the slack
// absorbs.
bool Fikit::plainly_fits(const High& high, const Plan& plan, Nanoseconds now) const {
    const Sequence& sequence = *high.sequence;
    if (!sequence.known() || high.awaits) return false;
    const Nanoseconds most = std::max<Nanoseconds>(0, high.end - high.alone) + plan.end - now;
    const Nanoseconds slack = sequence.slack(sequence.next());
    return static_cast<double>(most) <= static_cast<double>(slack) * high.trust;
}

bool Fikit::fits(const Plan& plan, Nanoseconds now) const {
    if ((high_elsewhere_ || unforeseeable_ > 0) && plan.sms == bounds_.multiprocessors &&
        plan.block > bounds_.delay_least)
        return false;
    for (unsigned left = used_; left != 0; left &= left - 1) {
        const High& high = highs_[std::countr_zero(left)];
        if (!plainly_fits(high, plan, now) && excess(high, plan, now) > 0) return false;
    }
    return true;
}

}  // namespace fikit::scheduling
