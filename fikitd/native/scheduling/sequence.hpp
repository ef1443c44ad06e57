// What a high-priority session launches, and when: prediction from its own recent past.
//
// Iterations repeat, so the best guess of what comes next is what came next the last time. The launches of a
// session are kept in order; when the last few keys have been seen before, the sequence is followed from
// there for as long as the keys agree, and found again by its last keys when they do not; best where they
// came as far behind a wait as now, which tells launches of the same kernel apart. Shapes that the data says
// may never come again; but a step has as many launches then as the one before it, in the same order and at
// the same pace: once two had as many, what is not found is followed there (`resembles_`).
//
// Each position carries the gap before the launch and how much that varied (both smoothed over the
// iterations), what it occupies, and the idle time of the GPU between it and its predecessor as it would be
// with the GPU to itself. Gaps and idle times grow by an eighth an iteration at most: a program that once
// stood still will not again. Launches of one key may last differently long from place to place, so what was
// measured at one counts there (`own`).
//
// That gives: when the next launches come and what SMs they need; and the slack: the idle time until the
// session waits for its work (`awaited`), within which a delay of a single kernel is not one of the program.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "policy.hpp"
#include "silence.hpp"

namespace fikit::scheduling {

class Sequence {
  public:
    static constexpr uint32_t capacity = 1u << 13;  // launches remembered; longer iterations repeat unnoticed
    // Of a launch, by how many came before it: that may be more than 32 bits hold.
    using Position = uint64_t;
    static constexpr Position nowhere = UINT64_MAX;
    static constexpr unsigned any_stream = streams_told_apart;

    // As large as a power of two: what is found by its number is found by a shift.
    struct alignas(128) Launch {
        uint64_t key = 0;
        Nanoseconds gap = 0, deviation = 0;   // from the launch before it
        Nanoseconds offset = 0;               // the sum of the gaps since the session began
        Nanoseconds duration = 0, block = 0;  // undisturbed
        Nanoseconds at = 0;                   // when it was issued
        Nanoseconds alone = 0;                // when it would have ended with the GPU to itself
        Nanoseconds pause = 0;                // idle time before it
        Nanoseconds idle = 0;                 // that, summed since the session began
        Nanoseconds own = 0;                  // what it takes here beside nothing; 0: not measured
        uint32_t blocks = 0, step = 0;        // step: the wait it belongs to
        uint32_t hash = 0;                    // of its key and the three before
        uint32_t gated = 0;                   // gated operations that were over before it
        uint16_t per_sm = 1, ordinal = 0;     // ordinal: launches since the session waited, up to `ordinals`
        Engine engine = Engine::kernel;
        uint8_t seen = 0;    // looks() and in_time(), in one byte: they are copied at each launch
        uint8_t stream = 0;  // the session's
        // Where streams run side by side: it was over before one that was launched earlier; where the session
        // waits behind it, by how much later that ends, beside nothing, than what is on each stream would.
        bool over = false;
        Nanoseconds meets = unmeasured;

        // It came that long after the launch before it.
        void follows(const Launch& old, Nanoseconds told) {
            const Nanoseconds later = told - old.gap;
            gap = old.gap + std::min(later >> 2, (old.gap >> 3) + 1000);
            deviation = old.deviation + ((std::abs(later) - old.deviation) >> 2);
        }
        uint32_t looks() const { return seen & 31u; }  // launches here that were to be measured
        // So often in a row it came in time where it was taken to wait.
        uint32_t in_time() const { return seen >> 5u; }
        bool is_graph() const { return engine == Engine::graph; }
        // By how much it may come earlier. A pause is as long as others make it.
        Nanoseconds doubt() const { return ordinal == 0 ? std::min(gap, 2 * deviation) : 0; }
    };

    static constexpr Nanoseconds unmeasured = -1;

    // The work of one of several streams: as it is, and as it would be with the GPU to itself.
    struct Course {
        Nanoseconds alone = 0, end = 0;
    };

    // From the issue of a launch to its start on an idle GPU.
    static constexpr Nanoseconds latency = 4200;

    // Begins anew, with a launch before the first that all gaps and sums start from.
    // `before`: so many launches count as made.
    void forget(Nanoseconds now, Position before = 0) {
        slot(before - 1) = {};
        slot(before - 1).at = slot(before - 1).alone = now;
        head_ = looked_ = step_begin_ = fresh_ = before;
        step_ = looks_ = 0;
        cursor_ = nowhere;
        held_ = 0;
        ordinal_ = 0;
        predicted = met = 0;
        silence = {};
        period_ = length_ = 0;
        steady_ = resembles_ = false;
    }

    // `gated`: so many gated operations are over.
    void launched(const Work& work, Nanoseconds now, uint32_t gated) {
        const uint64_t key = work.key != 0 ? work.key : 1 + static_cast<uint64_t>(work.engine);
        const Position head = head_;
        const Launch& before = at(head - 1);
        Nanoseconds gap = now - before.at;
        Launch& entry = slot(head);
        entry.key = key;
        follow(gap);
        Nanoseconds duration = work.shortest > 0 ? work.shortest : work.expected;
        Nanoseconds pause = INT64_MAX;  // at most
        uint32_t hash = 0;
        if (known()) {
            const Launch& old = at(cursor_);
            entry.own = old.own;
            entry.seen = old.seen;
            hash = old.hash;  // the keys up to here are those up to the cursor
            if (resembles_) [[unlikely]]
                hash = differs(entry, old);
            duration = entry.own > 0 ? entry.own : duration;
            entry.follows(old, gap);
            gap = entry.gap;
            pause = old.pause + (old.pause >> 3) + 1000;
            period_ = static_cast<uint32_t>(head - cursor_);
        } else {
            entry.own = 0;
            entry.seen = 0;
            entry.gap = gap;
            entry.deviation = gap / 2;
            hash = recent_hash();
        }
        entry.hash = hash;
        entry.gated = gated;
        duration = std::max<Nanoseconds>(duration, 1);
        entry.duration = duration;
        entry.block = work.waves > 1 ? duration / work.waves : duration;
        entry.at = now;
        const Nanoseconds ready = now + latency - held_, busy = before.alone;
        entry.alone = std::max(ready, busy) + duration;
        pause = std::min(std::max<Nanoseconds>(0, ready - busy), pause);
        entry.pause = pause;
        entry.blocks = work.blocks;
        entry.per_sm = work.per_sm;
        entry.engine = work.engine;
        entry.step = step_;
        entry.idle = before.idle + pause;
        entry.offset = before.offset + gap;
        entry.ordinal = ordinal_;
        index_[hash % index_.size()] = static_cast<uint32_t>(head);
        index_[ordinal_hash(hash) % index_.size()] = static_cast<uint32_t>(head);
        if (ordinal_ < ordinals) ++ordinal_;
        head_ = head + 1;
    }

    // The session had too much in flight to issue more, for so long; 0: its program has nothing left from
    // then.
    void held(Nanoseconds time) { held_ = time == 0 ? 0 : held_ + time; }
    // By so much its launches come later than they would by themselves, at most.
    Nanoseconds held() const { return held_; }

    // Should the next launch be measured? One in `apart` that was not measured at its place yet, and ever
    // fewer: what never repeats for long is not known by that.
    bool curious() {
        if (!known() || head_ - looked_ < apart + looks_ / 512) return false;
        Launch& expected = slot(next());
        if (expected.own != 0 || expected.looks() == most_looks) return false;
        looked_ = head_;
        ++looks_;
        ++expected.seen;
        return true;
    }
    // What is before that launch is over, and so were so many gated operations.
    void begins(Position position, uint32_t gated) { slot(position).gated = gated; }
    // What a launch took, when so many gated operations had been issued. Beside one, that it took longer is
    // no news, nor that it took a little less.
    void measured(Position position, Nanoseconds time, uint32_t gated) {
        Launch& launch = slot(position);
        const Nanoseconds own = launch.own;
        if (launch.gated == gated)
            launch.own = own == 0 ? time : own + std::clamp(time - own, -own / 4, own / 4) / 4;
        else if (time < own - own / 8)
            launch.own = own - (own - time) / 4;
    }
    // The latest launch is over, and so is what came before it: what follows begins then.
    void over(Nanoseconds at) {
        Launch& launch = slot(head_ - 1);
        launch.alone = std::min(launch.alone, at);
    }

    // It was taken to wait before what comes next, which did come in time for what is before it, or did not:
    // how often in a row?
    uint32_t came_in_time(bool so) {
        Launch& place = slot(next());
        const uint32_t times = so ? std::min(place.in_time() + 1, 7u) : 0;
        place.seen = static_cast<uint8_t>(times << 5 | place.looks());
        return times;
    }
    // It waits here, which nobody knew: as far behind a wait as now nothing came before.
    void surprised() { fresh_ = head_; }
    // It has waited for what is before that place, which was late, so what comes or came there is later by
    // that. What its gaps are like is what they would be alone. If it came as early as ever though others
    // were late by far more than it varies by, it did not wait.
    void delayed(Position position, Nanoseconds late) {
        if (position == head_) {
            slot(head_ - 1).at += late;
            return;
        }
        Launch& entry = slot(position);
        const Launch* const old = before(position);
        if (old == nullptr) return;
        const Nanoseconds told = entry.at - at(position - 1).at, gap = entry.gap;
        if (late > 4 * old->deviation && told - old->gap <= late / 4) {
            entry.ordinal = 1;
            return;
        }
        entry.follows(*old, told - late);
        for (Position each = position; each != head_; ++each) slot(each).offset += entry.gap - gap;
    }
    // The launch there as it came the last time; nullptr: it didn't.
    const Launch* before(Position position) const {
        const Launch& old = at(position - period_);
        return period_ != 0 && period_ < capacity / 2 && old.key == at(position).key ? &old : nullptr;
    }
    // It has waited before that launch, as is known only now.
    void split(Position position) {
        ends_[step_ % ends_.size()] = {step_, at(position - 1).idle};
        ++step_;
        end_step(position);
        fresh_ = position;
        ordinal_ = 0;
        for (Position each = position; each != head_; ++each) {
            Launch& entry = slot(each);
            entry.step = step_;
            entry.ordinal = ordinal_;
            index_[ordinal_hash(entry.hash) % index_.size()] = static_cast<uint32_t>(each);
            if (ordinal_ < ordinals) ++ordinal_;
        }
    }

    // The session waits for all of it: by how much sooner it comes to that than a program would whose
    // launches took it so long each. Not by what the GPU, left to itself, was behind with at the last of
    // them, nor by the time that the last waited for those before it to be issued (`row`); and the last
    // itself takes as long to reach the GPU. For so many of them (`rowed`) the program had to wait rather
    // than gain.
    Nanoseconds awaited(Nanoseconds launch, uint32_t rowed, Nanoseconds row) {
        const Nanoseconds behind = row + last().alone - last().duration - latency - (last().at - held_);
        const Nanoseconds spared =
            (static_cast<Nanoseconds>(head_ - step_begin_) - rowed - 1) * launch - behind;
        ends_[step_ % ends_.size()] = {step_, last().idle};
        ++step_;
        end_step(head_);
        ordinal_ = 0;
        held_ = 0;
        return std::max<Nanoseconds>(0, spared);
    }

    // It tells of its waits, so many launches apart; but for those that nobody knew of.
    void told(uint32_t launches) {
        if (head_ - fresh_ >= launches) length_ = launches;
    }

    // The latest launch runs side by side with those on other streams: each has its own one behind another.
    // `first`: until then all was on that stream.
    void on_another_stream(uint8_t stream, int first) {
        Launch& entry = slot(head_ - 1);
        if (first >= 0) {
            alone_ = {};
            busy_ = alone_[static_cast<unsigned>(first)] = at(head_ - 2).alone;
            courses_ = {};
            for (Position back = std::min<Position>(head_, capacity); back > 0; --back) {
                Launch& launch = slot(head_ - back);
                launch.stream = static_cast<uint8_t>(first);
                launch.over = false;
                launch.meets = unmeasured;
            }
        }
        entry.stream = stream;
        const Nanoseconds ready = entry.at + latency - held_;
        Nanoseconds& alone = alone_[entry.stream];
        alone = entry.alone = std::max(ready, alone) + entry.duration;
        const Nanoseconds pause = std::min(entry.pause, std::max<Nanoseconds>(0, ready - busy_));
        entry.idle -= entry.pause - pause;
        entry.pause = pause;
        busy_ = std::max(busy_, alone);
        entry.over = false;
        entry.meets = known() ? at(cursor_).meets : unmeasured;
    }
    // What has completed, by stream.
    std::array<Course, streams_told_apart>& courses() { return courses_; }
    // The oldest launch on the stream that is not over, of those from there on; nowhere: there is none.
    Position oldest(Position from, uint8_t stream) const {
        for (; from != head_; ++from)
            if (at(from).stream == stream && !at(from).over) return from;
        return nowhere;
    }
    Launch& completed(Position position) {
        slot(position).over = true;
        return slot(position);
    }
    // It was over before it was taken to be: so is what is behind it on its stream.
    void ended(Position position, Nanoseconds end) {
        const uint8_t stream = at(position).stream;
        for (Position behind = position + 1; behind != head_; ++behind) {
            Launch& each = slot(behind);
            if (each.stream != stream || each.over) continue;
            end = std::max(each.at + latency, end) + each.duration;
            if (end >= each.alone) return;  // it did not wait for that
            each.alone = end;
        }
        alone_[stream] = end;
        busy_ = *std::max_element(alone_.begin(), alone_.end());
    }
    // So many are in flight, some behind what was over only then: on that stream, or all are on one.
    void begins_behind(uint32_t outstanding, unsigned stream, Nanoseconds end) {
        for (Position each = head_ - outstanding; each != head_; ++each) {
            Launch& launch = slot(each);
            if (stream != any_stream && (launch.stream != stream || launch.over)) continue;
            end = std::max(launch.at + latency, end) + launch.duration;
            if (end <= launch.alone) return;
            launch.alone = end;
        }
        if (stream == any_stream)
            slot(head_ - 1).alone = std::max(slot(head_ - 1).alone, end);
        else
            busy_ = std::max(busy_, alone_[stream] = std::max(alone_[stream], end));
    }
    Nanoseconds& meets(Position position) { return slot(position).meets; }

    // Nothing was launched since.
    bool waited() const { return head_ == step_begin_; }
    // It waited before what is expected next when that came the last time; if that is known, and it has not
    // yet.
    bool may_wait() const { return at(next()).ordinal == 0 && !waited(); }
    // It has waited before such a launch, behind the same ones, not long ago: where that is not known of the
    // last time it came here, it may have been missed.
    bool may_have_waited(uint64_t key) {
        if (waited()) return false;
        slot(head_).key = key;
        const Position found = find(ordinal_hash(recent_hash(), 0));
        return found != nowhere && head_ - found <= lately * usual() && at(found).ordinal == 0;
    }
    // It has made as many launches since a wait as where it is taken to be.
    bool is_aligned() const { return at(cursor_).ordinal == last().ordinal; }
    // Did it wait between the first and the last of those launches?
    bool waits_within(Position from, Position until) const { return at(from).step != at(until - 1).step; }
    // So many launches it makes before it waits, as far as is known.
    uint32_t usual() const { return std::max(period_, length_); }

    Position size() const { return head_; }
    const Launch& at(Position position) const { return entries_[position % capacity]; }
    const Launch& last() const { return at(head_ - 1); }
    bool known() const { return cursor_ != nowhere; }
    // The same launches came there; else another step is expected to be like that, but for their shapes.
    bool is_sure() const { return known() && !resembles_; }
    // The position whose launch is expected next; only when known().
    Position next() const { return cursor_ + 1; }
    // When, at the soonest.
    Nanoseconds expected() const { return last().at + at(next()).gap - at(next()).doubt(); }
    uint32_t period() const { return period_; }  // launches from one iteration to the next; 0: none seen

    // How many launches are expected within such a time after the last one; only when known().
    uint32_t within(Nanoseconds time) {
        const Nanoseconds until = at(cursor_).offset + time + at(next()).doubt();
        horizon_ = std::clamp(horizon_, next(), head_);
        while (horizon_ < head_ && at(horizon_).offset < until) ++horizon_;
        while (horizon_ > next() && at(horizon_ - 1).offset >= until) --horizon_;
        return static_cast<uint32_t>(horizon_ - next());
    }

    // What the next launch may be like where that is unknown: as long, as far behind its predecessor and on
    // as many SMs as the latest ones were: on average, and at most.
    const Launch& typical() {
        Launch& launch = typical_;
        launch = {};
        const auto count = static_cast<uint32_t>(std::min<Position>(head_, looked_at));
        for (uint32_t back = 1; back <= count; ++back) {
            const Launch& each = at(head_ - back);
            launch.gap += std::min<Nanoseconds>(each.gap, 1'000'000) / count;
            launch.duration += each.duration / count;
            if (each.engine == Engine::kernel)
                launch.blocks = std::max(launch.blocks, each.blocks / each.per_sm);
        }
        launch.block = launch.duration;
        return launch;
    }

    // Idle time from the given position until the session waits, as it was the last time.
    Nanoseconds slack(Position position) const {
        const Launch& from = at(position);
        if (from.step == step_) return std::max<Nanoseconds>(0, last().idle - from.idle);
        const End& end = ends_[from.step % ends_.size()];
        if (end.step != from.step) return 0;
        return std::max<Nanoseconds>(0, end.idle - from.idle);
    }

    uint64_t predicted = 0, met = 0;
    Silence silence;

  private:
    struct End {
        uint32_t step = UINT32_MAX;
        Nanoseconds idle = 0;
    };

    void end_step(Position position) {
        const auto launches = static_cast<uint32_t>(position - step_begin_);
        steady_ = launches == length_;
        length_ = launches;
        step_begin_ = position;
    }
    Launch& slot(Position position) { return entries_[position % capacity]; }
    // Of the keys of the last four launches, the one in hand being the last.
    uint32_t recent_hash() const {
        uint64_t hash = 0;
        for (uint32_t back = compared; back-- > 0;)
            hash = (hash ^ at(head_ - back).key) * 0x9e3779b97f4a7c15u;
        return static_cast<uint32_t>(hash ^ (hash >> 32));
    }

    // The launch in hand may be another than came there, and so may those before it have been.
    [[gnu::noinline]] uint32_t differs(Launch& entry, const Launch& old) const {
        if (entry.key != old.key) entry.own = entry.seen = 0;
        return recent_hash();
    }

    // Moves the cursor to where the launch in hand came the last time. It keeps its distance to the head as
    // long as the keys agree, so what find() gave is not overwritten.
    void follow(Nanoseconds gap) {
        if (is_sure()) {
            ++predicted;
            const Launch& expected = at(cursor_ + 1);
            if (expected.key == at(head_).key) {
                ++cursor_;
                const Nanoseconds tolerated = std::max<Nanoseconds>(5000, 2 * expected.deviation);
                met += std::abs(gap - expected.gap) <= tolerated;
                if (expected.ordinal == ordinal_) return;
                const Position better = find(ordinal_hash(expected.hash));
                if (better != nowhere && head_ - better <= head_ - fresh_ && at(better).ordinal == ordinal_)
                    cursor_ = better;
                return;
            }
        }
        if (head_ < compared) return;
        const uint32_t hash = recent_hash();
        cursor_ = find(ordinal_hash(hash));
        resembles_ = !known() && steady_ && head_ - step_begin_ < length_ && length_ < capacity / 2;
        if (resembles_)
            cursor_ = head_ - length_;
        else if (!known())
            cursor_ = find(hash);
    }

    // Where the last keys were last seen, going by such a hash of theirs.
    Position find(uint32_t hash) const {
        const uint32_t back_to = static_cast<uint32_t>(head_) - index_[hash % index_.size()];
        if (back_to == 0 || back_to >= capacity - compared || back_to + compared > head_) return nowhere;
        const Position found = head_ - back_to;
        for (uint32_t back = 0; back < compared; ++back)
            if (at(found - back).key != at(head_ - back).key) return nowhere;
        return found;
    }
    uint32_t ordinal_hash(uint32_t hash) const { return ordinal_hash(hash, ordinal_); }
    static uint32_t ordinal_hash(uint32_t hash, uint32_t ordinal) {
        return hash ^ (ordinal + 1u) * 0x9e3779b1u;
    }

    static constexpr uint16_t ordinals = 1023;
    static constexpr uint32_t compared = 4, looked_at = 64, apart = 8;  // launches
    static constexpr uint32_t lately = 4;  // times as many launches as it makes before it waits
    static constexpr uint8_t most_looks = 16;

    std::array<Launch, capacity> entries_{};
    Launch typical_;
    // By the hash of the last keys: where they were last seen, the lower half of it.
    std::array<uint32_t, capacity * 4> index_{};
    std::array<End, 1024> ends_{};
    Position head_ = 0, cursor_ = nowhere, horizon_ = 0, step_begin_ = 0;
    uint32_t step_ = 0, period_ = 0;
    uint32_t length_ = 0;  // launches of its latest step that is over
    Position looked_ = 0;
    uint32_t looks_ = 0;      // the latest launch that was to be measured; how many were
    bool steady_ = false;     // so had the one before it
    bool resembles_ = false;  // the cursor is where the step before was after as many launches
    uint16_t ordinal_ = 0;
    Position fresh_ = 0;  // places before it are not found by that
    Nanoseconds held_ = 0;
    // Of several streams:
    Nanoseconds busy_ = 0;  // until then there is work of it, if the GPU has nothing else
    std::array<Nanoseconds, streams_told_apart> alone_{};  // the same of each
    std::array<Course, streams_told_apart> courses_{};     // up to what has completed
};

}  // namespace fikit::scheduling
