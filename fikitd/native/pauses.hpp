// When a high session's next work is to be looked for without sleep. Who sleeps is woken late, by 30 us and
// more on a virtual machine. A program that pauses in every step pauses about as long each time, so its
// executor does as the program does when it waits (waiting.hpp): it sleeps for most of the time and spins
// around its end.
#pragma once

#include <cstdint>
#include <waiting.hpp>

namespace fikit {

class Pauses {
  public:
    static constexpr int64_t never = INT64_MAX;

    // Nothing of the session has come for a while: the last of so many steps came at `since` (host time).
    void begin(uint64_t steps, int64_t since) {
        steps_ = steps;
        since_ = since;
    }
    // Something has come; of this session, if it has more steps now.
    void end(uint64_t steps, int64_t now) {
        if (steps != steps_) usual_.note(now - since_);
    }
    // From when on to look for more: `now`, a time to come, or never.
    int64_t look_at(int64_t now) const {
        const Patience patience = patience_for(usual_.ns());
        const bool sleeps = patience.spin_again_ns != 0;
        const int64_t from = sleeps ? since_ + patience.spin_ns + patience.sleep_ns : since_;
        const int64_t until = from + (sleeps ? patience.spin_again_ns : patience.spin_ns);
        return now < from ? from : now < until ? now : never;
    }

  private:
    uint64_t steps_ = 0;
    int64_t since_ = 0;
    Usual usual_;
};

}  // namespace fikit
