// The GPUs that the program may use, each with a session of its own from its first use on, and the contexts.
#pragma once

#include <pthread.h>
#include <string.h>

#include "../producer.hpp"
#include "context_limits.hpp"
#include "cuda_interface.hpp"
#include "fatbin_entries.hpp"
#include "handshake.hpp"
#include "sm_resources.hpp"
#include "thread.hpp"

namespace fikit::shim {

struct Device;

using Multiprocessors = SmPart<256>;

struct Context {
    CUcontext name;    // what the program sees
    CUcontext handle;  // the same, while it is there: a primary one from when it is retained or made current
    Device* device;
    unsigned flags;
    unsigned wished;  // of a primary one, when it is retained anew
    unsigned references;
    bool primary;
    Context* home;  // whose its memory, modules and events are: itself, or of a green one the primary one
    Multiprocessors part;  // of a green one
    CUfunc_cache cache;
    uint32_t stream;  // the legacy default one
    ContextLimits limits;
    StreamHints hints;  // of that stream

    bool green() const { return home != this; }

    void forget_settings() {
        flags = wished = 0;
        cache = {};
        limits.forget();
        hints = {};
    }
};

// A stream's name in this process: its device above, its number in that device's session below.
inline constexpr unsigned stream_bits = 12;
static_assert(FIKIT_MAX_STREAMS == 1u << stream_bits);
inline constexpr uint32_t stream_number(uint32_t stream) { return stream & (FIKIT_MAX_STREAMS - 1); }

struct Device {
    int ordinal;
    Gpu gpu;             // as the daemon describes it
    Producer* producer;  // nullptr until it is first used
    bool described;
    fikit_reply_device_attributes attributes;
    uint64_t memory_limit;
    int failure;  // what went wrong behind the program's back: who next waits, or asks, is told
    // Of the primary context's beginning and end; the runtime's part of an end calls back.
    pthread_mutex_t primary_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

    uint32_t stream(uint32_t number) const { return static_cast<uint32_t>(ordinal) << stream_bits | number; }
    Context& primary() const;
    uint64_t memory_bytes() const;  // what the tenant may have of it
    fatbin::Wanted wanted_images() const {
        return fatbin::wanted_here(attributes.attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR]);
    }
    // Of those that streams have.
    int nearest_priority(int wanted) const {
        const int greatest = attributes.greatest_priority;
        return wanted > 0 ? 0 : wanted < greatest ? greatest : wanted;
    }
};

class Process {
  public:
    // cuInit. May be called again, also after it failed.
    CUresult initialise();
    // Neither before cuInit nor in a forked child, nor once handlers at exit run that were there before
    // cuInit.
    bool usable() const { return load_relaxed(*load_acquire(alive_)) != 0; }
    bool forked() const { return count_ != 0 && !usable(); }
    // What every call is answered with then.
    CUresult unusable() const {
        return load_relaxed(ended_) ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED;
    }
    bool has_genuine_driver() const { return genuine_; }
    // CUDA_LAUNCH_BLOCKING: a launch returns when its kernel has ended, and tells how.
    bool launches_block() const { return launches_block_; }

    unsigned device_count() const { return load_acquire(count_); }
    // nullptr when there is no such device.
    Device* find_device(int ordinal) {
        return ordinal >= 0 && static_cast<unsigned>(ordinal) < device_count() ? &devices_[ordinal] : nullptr;
    }
    Device& device(unsigned ordinal) { return devices_[ordinal]; }
    // Of a device that has a session.
    Producer& producer(unsigned ordinal) const { return *producers_[ordinal]; }
    // Its session; opened now if it is not there yet.
    CUresult open(Device& device);
    // Its attributes: of its session, or of another one's where the GPUs are of one kind.
    CUresult describe(Device& device);
    // The device that was opened first; nullptr: none was.
    Device* first_opened() const { return load_acquire(first_opened_); }

    Context& context(unsigned index) { return contexts_[index]; }
    unsigned number_of(const Context& context) const { return static_cast<unsigned>(&context - contexts_); }
    // nullptr when no such context lives.
    Context* find(CUcontext handle);
    // Also one that is no more, which may become current all the same.
    Context* find_any(CUcontext name);
    // With a part of the device a green one.
    Context* create(Device& device, unsigned flags, const Multiprocessors* part = nullptr);
    void destroy(Context& context);
    // A green context lives on it, which keeps its primary one, even when nobody retains that.
    bool is_divided(const Device& device);
    // The program has made contexts beside the primary ones.
    bool made_contexts() const { return load_relaxed(made_contexts_); }

    // Keeps mappings of this process away from addresses of device memory, so that an address is one or the
    // other. False when something is there already.
    bool keep_away(uint64_t address, uint64_t bytes);
    void give_way(uint64_t address, uint64_t bytes);

    static constexpr unsigned most_contexts = 64;  // beside the primary ones

  private:
    CUresult look();
    CUresult attach(Device& device);

    unsigned count_ = 0;  // set last
    bool made_contexts_ = false;
    Producer* producers_[most_gpus] = {};  // by device; close together, for launches
    Device devices_[most_gpus] = {};
    Device* first_opened_ = nullptr;
    static constexpr uint32_t nothing = 0;
    const uint32_t* alive_ = &nothing;  // once initialised, a page that is wiped in a forked child
    bool ended_ = false;                // by exit()
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    bool genuine_ = false;
    bool launches_block_ = false;
    pthread_mutex_t contexts_mutex_ = PTHREAD_MUTEX_INITIALIZER;
    Context contexts_[most_gpus + most_contexts] = {};  // by device the primary ones, then the program's own
    unsigned latest_context_ = 0;  // of these; a place is used again last: handles may still be around
};

extern Process process;

inline Context* Thread::current() const {
    if (depth == 0) return nullptr;
    Context* const top = stack[depth - 1];
    return load_relaxed(top->handle) != nullptr ? top : nullptr;
}

inline Context* Thread::home() const {
    const Context* const context = current();
    return context != nullptr ? context->home : nullptr;
}

inline Context& Device::primary() const { return process.context(static_cast<unsigned>(ordinal)); }
inline Device& device_of(uint32_t stream) { return process.device(stream >> stream_bits); }
inline Producer& producer_of(uint32_t stream) { return process.producer(stream >> stream_bits); }
inline CUresult result_of(Status status) { return static_cast<CUresult>(status); }
// The error of a session that is over: of some of what was in it nothing is told any more.
inline CUresult usable(Producer& producer) { return result_of(producer.channel().usable()); }

}  // namespace fikit::shim
