// Filling: low-priority work runs in the idle time of high-priority work, as long as that does not notice.
//
// After FIKIT (arXiv 2311.10359): a profile of each kernel's duration (its SK) and of the gap that follows it
// (SG), ten priority queues, the best fit of the highest queue (BestPrioFit), and feedback that ends a
// filling when the gap ends early. Two things are different. What delays a high kernel is not the length of
// the one that fills but how long its *blocks* still hold the SMs that the high kernel needs, so a candidate
// may also be confined to a partition and run beside it. And a delay of one kernel is none of the program,
// unless it is still there when the program waits: idle time until then absorbs it.
//
//   level 0     is issued at once. Sequence (sequence.hpp) tells what a high session will launch next,
//               when, on how many SMs, and how much idle time (slack) there is until it waits for its
//               work.
//   delay       Two ends of a high session's work are followed: as it is, and as it would be alone.
//               Their difference is its lateness. What is left of it when the session waits is a delay,
//               and counts against the step's bound: `delay_share` of what a step takes from its first
//               launch on, at least `delay_least`. A pause before it is none of it: of a service that is
//               asked once a second it is the answers that must not be late. What launches spare an
//               unmodified program, as far as neither the GPU nor the executor keeps it waiting anyway, adds
//               to the bound (`spared`): nothing where it launches faster than the executor does.
//               Alone its launches would come as they do, but for the time that they were held up because as
//               much as may be was in flight, beside others' work: that is a delay, too, of those far ahead
//               of the GPU.
//   streams     Of a session that has work on several at once the ends are followed stream by stream, until
//               all that is remembered was on one. By how much longer they take together than each would
//               (`meets`) is learnt before each wait beside nothing; for that a step is kept free of others'
//               work now and then. Until it is known nothing counts as late.
//   candidate   The head of each gated session, by level, then fairness: the first that fits. For the
//               whole GPU and for each partition, the largest first, the predicted launches up to the
//               candidate's end are walked through: those that find the SMs they need wait for nothing,
//               the others until a block of the candidate ends, or run in more waves on what is left. If
//               the lateness that results, less the part of the slack that is trusted in, stays within
//               what is left of the step's bound, half of which is a matter of trust too, the candidate
//               goes there. Equal speed on a smaller partition is preferred to a larger one; where it would
//               be slower there, it first waits a `patience`-th of the loss for room on a larger one.
//               When it starts is told by what is before it, and by what high work seems to have kept that
//               from the GPU. The latter may be wrong, so at the last launch before a wait, from which
//               nothing is caught up with, the candidate is foreseen to have come sooner.
//   interference  What launches of a high session take beside others' work on top of waiting for SMs (caches,
//               memory bandwidth, a shared SM) is learnt by pairs of kernels (interference.hpp) and
//               expected in the walk. What they take beside nothing comes from measurements with nothing
//               beside (`Work::shortest`). Copies over the link disturb nobody.
//   outlasted   A candidate that lasts longer than a step is not foreseen once a step beside it was measured
//               (outlasted.hpp): it goes where steps were late by less than the bound, less what the session
//               has to catch up with. To be measured, it goes where no more than one and a half times the
//               bound is foreseen (what is spared counts once), whatever the trust; and again, now and then,
//               where they were late by little more. Such steps lower no trust. Of steps beside it for a
//               part of them, or beside others too, those tell that were over their bound. What the pause
//               before a step has room for, less twice what that varies by, can wait for one: beside steps
//               it goes where it is foreseen to fit, too.
//   filled      A high session that leaves less than half of its steps idle has no pauses at which what is
//               foreseen begins anew, and an error of each launch is one of the step. So its launches are
//               measured place by place, and while more than a 64th of a step was not, one step in eight,
//               then ever fewer, is kept free of others' work.
//   in flight   What is issued and not completed stands in the candidate's way and in the high session's:
//               the walk passes it first. Kernels of several streams run side by side as far as each leaves
//               SMs free, so one adds to the time until all is over what the whole GPU would take for it, or
//               by how much it outlasts that. On one stream less than the bound may be in flight besides
//               one operation, of all less than `together` times that; or just the bound while what goes
//               first by fairness does not fit: what is queued must not take its room again and again.
//               Of what the work of who tells of its waits will find there it is an eighth of its step, 30 us
//               at least: when a long row ends is known to some 10 us, which short answers have not to spare.
//               While no high session is near, the bound (a larger one) is on what the whole GPU would take:
//               long kernels of a few blocks are in nobody's way, but one behind another on one stream they
//               take long to be over, so there only two of them.
//   feedback    Every launch and completion of a high session renews the prediction; the gate asks again
//               for every operation, and only `in_flight` is ever beyond recall. Each step that was
//               delayed by more than the bound lowers that part (`trust`) by a fifth for each time the bound
//               that it was (by less where it was over by less than a tenth), each other one beside gated
//               work raises it by a 1000th, and by as much again for every 200 in a row: about one step in
//               160 stays over, and fewer where they are over by more. Steps beside long blocks that went
//               unplanned (unknown, or by credit) lower nothing. Once a session first waits its trust begins
//               anew: until then each pause of the GPU was taken for a wait.
//   steps       end when the session waits for its work and has come once through what it repeats, or has
//               worked so long that `delay_share` of it is `delay_least`: what it repeats may be long; but
//               not before so long after the step before (`several` waits make one), or pauses for
//               `long_pause`. They last until its last launch is over. Of a wait that the program says
//               nothing of (it looks at memory that a kernel writes, a host function tells it) its next
//               launch tells: it comes later by what the GPU was late by, and others don't, whether anyone
//               had seen by then that the GPU was done or not (`polls`). Where it was seen to wait it is
//               presumed to again, until it comes in time thrice; of who polls wherever the same launches
//               came behind a wait lately, as one that was missed once would be missed again. Of who tells of
//               no wait for as many launches as its steps have, a pause of `long_pause` is one.
//   silence     A high session that has not worked within `high_memory` but is there comes any moment, or not
//               for long. Until it has been silent for `remembered` times that, what does not fit goes to the
//               middle partition, and what cannot be confined to the whole GPU. A silence of a millisecond
//               and more is trusted to last where those before it did (silence.hpp): what is over by then
//               goes anywhere, and the gate is asked again whenever more is known of it.
//   unknown     kernels: one at a time, on the middle partition: on a smaller one a program that starts
//               would hold them longer; none while a step is late by its bound; without partitions only when
//               no high session worked within `high_memory`.
//   doubtful    kernels were measured a few times, and hardly ever by themselves: behind a high kernel's
//               blocks they took that one's time, too. What doesn't fit goes as what is unknown does, but
//               once nothing at all is in flight, and only if a block of it may last less than the bound.
//               After a step beside it that was over its bound there is none for 64 steps, then for twice as
//               many each time, up to 4096.
//   copies      hold an engine, not SMs: they delay copies of the same engine.
//   graphs      are one operation, whose block is its whole duration; they and cooperative launches go
//               to the whole GPU or wait. A high session's are kernels one behind another, and whenever one
//               ends others' blocks take its place: beside gated work a graph loses the part of the GPU
//               that this has, for as long as both are there, times a share that is learnt from how late
//               its graphs were.
//   starvation  levels.hpp; what is entitled takes the smallest partition, if it can be confined.
//   stalls      levels.hpp; not for more than some operations behind each other on one stream.
//   unforeseen  high work, in another executor or of more sessions than are predicted: kernels with
//               blocks longer than `delay_least` are confined. Who is one too many is predicted once there
//               is a place again, or one of who has long been silent.
//   surprises   An operation that lasted far longer than its profile has seen, less what high work may have
//               kept it from the GPU meanwhile, counts as that long for the next launches of its key,
//               whatever the profile says: lengths that alternate, or lie, are corrected at once. For 4 the
//               first time, since GPU and host have accidents, too; for four times as many each time that it
//               is soon again, and anew once it is seen to be true (surprises.hpp). In flight it is what it
//               mostly is. Taken back, if high work in flight then was not late by it.
//   blame       for a delay goes to the session whose blocks were the longest meanwhile.
#pragma once

#include <memory>

#include "interference.hpp"
#include "levels.hpp"
#include "outlasted.hpp"
#include "queue.hpp"
#include "sequence.hpp"
#include "surprises.hpp"
#include "unfollowed.hpp"

namespace fikit::scheduling {

// Launches of one kind.
constexpr uint16_t on_stream(Engine engine, uint8_t stream) {
    return static_cast<uint16_t>(static_cast<unsigned>(engine) | stream << 8u);
}

class Fikit final : public Levels {
  public:
    explicit Fikit(const Bounds& bounds) : Levels(bounds), sequences_(new Sequence[predictors]) {
        while (partitions_ < bounds.partitions.size() && bounds.partitions[partitions_] != 0) ++partitions_;
        const double shared = bounds.delay_share * static_cast<double>(long_step_);
        if (shared > static_cast<double>(bounds.delay_least))
            long_step_ =
                static_cast<Nanoseconds>(static_cast<double>(bounds.delay_least) / bounds.delay_share);
    }

    inline void opened(unsigned session, int level, double weight, Nanoseconds now) override;
    void changed(unsigned session, int level, double weight, Nanoseconds now) override {
        const bool was = sessions_[session].level == highest_level, is = level == highest_level;
        if (was && !is) discharge(session);
        Levels::changed(session, level, weight, now);
        if (is && !was) enlist(session, now);
    }
    void closed(unsigned session, Nanoseconds now) override {
        if (sessions_[session].level == highest_level) discharge(session);
        Levels::closed(session, now);
    }

    void spared(unsigned session, Nanoseconds launch) override { spared_[session] = launch; }
    void held(unsigned session, Nanoseconds time) override;
    void lagged(unsigned session, uint32_t row, uint32_t more, Nanoseconds time) override {
        High* const high = high_of(session);
        if (high == nullptr) return;
        if (row >= long_row) high->rowed += row - more >= long_row ? more : row;
        high->row = row >= long_row ? 0 : time;
        high->row_end = high->sequence->size();
    }
    void arrived(unsigned session, const Work& work, Nanoseconds now) override;

    void issued(unsigned session, const Work& work, Nanoseconds now) override;
    using Policy::completed;
    void completed(unsigned session, const Work& work, Nanoseconds measured, Nanoseconds now,
                   Nanoseconds unfinished, Nanoseconds others) override;
    void awaited(unsigned session, bool found, Nanoseconds now) override;
    bool curious(unsigned session) override {
        const High* const high = high_of(session);
        return high != nullptr && high->fills && (runs_ == 0 || high->kept_free) && high->sequence->curious();
    }
    Decision decide(Nanoseconds now) override;
    uint32_t foreseen() const override { return foreseen_; }
    Nanoseconds in_flight(Nanoseconds now) const override { return Levels::in_flight(expects_high(now)); }
    SessionStatistics statistics(unsigned session) const override {
        SessionStatistics told = statistics_[session];
        tell_idle(session, told);
        if (const High* const high = places_[session]) {
            told.predicted += high->sequence->predicted;  // and before it was of another priority
            told.met += high->sequence->met;
        }
        return told;
    }

  private:
    static constexpr unsigned predictors =
        8;  // high sessions that are predicted; others count as unforeseeable
    static constexpr unsigned operations = 64, nobody = operations;  // gated ones in flight
    static constexpr uint32_t most_behind = 4;                       // on a stream, after what is let be
    // What does not fit is looked at again after such a part of its length, and so long for each launch that
    // was looked ahead to, which takes 16 ns: launches of high sessions must not wait for decisions.
    static constexpr Nanoseconds looks = 64, foresees = 250, patience = 4;
    static constexpr Nanoseconds together = 2;  // times what one may have in flight, of several
    // Of what high work will find there, such a part of its step at most, but no less than that.
    static constexpr Nanoseconds near_part = 8, least_near = 30'000;
    static constexpr Nanoseconds remembered = 200;  // times `high_memory`, of a high session that is there
    static constexpr Nanoseconds between = 1000;    // from one gated kernel's end to the next one's start
    static constexpr double least_trust = 0.02, first_trust = 0.5, most_trust = 0.95;
    static constexpr double barely = 10;                // a step over its bound by a tenth counts as one
    static constexpr Nanoseconds unmeasured_part = 64;  // of a step: more than that is worth a step kept free
    static constexpr uint32_t least_others_steps = 8, most_kept_free = 16;  // between two such; in a row
    static constexpr uint32_t least_rest = 64, most_rest = 4096;  // steps, after one that was delayed
    static constexpr Nanoseconds any_time = 1'000'000'000, told_before = 2000;
    // Of a session, nothing of which is on the GPU: what it was late by, how long that lasts.
    static constexpr Nanoseconds notable = 10'000, long_pause = 1'000'000;
    static constexpr Nanoseconds noise = 1000;   // by which what is seen of an end may be wrong
    static constexpr Nanoseconds tardy = 3000;   // by which a launch may come later than its gap foretells
    static constexpr uint32_t most_in_time = 3;  // in a row: once may be chance
    static constexpr uint32_t long_row = 6, most_unmet = 64;  // launches; waits
    static constexpr double least_hindered_share = 0.25, most_hindered_share = 4;
    static constexpr unsigned foresight = 1024;    // launches of a high session that are looked ahead
    static constexpr unsigned at_once = 16;        // of them; then it may turn out that there is no hope
    static constexpr unsigned queued_before = 64;  // of another's: what waits there may be before its own

    // A gated operation somewhere: on `sms` SMs, from `start` to `end`.
    struct Plan {
        uint64_t key = 0;
        Engine engine = Engine::none;
        bool everywhere = false;     // no SM has room beside it
        uint16_t sms = 0, held = 0;  // held: of those, so many get a block
        uint16_t taken = 1, of = 1;  // so many blocks of as many as fit are on each of them
        uint32_t waves = 1;
        uint32_t sooner = 0;  // than `from` if no high work has kept what is before it from the GPU
        Nanoseconds block = 0, start = 0, end = 0;
        Nanoseconds from = 0;              // it may start so early, beside what other sessions have in flight
        Nanoseconds length = 0, area = 0;  // area: what the whole GPU would take for it
        Nanoseconds adds = 0;              // so much later all that is in flight will be over
        Interference::Guest guest;
        // SMs, if its blocks were on as few as they can be.
        uint32_t fills() const { return waves > 1 ? held : (uint32_t{held} * taken + of - 1) / of; }
    };
    struct Running {
        uint8_t session = 0, stream = 0;
        bool known = false;
        bool tried = false;    // it is doubtful
        bool feared = false;   // it counts as longer than its profile says
        bool planned = false;  // that it delays nobody too much; not: it is unknown, or its turn by credit
        Nanoseconds charge = 0, longest = 0;
        Plan plan;
    };
    // What was beside a high session's work.
    struct Witnessed {
        bool beside = false;          // gated work was in flight since it last waited
        bool tried = false;           // so was something doubtful, in this step
        bool unplanned = false;       // so was something in this step that nobody trusted in
        uint16_t outlasting_sms = 0;  // where that ran
        uint64_t outlasting = 0;      // of the kernels beside this step that outlast one, the latest; or 0
        Nanoseconds passing = 0;      // the longest block of the others
        unsigned suspect = max_sessions;  // whose work had the longest blocks since it last waited
        Nanoseconds suspect_block = 0;
    };
    // As large as a power of two: what is found by its number is found by a shift.
    struct alignas(512) High : Witnessed {
        Sequence* sequence = nullptr;
        uint8_t session = 0;
        static constexpr uint8_t all_streams = 0xff;
        uint16_t mostly = on_stream(Engine::kernel, 0);  // what it launches: on one stream, or on several
        uint8_t lately = 0;  // of several, the one that all were on for so many launches (`alike`)
        uint32_t alike = 0;
        uint32_t outstanding = 0;        // launches issued and not completed
        Nanoseconds end = 0, alone = 0;  // of what has completed: as it was, as it would have been
        Nanoseconds notice = 3000;       // how late a completion is seen
        // From what its interference is learnt: the launches that one look saw completed, and what was
        // foreseen of them.
        Nanoseconds looked = 0, seen = 0, foreseen = 0, own = 0;
        uint32_t batch = 0;
        Sequence::Position compared = 0;  // compared: the last of them, where streams run side by side
        unsigned beside_run = nobody;  // a place in running_: beside which they ran; it stays there for long
        Nanoseconds others = 0;        // the longest block of what other sessions had in flight then
        // What one of its graphs may be delayed by: any time, or 0: it launches none.
        Nanoseconds graph_wait = 0;
        float absorbs = 0;  // share that is used of the slack; 0: nobody knows when it waits
        // By how much gated work that is over delayed the graph in hand, as foreseen; what comes of the
        // foreseen.
        Sequence::Position hindered = Sequence::nowhere;
        Nanoseconds hindrance = 0;
        double hindered_share = most_hindered_share / 2;
        bool awaits = false, waits = false;  // waits: it has been seen to
        bool polls = false;                  // so, before anyone had seen that the GPU was done
        Nanoseconds patience = 0;            // longer pauses may be waits of which it says nothing
        Nanoseconds guessed = 0;             // what it was late by when the GPU last had nothing of it
        Sequence::Position told = 0;         // so many launches came before it last told of a wait
        Sequence::Position settles = Sequence::nowhere;  // once its launches up to here have completed
        bool found = false;                              // nobody waited for them in the end
        bool pauses = false;                             // gated work went since the last of its own was over
        Witnessed worked;                                // what was beside it until then
        Nanoseconds spent = 0;                           // delay of this step
        Nanoseconds step_at = 0, step_time = 0;
        Nanoseconds pause = 0;  // before its steps, at least
        // Launches of this step in long rows; the last ones, up to `row_end`, were in a short one, of such a
        // time.
        uint32_t rowed = 0;
        Sequence::Position row_end = 0, step_from = 0;
        Nanoseconds row = 0;
        Nanoseconds sparing = 0, spared = 0;  // what this step's program was spared; what a step's is
        Nanoseconds closed_at = 0;            // the end of the step before
        bool several = false;                 // waits make a step
        uint64_t step_issued = 0;  // gated operations until it began, beside a single one; 0: it did not
        // What this step's launches take, and those of them that were not measured at their place.
        Nanoseconds lasting = 0, unmeasured = 0;
        bool fills = false;      // they leave less than half of the step idle
        uint32_t kept_free = 0;  // this step is to be measured, as so many in a row
        bool unmet = false;      // nobody knows how long its streams take beside each other before some wait
        Nanoseconds meets = 0;   // that, before its last wait
        Nanoseconds meets_anywhere = Sequence::unmeasured;  // before waits of which nothing is known
        Nanoseconds least_met = 0;  // beside others, before so many waits of which nothing was known
        uint32_t unmet_waits = 0;
        uint32_t free_steps = 0, others_steps = 0;  // that were; those since
        double trust = first_trust;  // share that is used of the slack and of the bound's second half
        uint32_t rests = 0, rest = least_rest;  // steps until what is doubtful is tried again; next time
        uint32_t calm = 0;                      // steps beside gated work since one was over its bound
        Nanoseconds bound = 0, allowed = 0;     // on the delay of a step; what is used of that
        uint8_t stream() const { return static_cast<uint8_t>(mostly >> 8u); }
        bool side_by_side() const { return stream() == all_streams; }
        Outlasted::FirstTry first_try;  // of a kernel that outlasts a step and was not measured beside one
    };
    struct Own {  // what a gated session has in flight: on each stream one behind another
        Nanoseconds charge = 0;
        Nanoseconds soonest = 0;  // when it may be over, if no high work keeps it from the GPU
        struct Stream {
            Nanoseconds length = 0;
            uint32_t operations = 0;
        };
        std::array<Stream, streams_told_apart> streams{};
    };
    struct Guest {
        bool refused = false;  // its head was counted as refused
        Refusal refusal = Refusal::bound;
        Nanoseconds look_at = 0;  // it is not looked at again before
        Nanoseconds since = 0;    // it would have gone if it had fitted; 0: it has not come to that
    };
    template <bool any>
    struct Course;
    // When what could have ended at `foreseen` did: what nobody saw in time is not late for that.
    static Nanoseconds ended(Nanoseconds foreseen, Nanoseconds unfinished, Nanoseconds latest) {
        return std::min(latest, std::max(foreseen, unfinished));
    }
    struct Foreseen {
        Nanoseconds excess;
        uint32_t launches;  // that were looked at
    };
    struct Moment {                     // of a decision: what all of its candidates have in common
        Nanoseconds now = 0, busy = 0;  // busy: until then the GPU is, with the gated work in flight
        bool beside = false;            // high work, or such as may come any moment
    };

    High* high_of(unsigned session) { return places_[session]; }
    unsigned bit_of(const High& high) const { return 1u << (&high - highs_.data()); }
    // What is in flight, the oldest first.
    Running& running(unsigned at) { return running_[(first_run_ + at) % operations]; }
    const Running& running(unsigned at) const { return running_[(first_run_ + at) % operations]; }
    unsigned oldest_at(Nanoseconds then) const;
    void enlist(unsigned session, Nanoseconds now);
    void discharge(unsigned session);
    High* take_place(unsigned session, Nanoseconds now);
    static void suspect(High& high, const Running& running);
    static void witness(High& high, const Running& running);
    static void pause_passed(High& high);
    bool shows_wait(unsigned session, High& high, const Work& work, Nanoseconds now);
    void look_for_wait(unsigned session, High& high, const Work& work, Nanoseconds now);
    void presume_wait(unsigned session, High& high, const Work& work, Nanoseconds now);
    void look_behind(High& high, Nanoseconds at);
    // Until then each pause of the GPU was taken for a wait, and what its steps were late by was a guess.
    static void seen_to_wait(High& high) {
        if (high.waits) return;
        high.waits = high.unplanned = high.worked.unplanned = true;
        high.trust = first_trust;
        high.patience = long_pause;
    }
    void completed_side_by_side(unsigned session, High& high, const Work& work, Nanoseconds measured,
                                Nanoseconds now, Nanoseconds unfinished);
    static void pass_over(High& high);
    static void notice(High& high, Nanoseconds later);
    void begins_behind(unsigned session, uint8_t stream, Nanoseconds now);
    static void meet(High& high, Sequence::Position position);
    void launched_otherwise(High& high, const Work& work);
    void waited(unsigned session, High& high, bool found, Nanoseconds now);
    void begin_step(High& high, Nanoseconds now);
    void issued_gated(unsigned session, const Work& work, Nanoseconds now);
    void completed_gated(unsigned session, const Work& work, Nanoseconds now, Nanoseconds unfinished,
                         Nanoseconds others);
    void surprised(unsigned session, const Work& work, const Running& running, Nanoseconds lasted);
    void settle(unsigned session, High& high, Sequence::Position position, Nanoseconds now);
    void close_step(unsigned session, High& high, Sequence::Position position, Nanoseconds now);
    void set_bound(High& high) const {
        const auto share = bounds_.delay_share * static_cast<double>(high.step_time + high.spared);
        high.bound = std::max(bounds_.delay_least, static_cast<Nanoseconds>(share) + high.spared);
        // Half of the bound in any case: kernels that take several steps would otherwise never go.
        high.allowed = static_cast<Nanoseconds>((1 + high.trust) / 2 * static_cast<double>(high.bound));
        high.absorbs = high.waits ? static_cast<float>(high.trust) : 0;
    }
    Nanoseconds longest_bound() const {
        Nanoseconds longest = 0;
        for (unsigned left = used_; left != 0; left &= left - 1)
            longest = std::max(longest, highs_[std::countr_zero(left)].bound);
        return longest;
    }
    // When the gated work in flight will be over. What is overdue is not over yet.
    Nanoseconds busy_until(Nanoseconds now) const {
        return runs_ == 0 ? now : std::max(now, running(0).plan.end) + queued_ - running(0).plan.adds;
    }
    void plan(Plan& plan, unsigned session, const Work& work, uint32_t sms, Nanoseconds busy,
              Nanoseconds now) const;
    // What the whole GPU would take for it: kernels of several sessions run side by side, as far as each
    // leaves room. The largest grids leave none: they may have more blocks than are counted.
    Nanoseconds area(const Work& work, Nanoseconds length) const {
        if (work.engine != Engine::kernel || work.waves == 0) return length;
        const Nanoseconds slots = Nanoseconds{bounds_.multiprocessors} * work.per_sm * work.waves;
        return work.blocks < std::min<Nanoseconds>(slots, INT32_MAX) ? length * work.blocks / slots : length;
    }
    Nanoseconds stall(const Plan& plan, const Sequence::Launch& launch, Nanoseconds left) const;
    Nanoseconds waits_for_room(const Sequence::Launch& launch, uint32_t room, Nanoseconds block) const;
    Nanoseconds delay(const Plan& plan, const Sequence::Launch& launch, Nanoseconds left) const;
    Nanoseconds hinders(const Plan& plan, const Sequence::Launch& graph, Nanoseconds left) const;
    void hindered(const Plan& plan);
    void learn_hindrance(High& high, Sequence::Position end, Nanoseconds late) const;
    template <bool any>
    Foreseen excess(const High& high, const Plan& plan, const Queues& others, Nanoseconds now) const;
    void queue(const Plan& plan, Nanoseconds now) const;
    Queues ahead_of(unsigned number) const;
    bool outlasts(const High& high, const Plan& plan) const;
    bool plainly_fits(const High& high, const Plan& plan, Nanoseconds now) const;
    static bool is_hopeless(const High& high, Sequence::Position position, Nanoseconds late);
    static bool is_silent(const High& high, Nanoseconds now, Nanoseconds until);
    bool fits(const Plan& plan, Nanoseconds now) const;
    void compare(unsigned session, High& high, const Sequence::Launch& launch, Nanoseconds at,
                 Nanoseconds latest, Nanoseconds look, Nanoseconds before);
    void wait_foreseen(High& high, const Sequence::Launch& launch);
    void learn(unsigned session, const High& high, const Running& run, Nanoseconds longer);
    bool works_high(Nanoseconds now) const {
        return beside_high(now) || levels_[highest_level].in_flight > 0;
    }
    // It works, or may any moment.
    bool expects_high(Nanoseconds now) const {
        return works_high(now) || (levels_[highest_level].members != 0 && high_at_ != 0 &&
                                   now - high_at_ < remembered * bounds_.high_memory);
    }
    // Is one of them late by what its step may be late by?
    bool delayed() const {
        for (unsigned left = used_; left != 0; left &= left - 1) {
            const High& high = highs_[std::countr_zero(left)];
            if (high.spent + high.end - high.alone > high.allowed) return true;
        }
        return false;
    }
    // It may be short enough to go some time, nothing of high sessions is in flight, and none of them was
    // delayed lately by what was tried.
    bool may_try(const Work& work) const {
        bool may = levels_[highest_level].in_flight == 0 &&
                   work.at_least / std::max(work.waves, 1u) <= longest_bound();
        for (unsigned left = used_; left != 0; left &= left - 1)
            may = may && highs_[std::countr_zero(left)].rests == 0;
        return may;
    }
    static bool unknown(const Work& work) { return computes(work.engine) && !work.known; }
    Nanoseconds near(Nanoseconds now, Nanoseconds until) const;
    bool has_room(unsigned session, const Moment& moment, bool refused, bool& full) const;
    void let_be(Nanoseconds now);
    Decision stalled(unsigned session, const Moment& moment, bool refused, bool& full, Refusal& refusal);
    Decision place(unsigned session, const Moment& moment, bool refused, bool& full, Refusal& refusal);
    Decision search(unsigned session, const Moment& moment, Refusal& refusal);
    Decision or_saved_up(const Decision& chosen, uint64_t below, const Moment& moment);
    Decision wait(unsigned session, Refusal reason);

    std::unique_ptr<Sequence[]> sequences_;
    std::array<High, predictors> highs_{};
    mutable std::array<Queues, predictors> queues_;  // beside the candidate that is being placed
    std::array<High*, max_sessions> places_{};       // in highs_; nullptr: it is not predicted
    unsigned used_ = 0;                              // bits of highs_
    bool graphs_ = false;                            // one of them has launched a graph
    std::array<SessionStatistics, max_sessions> statistics_{};
    std::array<Guest, max_sessions> guests_{};
    std::array<Nanoseconds, max_sessions> spared_{};  // the program, by each launch
    std::array<Own, max_sessions> own_{};
    Surprises surprises_;
    Interference interference_;
    Outlasted outlasted_;
    Unfollowed unfollowed_;
    std::array<Running, operations> running_{};
    unsigned first_run_ = 0, runs_ = 0, unknowns_ = 0;
    unsigned let_be_ = 0;  // in flight, not followed, and not counted (levels.hpp, stalls)
    uint64_t issued_ = 0;  // gated operations
    uint64_t steps_ = 0;   // of all high sessions
    // Whose operation was decided on last: its plan stands behind those in flight.
    unsigned planned_for_ = max_sessions;
    unsigned tried_for_ = max_sessions;  // who goes next because it is doubtful
    mutable uint32_t foreseen_ = 0;      // launches that this decision has looked ahead to in vain
    Nanoseconds queued_ = 0;             // how long the gated work in flight keeps the GPU busy
    Nanoseconds charged_ = 0;            // what of the bound on it that takes
    Nanoseconds last_over_ = 0;          // when gated work last completed
    unsigned unforeseeable_ = 0;         // high sessions that are not predicted
    size_t partitions_ = 0;
    // Steps that last so long have a bound that is not the least, and share none with the next.
    Nanoseconds long_step_ = 10'000'000;
};

}  // namespace fikit::scheduling
