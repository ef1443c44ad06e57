// How the dispatch thread divides its time among sessions, and when it marks what they have issued
// (DESIGN.md, Marks): the loop goes by this, and so does the replay's model of it
// (bench/native/replay_gate.cpp).
#pragma once

#include "scheduling/policy.hpp"

namespace fikit {

constexpr uint32_t most_in_flight = 256;   // steps of one session
constexpr uint32_t records_per_turn = 32;  // of one session before the others get a look
constexpr uint32_t records_beside = 8;     // while others have work in flight

// Marks of a session that goes on launching. Beside others a high one has one after each turn's records, too.
constexpr uint32_t mark_every = 128;           // steps, at most
constexpr Nanoseconds mark_delay = 2'000;      // without new work of an unhurried one
constexpr Nanoseconds followed_work = 20'000;  // on a stream of a high one, beside others

// And of a gated one after such a part of what may be in flight: the GPU is not to run dry, and beside high
// work it is to be known what is in flight.
constexpr Nanoseconds marked_work(Nanoseconds in_flight, const scheduling::Bounds& bounds) {
    return in_flight / (in_flight > bounds.in_flight ? 2 : 4);
}

}  // namespace fikit
