// memcpy of large pieces with several threads: one alone (12.7 GB/s where it was measured) is slower than
// the driver's own pageable copies (19.1 GB/s). The helpers start with the first large copy and sleep
// between copies; one copy at a time has them, a second one meanwhile is done by its caller alone.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace fikit {

class CopyThreads {
  public:
    static constexpr uint64_t worthwhile_bytes = 8 << 20;  // of a whole transfer

    CopyThreads() = default;
    CopyThreads(const CopyThreads&) = delete;
    CopyThreads& operator=(const CopyThreads&) = delete;
    ~CopyThreads();

    static uint32_t suitable_threads();  // for this machine, the caller's own included
    void start(uint32_t threads);        // at the first use
    void copy(void* to, const void* from, uint64_t bytes);
    void abandon() { helpers_ = 0; }  // in a forked child, which has no such threads

  private:
    static constexpr uint32_t most_helpers = 3;
    static void* run(void* self);
    void help();
    bool take_chunk();

    pthread_mutex_t start_mutex_ = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads_[most_helpers] = {};
    uint32_t helpers_ = 0;
    bool started_ = false;
    uint32_t busy_ = 0;
    uint32_t stop_ = 0;

    // The job. `claim_` holds its number (upper half) and the chunks not yet taken (lower half) in one word,
    // so a late helper can never take a chunk of a job whose fields it has not seen.
    uint64_t claim_ = 0;
    uint32_t jobs_ = 0;  // futex word
    uint32_t unfinished_ = 0;
    uint8_t* to_ = nullptr;
    const uint8_t* from_ = nullptr;
    uint64_t bytes_ = 0;
};

}  // namespace fikit
