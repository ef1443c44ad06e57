// What every exported function does besides its own work: check that it may, and tell the log. The functions
// themselves are generated (generate.py); on the launch path this costs a dozen instructions.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "arrays.hpp"
#include "cuda_interface.hpp"
#include "genuine.hpp"
#include "log.hpp"
#include "objects.hpp"
#include "process.hpp"
#include "thread.hpp"

namespace fikit::shim {

// As in entry_points.txt.
enum class Needs { anytime, initialised, launch, object, context };

// A row of the table behind cuGetProcAddress.
struct EntryPoint {
    const char* name;  // without version
    int version;       // of CUDA that introduced it
    void* plain;       // stream 0 is the legacy default stream
    void* per_thread;  // stream 0 is the thread's own
};
extern const EntryPoint entry_points[];
extern const unsigned entry_point_count;

struct ErrorText {
    int code;
    const char *name, *text;
};
extern const ErrorText error_texts[];
extern const unsigned error_text_count;

// Counts a call of something that is not served (abi.h, fikit_note).
CUresult not_served(unsigned number);
CUresult not_served(const char* name);

// Whether the session of what a call is given is not over; who is given no such object is not told here.
template <class Argument>
inline CUresult usable_through(const Argument&) {
    return CUDA_SUCCESS;
}
inline CUresult usable_through(CUstream handle) {
    if (!is_default(handle)) {
        const Stream* const stream = stream_of(handle);
        return stream != nullptr ? usable(producer_of(stream->name)) : CUDA_SUCCESS;
    }
    const Context* const context = thread.current();
    return context != nullptr ? usable(*context->device->producer) : no_context();
}
inline CUresult usable_through(CUarray handle) {
    const Array* const array = array_of(handle);
    return array != nullptr ? usable(*array->memory->device->producer) : CUDA_SUCCESS;
}
inline CUresult usable_through(CUfunction handle) {
    const Function* const function = function_of(handle);
    return function != nullptr ? usable(process.producer(function->device)) : CUDA_SUCCESS;
}

template <Needs needs>
[[gnu::always_inline]] inline CUresult ready() {
    if constexpr (needs == Needs::anytime) return CUDA_SUCCESS;
    if (!process.usable()) [[unlikely]]
        return process.unusable();
    if constexpr (needs != Needs::context) return CUDA_SUCCESS;
    const Context* const context = thread.current();
    if (context == nullptr) return no_context();
    return result_of(context->device->producer->channel().usable());
}

template <Needs needs, auto function, class... Arguments>
[[gnu::always_inline]] inline CUresult call(Arguments... arguments) {
    CUresult result = ready<needs>();
    if constexpr (needs == Needs::object)
        ((result = result == CUDA_SUCCESS ? usable_through(arguments) : result), ...);
    if (result != CUDA_SUCCESS) [[unlikely]]
        return result;
    return function(arguments...);
}

template <class Argument>
inline uint64_t bits(const Argument& argument) {
    uint64_t value = 0;
    if constexpr (sizeof argument <= sizeof value) std::memcpy(&value, &argument, sizeof argument);
    return value;
}

template <Needs needs, auto function, class... Arguments>
[[gnu::noinline]] CUresult enter_logged(unsigned number, Arguments... arguments) {
    call_log.entered(number, {bits(arguments)...});
    const CUresult result = call<needs, function>(arguments...);
    call_log.left(number, result);
    return result;
}

template <Needs needs, auto function, class... Arguments>
inline CUresult enter(unsigned number, Arguments... arguments) {
    if (call_log.on()) [[unlikely]]
        return enter_logged<needs, function>(number, arguments...);
    return call<needs, function>(arguments...);
}

}  // namespace fikit::shim
