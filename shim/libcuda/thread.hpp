// What CUDA keeps for each thread: its stack of contexts, what stream 0 means, its own default stream.
#pragma once

#include <cstdint>

#include "cuda_interface.hpp"
#include "handshake.hpp"

namespace fikit::shim {

struct Context;
struct Device;

// What is said of a stream, remembered, and changes nothing.
struct StreamHints {
    CUaccessPolicyWindow window = {};
    int32_t policy = -1;  // a CUsynchronizationPolicy, or as an H200 tells of one that was never set
    CUlaunchMemSyncDomainMap domain_map = {0, 1};
    CUlaunchMemSyncDomain domain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
};

struct Thread {
    static constexpr int most = 1024;
    Context* stack[most];
    int depth;
    bool zero_is_own;                    // within a per-thread-default-stream variant
    uint32_t default_stream[most_gpus];  // by device; 0: not made yet
    CUstreamCaptureMode capture_mode;
    StreamHints hints;  // of its default streams

    // Whether that is a stream of the thread's own, not the context's; of a default one.
    bool means_own(CUstream stream) const {
        return stream == CU_STREAM_PER_THREAD || (stream == nullptr && zero_is_own);
    }

    Context* current() const;  // nullptr: none, or one that is no more (process.hpp)
    Context* home() const;     // whose what it makes is: the current one's; nullptr likewise
};

extern constinit thread_local Thread thread;

// For whoever uses it more than once: where it is takes a call to tell, which the compiler would make at each
// use.
inline Thread& calling_thread() {
    Thread* it = &thread;
    asm("" : "+r"(it));
    return *it;
}

// The calling thread runs a function in a stream, which must not call CUDA.
bool within_host_function();

// What a call that needs a current context gets without one, also where it has been destroyed: a function in
// a stream must not call CUDA.
[[gnu::cold]] CUresult no_context();

// The calling thread's own default stream on the device; made when it is first named.
[[gnu::noinline]] CUresult own_default_stream(Device& device, uint32_t& stream);

class PerThreadDefault {
  public:
    PerThreadDefault() : before_(thread.zero_is_own) { thread.zero_is_own = true; }
    ~PerThreadDefault() { thread.zero_is_own = before_; }
    PerThreadDefault(const PerThreadDefault&) = delete;
    PerThreadDefault& operator=(const PerThreadDefault&) = delete;

  private:
    bool before_;
};

}  // namespace fikit::shim
