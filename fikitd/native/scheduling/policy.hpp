// What a scheduling policy is: told of events, asked for decisions. Pure: no I/O, no clock (time is an
// argument), no allocation after construction. The dispatch core, the native tests and a replay of traces
// run the same code. A policy is one file with one class and one line in policies.hpp.
//
// The policy sees sessions as indices below max_sessions and of each gated session only the operation that
// waits at the head of its ring: a session is gated as a whole, never one of its streams.
#pragma once

#include <array>
#include <cstdint>

#include "../clock.hpp"

namespace fikit::scheduling {

constexpr unsigned max_sessions = 64;
constexpr int highest_level = 0, lowest_level = 9;
constexpr unsigned max_partitions = 6;
constexpr unsigned streams_told_apart = 16;  // of one session: others count as one of these

// What an operation occupies: one of the engines that copy, or the SMs. A graph does so with kernels one
// behind another.
enum class Engine : uint8_t { none, to_device, to_host, on_device, kernel, graph };

constexpr bool computes(Engine engine) { return engine >= Engine::kernel; }

// In how many waves so many blocks run where there is room for `slots` at a time. A grid may have more than
// fit the number, which is then the highest there is: nothing may be added to it.
constexpr uint32_t waves(uint32_t blocks, uint32_t slots) {
    return blocks / slots + (blocks % slots > 0 ? 1 : 0);
}

// What one operation is expected to do. The first block is the operation's own, the rest is the profile's.
struct Work {
    uint64_t key = 0;     // the same for launches of one kernel in one shape; 0: not a launch
    uint32_t blocks = 0;  // of a launch's grid
    uint16_t per_sm = 1;  // blocks of it that one empty SM holds
    uint32_t waves = 0;   // of blocks, on the whole GPU; 0: not worked out
    Engine engine = Engine::kernel;
    uint8_t stream = 0;     // the session's, below streams_told_apart: only what shares one is in order
    bool whole = false;     // must not be confined to a partition (cooperative launches)
    bool gated = false;     // issued through the gate (set when issued; the level may change later)
    uint8_t partition = 0;  // where a gated one was issued: 0 the whole GPU, n: partition n - 1

    bool known = false;     // from enough measurements
    uint32_t at_least = 0;  // what it takes at least, where too few of them were beside nothing to tell; or 0
    Nanoseconds expected = 0;  // duration alone on the GPU: windowed median; a guess where !known
    Nanoseconds longest = 0;   // a high percentile of the window; 0: as `expected`
    Nanoseconds shortest = 0;  // what it takes beside nothing; 0: as `expected`
    Nanoseconds block = 0;     // duration of one block, from `longest`: what it may delay others by
};

enum class Verdict : uint8_t { wait, whole, partition };

struct Decision {
    Verdict verdict = Verdict::wait;
    uint8_t session = 0;
    uint8_t partition = 0;  // index into Bounds::partitions
    // For wait: ask again at this time even if nothing happens; 0: only when something does.
    Nanoseconds again_at = 0;
};

// Bounds an operator sets, and what there is. Times in nanoseconds of device time.
struct Bounds {
    Nanoseconds in_flight = 200'000;  // a session's gated work issued and not completed, beside high work
    Nanoseconds partition_block = 20'000;  // strict: longer blocks go to the partition beside high work
    Nanoseconds high_memory = 50'000'000;  // a high session counts as active so long after its last work
    double starvation_share = 0.002;       // of the time, to each level that would get nothing
    double delay_share = 0.02;             // of a high session's step time: the delay it may be caused
    Nanoseconds delay_least = 10'000;      // but at least this much a step
    double spared_share = 1;  // and of the time that an unmodified program's launches would have taken it
    uint16_t multiprocessors = 132;
    // Numbers of SMs of the partitions there are, the largest first; 0 ends the list. Each is contained in
    // those before it, so what the largest leaves free no gated work occupies.
    std::array<uint16_t, max_partitions> partitions{};
};

// Why gated work had to wait when the policy was asked.
enum class Refusal : uint8_t {
    level,      // work of a lower number was waiting or under way
    unknown,    // too few measurements, beside high work
    too_long,   // one block of it could delay high work by more than the whole bound
    bound,      // it would have brought the delay of a high session's step over the bound
    in_flight,  // enough is issued and not completed
};
constexpr unsigned refusals = 5;
constexpr std::array<const char*, refusals> refusal_names = {"level", "unknown", "too_long", "bound",
                                                             "in_flight"};

// Delays that high work was caused: those that a session suffered, or those that it is blamed for.
struct Delays {
    uint64_t count = 0;
    Nanoseconds sum = 0, worst = 0;
};

// What a policy did for or because of one session since it was opened. Counts of operations.
struct SessionStatistics {
    // A gated session's.
    uint64_t filled = 0, confined = 0;  // issued beside high work: on the whole GPU, on a partition
    Nanoseconds filled_time = 0, confined_time = 0;
    std::array<uint64_t, refusals> refused{};  // heads that had to wait, by the first reason they met
    uint64_t surprises = 0;                    // lasted far longer than their profile has ever seen
    // A high session's.
    uint64_t steps = 0;
    Nanoseconds step_time = 0;                       // smoothed
    Nanoseconds bound = 0;                           // on the delay of one step, at present
    uint64_t over_bound = 0;                         // steps that were delayed by more
    uint64_t predicted = 0, met = 0;                 // launches predicted; those that came as predicted
    Nanoseconds idle_time = 0;                       // nothing of it was on the GPU
    Nanoseconds idle_filled = 0, idle_confined = 0;  // of that: gated work was; some of it on a partition
    double trust = 0;  // share of its slack and its bound that is used, at present
    // Interference: what kernels of a high session take that run beside gated work, and what they took beyond
    // that and the waits that were foreseen. Suffered while it is a high session, caused while it is not.
    Nanoseconds beside_time = 0, slowed_time = 0;
    Delays delays;
    Nanoseconds beside_caused = 0, slowed_caused = 0;
    Delays caused;
    int blames = -1;  // of a high session: who caused the worst delay, until another is opened; -1: nobody
};

class Policy {
  public:
    virtual ~Policy() = default;

    virtual void opened(unsigned session, int level, double weight, Nanoseconds now) = 0;
    // Each of its launches spares its program so much, and that may be spent.
    virtual void spared(unsigned /*session*/, Nanoseconds /*launch*/) {}
    virtual void changed(unsigned session, int level, double weight, Nanoseconds now) = 0;
    virtual void closed(unsigned session, Nanoseconds now) = 0;

    // A gated session's next operation waits to be issued. Until it is, the session has no other.
    virtual void arrived(unsigned session, const Work& work, Nanoseconds now) = 0;
    // The head of the session is withdrawn (paused, ended).
    virtual void withdrawn(unsigned session, Nanoseconds now) = 0;
    // An operation of the session was issued (for level 0, without being asked).
    virtual void issued(unsigned session, const Work& work, Nanoseconds now) = 0;
    // It completed, having taken `measured` (0: unknown); at `unfinished` it had not yet (0: nobody knows).
    // For as long as `others`, work of high sessions that is over, too, may have kept gated work from the
    // GPU.
    virtual void completed(unsigned session, const Work& work, Nanoseconds measured, Nanoseconds now,
                           Nanoseconds unfinished, Nanoseconds others) = 0;
    void completed(unsigned session, const Work& work, Nanoseconds measured, Nanoseconds now) {
        completed(session, work, measured, now, now, 0);
    }
    // The session's program waits for all that it has had issued (a synchronisation): from here on a delay
    // of its work is one of the program, unless it `found` the work over. Told while it waits, or afterwards.
    virtual void awaited(unsigned /*session*/, bool /*found*/, Nanoseconds) {}
    // So much of the session was in flight that what its program had ready was not issued, for so long; 0: by
    // now all of that is.
    virtual void held(unsigned /*session*/, Nanoseconds /*time*/) {}
    // Its program had operations ready faster than they could be issued: `row` of them up to now, one behind
    // another, for so long; `more` of them since it was last told.
    virtual void lagged(unsigned /*session*/, uint32_t /*row*/, uint32_t /*more*/, Nanoseconds /*time*/) {}
    // High-priority work of another executor on this GPU is (not) under way.
    virtual void elsewhere(bool high_busy, Nanoseconds now) = 0;

    // How much gated work may be in flight now (one operation may reach beyond): more than
    // `Bounds::in_flight` while no high session has worked lately, so that who is alone hardly notices the
    // gate.
    virtual Nanoseconds in_flight(Nanoseconds now) const = 0;

    // Whether an ungated session's next launch, which is about to be issued, should be measured.
    virtual bool curious(unsigned /*session*/) { return false; }
    // Which waiting operation may be issued now, and where.
    virtual Decision decide(Nanoseconds now) = 0;
    // So many launches of high sessions that has looked ahead to where it refused something, which takes
    // time.
    virtual uint32_t foreseen() const { return 0; }

    virtual SessionStatistics statistics(unsigned) const { return {}; }
};

}  // namespace fikit::scheduling
