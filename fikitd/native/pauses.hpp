// When a high session's next work is to be looked for without sleep. Who sleeps is woken late, by 30 us and
// more on a virtual machine. A program pauses about as long as some time before, so its executor does as the
// program does when it waits (waiting.hpp): it sleeps for most of the time and spins around the ends that its
// latest pauses had. Whose pauses ended elsewhere twice of late is asked at random: where they are short it
// is looked for all the time. Of one whose pauses are long and never alike nothing is expected.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <numeric>
#include <waiting.hpp>

namespace fikit {

class Pauses {
  public:
    static constexpr int64_t never = INT64_MAX;

    // Nothing of the session has come for a while: the last of so many steps came at `since` (host time).
    void begin(uint64_t steps, int64_t since) {
        steps_ = steps;
        since_ = since;
        if (sorted_) return;
        sorted_ = true;
        windows_ = 0;
        const unsigned known = std::min(count_, kept);
        std::array<int64_t, kept> by_length = latest_;
        std::sort(by_length.begin(), by_length.begin() + known);
        for (unsigned number = 0; number < known; ++number) {
            const Window own = window(by_length[number]);
            const bool alike = (number > 0 && by_length[number - 1] >= own.from) ||
                               (number + 1 < known && by_length[number + 1] < own.until);
            if (alike || known == 1) window_[windows_++] = own;
        }
        const auto end = by_length.begin() + known;
        const bool often = std::accumulate(by_length.begin(), end, int64_t{0}) <= known * often_ns;
        always_ns_ = often && std::popcount(missed_) >= 2 ? 2 * by_length[known - 1] : 0;
    }
    // Something has come; of this session, if it has more steps now.
    void end(uint64_t steps, int64_t now) {
        if (steps == steps_) return;
        const bool counts = count_ >= kept / 2;
        missed_ = missed_ << 1u | static_cast<uint64_t>(counts && expected(now) != now);
        latest_[count_ % kept] = now - since_;
        count_ = count_ + 1 < 2 * kept ? count_ + 1 : kept;
        sorted_ = false;
    }
    // From when on to look for more: `now`, a time to come, or never.
    int64_t look_at(int64_t now) const { return now - since_ < always_ns_ ? now : expected(now); }

  private:
    static constexpr unsigned kept = 16;
    static constexpr int64_t often_ns = 10'000'000;  // pauses of such a length in the mean are short

    // The same, by the windows alone.
    int64_t expected(int64_t now) const {
        const int64_t lasted = now - since_;
        for (unsigned number = 0; number < windows_; ++number) {
            if (lasted < window_[number].from) return since_ + window_[number].from;
            if (lasted < window_[number].until) return now;
        }
        return never;
    }
    // When a pause may end that is as long as such a one.
    struct Window {
        int64_t from = 0, until = 0;
    };
    static Window window(int64_t usual) {
        const Patience patience = patience_for(usual);
        const bool sleeps = patience.spin_again_ns != 0;
        const int64_t from = sleeps ? patience.spin_ns + patience.sleep_ns : 0;
        return {from, from + (sleeps ? patience.spin_again_ns : patience.spin_ns)};
    }

    uint64_t steps_ = 0;
    int64_t since_ = 0;
    std::array<int64_t, kept> latest_{};
    unsigned count_ = 0;                 // up to `kept`, then round and round
    std::array<Window, kept> window_{};  // the earliest first
    unsigned windows_ = 0;
    uint64_t missed_ = 0;  // which of the latest ended where no window was
    int64_t always_ns_ = 0;
    bool sorted_ = true;
};

}  // namespace fikit
