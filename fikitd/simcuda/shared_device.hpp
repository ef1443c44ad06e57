// One simulated device for several processes: whose turn it is, and how much of its memory is taken.
//
// The processes share a file (FIKIT_SIM_MACHINE) with a slot for each. A slot's owner holds a lock on the
// slot's byte of the file; the system lets go of it when the owner ends, however it ends, so a slot without
// its lock is free and what it held is given back by whoever looks next. The state itself is under a robust
// mutex and small enough to be right after any instruction: who dies inside leaves at worst a turn that the
// next look corrects.
//
// Nobody serves the others: each process looks when its own work changes, when a slice ends that it waits
// for, and when another one bumps `changes`.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <string>

#include "turns.hpp"

namespace fikit::sim {

class SharedDevice {
  public:
    // The device of this name, made if there is none; null with a reason in `problem`. `name` is a word (a
    // device of this user's) or a path; `bytes` is the device's memory, and must be what the others say.
    static std::unique_ptr<SharedDevice> open(const std::string& name, int ordinal, std::size_t bytes,
                                              double scale, std::string& problem);
    ~SharedDevice();
    SharedDevice(const SharedDevice&) = delete;
    SharedDevice& operator=(const SharedDevice&) = delete;

    struct Turn {
        bool ours = false;
        Nanoseconds since = 0;  // ours: from when
        Nanoseconds until = 0;  // when our last one ended
        std::optional<Nanoseconds> look_again;
    };
    // Times of all processes are on one clock: monotonic time, divided by the scale.
    Turn look(Nanoseconds now, bool busy);
    // Sleeps until some turn changes after the last look, or for ever.
    void wait_for_change() const;

    bool take_memory(std::size_t bytes);
    void give_memory(std::size_t bytes);
    std::size_t free_memory();

  private:
    static constexpr int slots = 64;
    struct Slot {
        std::uint32_t used = 0;
        std::uint32_t busy = 0;
        Nanoseconds until = 0;  // when its last turn ended
        std::uint64_t memory = 0;
    };
    struct State {
        std::uint64_t magic;
        std::uint64_t memory;
        double scale;
        pthread_mutex_t mutex;
        std::atomic<std::uint32_t> changes;
        Turns turns;
        Slot slot[slots];
    };
    class Held;

    SharedDevice(int descriptor, State* state) : descriptor_(descriptor), state_(state) {}
    bool alive(int index) const;
    void sweep();
    std::size_t taken() const;

    int descriptor_;
    State* state_;
    int own_ = -1;
    Nanoseconds swept_at_ = 0;
    std::atomic<std::uint32_t> seen_{0};  // of `changes`
};

}  // namespace fikit::sim
