// What steps of a high session were late by that a gated kernel outlasted, alone in flight and on so many
// SMs.
//
// Such a kernel runs beside every launch of the step, so what each of them is foreseen to lose adds up, with
// whatever error it has, and what is wrong there is never found out as long as the kernel waits. What the
// whole step lost needs no foresight. Fixed size; who meets another's place takes it over.
#pragma once

#include <array>
#include <cstdint>

#include "../clock.hpp"

namespace fikit::scheduling {

class Outlasted {
  public:
    void measured(unsigned session, uint64_t kernel, uint16_t sms, Nanoseconds late) {
        Entry& entry = entries_[place(session, kernel, sms)];
        const Nanoseconds before = is(entry, session, kernel, sms) ? entry.late : late;
        entry = {kernel, before + (late - before) / 4, sms, static_cast<uint8_t>(session)};
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
