// What a scheduling policy is: told of events, asked for decisions. Pure: no I/O, no clock (time is an
// argument), no allocation after construction. The dispatch core, the native tests and a replay of traces
// run the same code. A policy is one file with one class and one line in policies.cpp.
//
// The policy sees sessions as indices below max_sessions and of each session only the operation that waits
// at the head of its ring: a session is gated as a whole, never one of its streams.
#pragma once

#include <cstdint>

#include "../clock.hpp"

namespace fikit::scheduling {

constexpr unsigned max_sessions = 64;
constexpr int highest_level = 0, lowest_level = 9;

// What one operation is expected to do.
struct Work {
    Nanoseconds expected = 0;  // duration alone on the GPU; a guess where !known
    Nanoseconds block = 0;     // duration of one block: what it may delay others by
    bool known = false;        // from enough measurements
    bool whole = false;        // must not be confined to a partition (cooperative launches, copies)
    bool gated = false;        // issued through the gate (set when issued; the level may change later)
};

struct Decision {
    enum class Verdict : uint8_t { wait, whole, partition };
    Verdict verdict = Verdict::wait;
    uint8_t session = 0;
    // For wait: ask again at this time even if nothing happens; 0: only when something does.
    Nanoseconds again_at = 0;
};

// Bounds an operator sets. Times in nanoseconds of device time.
struct Bounds {
    Nanoseconds in_flight = 200'000;       // gated work issued and not completed
    Nanoseconds partition_block = 20'000;  // longer blocks go to the partition beside high work
    Nanoseconds high_memory = 50'000'000;  // a high session counts as active so long after its last work
    double starvation_share = 0.02;        // of the time, to each level that would get nothing
    bool partition = false;                // a partition is there
};

class Policy {
  public:
    virtual ~Policy() = default;

    virtual void opened(unsigned session, int level, double weight, Nanoseconds now) = 0;
    virtual void changed(unsigned session, int level, double weight, Nanoseconds now) = 0;
    virtual void closed(unsigned session, Nanoseconds now) = 0;

    // A gated session's next operation waits to be issued. Until it is, the session has no other.
    virtual void arrived(unsigned session, const Work& work, Nanoseconds now) = 0;
    // The head of the session is withdrawn (paused, ended).
    virtual void withdrawn(unsigned session, Nanoseconds now) = 0;
    // An operation of the session was issued (for level 0, without being asked).
    virtual void issued(unsigned session, const Work& work, Nanoseconds now) = 0;
    // It completed, having taken `measured` (0: unknown).
    virtual void completed(unsigned session, const Work& work, Nanoseconds measured, Nanoseconds now) = 0;
    // High-priority work of another executor on this GPU is (not) under way.
    virtual void elsewhere(bool high_busy, Nanoseconds now) = 0;

    // Which waiting operation may be issued now, and where.
    virtual Decision decide(Nanoseconds now) = 0;
};

}  // namespace fikit::scheduling
