// What steps of a high session were late by that a gated kernel outlasted, alone in flight and on so many
// SMs.
//
// Such a kernel runs beside every launch of the step, so what each of them is foreseen to lose adds up, with
// whatever error it has, and what is wrong there is never found out as long as the kernel waits. What the
// whole step lost needs no foresight. Fixed size; who meets another's place takes it over.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "../clock.hpp"

namespace fikit::scheduling {

class Outlasted {
  public:
    // A kernel that is found to be over the bound hardly runs there any more, so little more is learnt of it.
    // So what was late by chance must not count for long: one step decides nothing, and none counts for more
    // than twice the bound. Was it measured there before?
    bool measured(unsigned session, uint64_t kernel, uint16_t sms, Nanoseconds late, Nanoseconds bound) {
        Entry& entry = entries_[place(session, kernel, sms)];
        const Nanoseconds seen = std::min(late, 2 * bound);
        if (is(entry, session, kernel, sms)) {
            entry.late += (seen - entry.late) / 4;
            return true;
        }
        entry = {kernel, std::min(seen, bound), 0, sms, static_cast<uint8_t>(session)};
        return false;
    }
    // Whether a kernel may go where it was not measured, though far more than the bound is foreseen: no such
    // one went for so long, and no step was over its bound. Longer after each that was.
    class FirstTry {
      public:
        bool is_due(uint64_t steps, Nanoseconds now) const {
            return steps - step_ >= rest_ && now - at_ >= Nanoseconds{rest_} * 1'000'000;
        }
        void rests(uint64_t steps, Nanoseconds now) {
            step_ = steps;
            at_ = now;
        }
        void found(bool late) { rest_ = late ? std::min(2 * rest_, most_rest) : least_rest; }

      private:
        static constexpr uint32_t least_rest = 128, most_rest = 1u << 13;  // steps, and milliseconds
        uint64_t step_ = 0;
        Nanoseconds at_ = 0;
        uint32_t rest_ = least_rest;
    };
    // The kernel goes there, in a step of that number. Was it measured there before?
    bool issued(unsigned session, uint64_t kernel, uint16_t sms, uint64_t step) {
        Entry& entry = entries_[place(session, kernel, sms)];
        if (!is(entry, session, kernel, sms)) return false;
        entry.step = step;
        return true;
    }
    static constexpr Nanoseconds unmeasured = -1;
    // What such a step is late by. What is over the bound, by a hair often, is tried again once as many steps
    // have passed as it is over by.
    Nanoseconds late(unsigned session, uint64_t kernel, uint16_t sms, Nanoseconds bound,
                     uint64_t step) const {
        const Entry& entry = entries_[place(session, kernel, sms)];
        if (!is(entry, session, kernel, sms)) return unmeasured;
        if (entry.late <= bound) return entry.late;
        const auto passed = static_cast<Nanoseconds>(step - entry.step);
        return passed * bound < rests * (entry.late - bound) ? entry.late : bound;
    }
    void forget(unsigned session) {
        for (Entry& entry : entries_)
            if (entry.session == session) entry = {};
    }

  private:
    struct Entry {
        uint64_t kernel = 0;  // 0: none
        Nanoseconds late = 0;
        uint64_t step = 0;  // in which it was issued there
        uint16_t sms = 0;
        uint8_t session = 0;
    };
    static constexpr unsigned bits = 9;
    static constexpr Nanoseconds rests = 16384;  // steps, of what is late by twice the bound

    static bool is(const Entry& entry, unsigned session, uint64_t kernel, uint16_t sms) {
        return kernel != 0 && entry.kernel == kernel && entry.sms == sms && entry.session == session;
    }
    static size_t place(unsigned session, uint64_t kernel, uint16_t sms) {
        return ((kernel ^ sms ^ uint64_t{session} << 16) * 0x9e3779b97f4a7c15u) >> (64 - bits);
    }

    std::array<Entry, size_t{1} << bits> entries_{};
};

}  // namespace fikit::scheduling
