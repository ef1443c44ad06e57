// The process's one session, and what is answered without asking anybody: the device, the contexts.
#pragma once

#include <pthread.h>

#include "../producer.hpp"
#include "cuda_interface.hpp"
#include "thread.hpp"

namespace fikit::shim {

struct Context {
    CUcontext handle;  // what the program sees
    unsigned flags;
    unsigned references;
    bool primary;
    CUfunc_cache cache;
};

class Process {
  public:
    // cuInit. May be called again, also after it failed.
    CUresult initialise();

    // nullptr before initialise().
    Producer* producer() const { return load_acquire(producer_); }
    const fikit_reply_device_attributes& device() const { return device_; }
    uint64_t memory_bytes() const;  // what the tenant may have of the device's
    uint64_t memory_limit() const { return memory_limit_; }
    int driver_version() const { return driver_version_; }
    bool has_genuine_driver() const { return genuine_; }

    Context& primary() { return contexts_[0]; }
    // nullptr when no such context lives.
    Context* find(CUcontext handle);
    Context* create(unsigned flags);
    void destroy(Context& context);

    // Keeps mappings of this process away from addresses of device memory, so that an address is one or the
    // other. False when something is there already.
    bool keep_away(uint64_t address, uint64_t bytes);
    void give_way(uint64_t address, uint64_t bytes);

  private:
    static constexpr int most_contexts = 64;

    CUresult open();

    Producer* producer_ = nullptr;
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    fikit_reply_device_attributes device_ = {};
    uint64_t memory_limit_ = 0;
    int driver_version_ = 0;
    bool genuine_ = false;
    pthread_mutex_t contexts_mutex_ = PTHREAD_MUTEX_INITIALIZER;
    Context contexts_[most_contexts] = {};
    unsigned latest_context_ = 0;  // a place is used again last: handles may still be around
};

extern Process process;

inline Context* Thread::current() const {
    if (depth == 0) return nullptr;
    Context* const top = stack[depth - 1];
    return load_relaxed(top->handle) != nullptr ? top : nullptr;
}

inline Producer& producer() { return *process.producer(); }
inline CUresult result_of(Status status) { return static_cast<CUresult>(status); }

// No call to the executor once the process is ending: exit handlers must not wait.
bool process_is_exiting();

}  // namespace fikit::shim
