// How long a high session that is silent will go on being so, told by how long its silences lasted: whose
// requests come in bursts, or whose pauses differ for no reason that its launches show, is not to be expected
// any moment in a pause that has outlasted all that are as short.
//
// Lengths of silences fall into classes, four to an octave. Where none of the last `remembered` silences
// ended in a class, this one is trusted not to. But hosts have accidents, and some come back at random: each
// silence that ends where it was trusted to last costs what `one_in` others earn, and who has no credit is
// not trusted, so that no more than one in so many answers is late for that. Beside nothing none was late, so
// that alone takes no trust away: a program that starts has many. Nobody is trusted in for longer than the
// silence has lasted: one that has only begun tells little.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "../clock.hpp"

namespace fikit::scheduling {

class Silence {
  public:
    static constexpr Nanoseconds shortest = Nanoseconds{1} << 20;  // ns; of a shorter pause nothing is told
    static constexpr Nanoseconds never = INT64_MAX / 4;

    // A silence is over, beside others' work or nothing. Another one like it may be a little shorter or
    // longer.
    void ended(Nanoseconds lasted, bool beside) {
        ++silences_;
        if (is_trusted() && is_quiet(place(lasted)))
            credit_ = std::max(credit_ - one_in, beside ? -one_in : 0);
        credit_ = std::min(credit_ + 1, most_credit);
        const unsigned last = place(lasted + lasted / 8);
        for (unsigned at = place(lasted - lasted / 8); at <= last; ++at) ended_[at] = silences_;
    }
    // Will one that has lasted so long last until then?
    bool lasts(Nanoseconds lasted, Nanoseconds until) const {
        if (lasted < shortest || until > 2 * lasted || !is_trusted()) return false;
        const unsigned last = place(until);
        unsigned at = place(lasted);
        while (at <= last && is_quiet(at)) ++at;
        return at > last;
    }
    // When more may be told of one that has lasted so long, though nothing happens.
    Nanoseconds tells_at(Nanoseconds lasted) const {
        if (!is_trusted()) return never;
        unsigned at = lasted < shortest ? 0 : place(lasted) + 1;
        while (at < places && !is_quiet(at)) ++at;
        return at < places ? begin(at) : never;
    }

  private:
    static constexpr uint32_t least = 32, remembered = 64;  // silences
    static constexpr int32_t one_in = 128, most_credit = 2 * one_in;
    static constexpr unsigned octaves = 16, places = 4 * octaves;

    bool is_trusted() const { return silences_ >= least && credit_ >= 0; }
    bool is_quiet(unsigned at) const { return ended_[at] == 0 || silences_ - ended_[at] > remembered; }
    // The last one has all that is longer.
    static unsigned place(Nanoseconds time) {
        if (time < shortest) return 0;
        const auto quarters =
            static_cast<uint64_t>(time) >> (std::bit_width(static_cast<uint64_t>(time)) - 3);
        const auto octave = static_cast<unsigned>(std::bit_width(static_cast<uint64_t>(time / shortest))) - 1;
        return std::min(places - 1, 4 * octave + static_cast<unsigned>(quarters & 3u));
    }
    static Nanoseconds begin(unsigned at) { return Nanoseconds{4 + (at & 3u)} * (shortest / 4) << at / 4; }

    std::array<uint32_t, places> ended_{};  // the number of the last silence that ended there; 0: none did
    uint32_t silences_ = 0;
    int32_t credit_ = 0;
};

}  // namespace fikit::scheduling
