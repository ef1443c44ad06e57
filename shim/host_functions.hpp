// Functions of the program that run in the order of a stream (cuLaunchHostFunc).
//
// The executor marks a HOST_FUNCTION step when the function may run, and lets the stream go on once
// host_done has reached that step. One service thread, started with the first function, runs them one after
// the other, as the driver does. When the session ends, functions that have not run never will; who gave
// another one to be told of that is, with status::context_is_destroyed where the program ended the session.
#pragma once

#include <pthread.h>

#include <cstdint>

#include "channel.hpp"

namespace fikit {

using HostFunction = void (*)(void*);
using HostFailure = void (*)(void*, Status);

class HostFunctions {
  public:
    explicit HostFunctions(Channel& channel) : channel_(channel) {}
    HostFunctions(const HostFunctions&) = delete;
    HostFunctions& operator=(const HostFunctions&) = delete;
    ~HostFunctions();

    struct Entry {
        Entry* next;
        HostFunction function;
        HostFailure failure;  // in place of it once it will never run; nullptr: nothing
        void* argument;
        uint64_t step;
        uint32_t stream;
    };

    // The thread runs, and there is memory for the entry: what follows cannot fail.
    Status prepare(HostFunction function, HostFailure failure, void* argument, Entry*& entry);
    // Called for each stream in the order of its steps.
    void add(Entry* entry, uint32_t stream, uint64_t step);
    static void discard(Entry* entry);
    // Returns once no function runs any more, and none will. Not from within one.
    void stop();
    // The calling thread is within a function: to wait for a stream there would be to wait for itself.
    bool within() const { return load_relaxed(running_) && pthread_equal(thread_, pthread_self()) != 0; }
    void abandon() { abandoned_ = true; }  // in a forked child: no such thread, and locks held by it for ever

  private:
    static void* run(void* self);
    void serve();
    Entry* take_ready();
    void tell(Status failure);
    bool any_ready() const;

    Channel& channel_;
    pthread_mutex_t stop_mutex_ = PTHREAD_MUTEX_INITIALIZER;
    mutable pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread_ = {};
    bool running_ = false;
    bool abandoned_ = false;
    uint32_t stop_ = 0;
    uint32_t added_ = 0;  // futex word
    Entry* first_ = nullptr;
    Entry** last_ = &first_;
};

}  // namespace fikit
