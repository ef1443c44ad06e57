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
    // A kernel that is found to be over the bound runs no more but for its share against starvation. So what
    // was late by chance must not count for long: one step decides nothing, and none counts for more than
    // twice the bound.
    void measured(unsigned session, uint64_t kernel, uint16_t sms, Nanoseconds late, Nanoseconds bound) {
        Entry& entry = entries_[place(session, kernel, sms)];
        const Nanoseconds seen = std::min(late, 2 * bound);
        if (is(entry, session, kernel, sms))
            entry.late += (seen - entry.late) / 4;
        else
            entry = {kernel, std::min(seen, bound), sms, static_cast<uint8_t>(session)};
    }
    // Nothing: there was no such step.
    const Nanoseconds* find(unsigned session, uint64_t kernel, uint16_t sms) const {
        const Entry& entry = entries_[place(session, kernel, sms)];
        return is(entry, session, kernel, sms) ? &entry.late : nullptr;
    }
    void forget(unsigned session) {
        for (Entry& entry : entries_)
            if (entry.session == session) entry = {};
    }

  private:
    struct Entry {
        uint64_t kernel = 0;  // 0: none
        Nanoseconds late = 0;
        uint16_t sms = 0;
        uint8_t session = 0;
    };
    static constexpr unsigned bits = 9;

    static bool is(const Entry& entry, unsigned session, uint64_t kernel, uint16_t sms) {
        return kernel != 0 && entry.kernel == kernel && entry.sms == sms && entry.session == session;
    }
    static size_t place(unsigned session, uint64_t kernel, uint16_t sms) {
        return ((kernel ^ sms ^ uint64_t{session} << 16) * 0x9e3779b97f4a7c15u) >> (64 - bits);
    }

    std::array<Entry, size_t{1} << bits> entries_{};
};

}  // namespace fikit::scheduling
