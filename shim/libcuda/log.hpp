// What went wrong, for whoever asks: FIKIT_SHIM_LOG names a file (or "-" for standard error). It gets one
// line for each first call of something that is not served and for each failed call, the latter with the
// calls before it; with FIKIT_SHIM_TRACE=1 every call, written before it is made, so that a crash shows its
// cause. Without FIKIT_SHIM_LOG nothing is kept and nothing written.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <initializer_list>

#include "cuda_interface.hpp"

namespace fikit::shim {

extern const char* const names[];  // of every exported function, by number

class CallLog {
  public:
    bool on() const { return on_; }
    bool every() const { return every_; }  // calls, not only failures
    void entered(unsigned number, std::initializer_list<uint64_t> arguments);
    void left(unsigned number, CUresult result);
    // One line, as printf.
    [[gnu::format(printf, 2, 3)]] void say(const char* format, ...);

    void open();  // reads the environment

  private:
    static constexpr unsigned kept = 64;
    static constexpr unsigned most_arguments = 12;
    static constexpr unsigned shown = 24;           // calls before a failure
    static constexpr uint64_t most_failures = 200;  // that are explained
    struct Call {
        uint64_t arguments[most_arguments];
        uint32_t number;
        uint32_t count;
        int32_t thread;
        int32_t result;  // pending while it runs
    };
    static constexpr int32_t pending = -1;

    void write_call(const Call& call);
    void write(const char* text, int length);

    bool on_ = false;
    bool every_ = false;
    const char* path_ = nullptr;
    int descriptor_ = -1;
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    Call calls_[kept] = {};
    uint64_t next_ = 0;
    uint64_t told_ = 0;
    uint64_t failures_ = 0;
};

extern CallLog call_log;

}  // namespace fikit::shim
