// The null driver's controls. It is a shared object with the entry points of libcuda that the dispatch core
// looks up, and no device behind them: what is left is the core's own cost and the order of its calls.
//
// What it keeps of the real thing
//  - Work of one stream happens in order. A write into host memory becomes visible, an event completes, once
//    what precedes them on their stream has happened; a wait for a value or an event holds its stream up.
//    Nothing takes time: unless something is held or waited for, it happens within the call.
//  - Every function can be made to fail, from its n-th call on or once; sticky errors stick.
//  - Handles and addresses are distinct and never null; what is mapped, registered, loaded or created is
//    counted, so a test can see that all of it was given back.
// Thread-safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "driver.hpp"

namespace fikit::null_driver {

enum class Function : uint16_t {
#define FIKIT_NULL_FUNCTION(name) name##_,
    FIKIT_DRIVER_FUNCTIONS(FIKIT_NULL_FUNCTION)
#undef FIKIT_NULL_FUNCTION
        count
};

// One recorded call on a stream. `subject`: the function launched, the event, or the address written.
struct Call {
    Function function;
    CUstream stream;
    uint64_t subject;
    uint64_t value;
};

// What exists now.
struct Live {
    int64_t mappings, allocations, registrations, modules, events, streams, graphs, arrays, textures;
    uint64_t mapped_bytes;
};

// Kernels of any loaded module: this many parameter bytes (one parameter), this many threads at most.
inline constexpr uint32_t parameter_bytes = 16;
inline constexpr int max_threads = 512;
inline constexpr int multiprocessors = 132;

#pragma GCC visibility push(default)
void reset();  // forgets errors, recordings and counts; streams must be idle
void fail(Function function, CUresult error, uint64_t after_calls = 0, uint64_t times = UINT64_MAX);
void record(bool on);
std::vector<Call> take_calls();
uint64_t count(Function function);
Live live();
void hold(CUstream stream);  // kernels and copies of the stream do not complete from here on
void release(CUstream stream);
void set_elapsed(float milliseconds);               // what cuEventElapsedTime says
void set_on_launch(std::function<void()> action);   // called within every launch
void set_on_compile(std::function<void()> action);  // called within every cuLibraryLoadData
const char* name_of(Function function);
#pragma GCC visibility pop

}  // namespace fikit::null_driver
