#include "thread.hpp"

#include <utility>

#include "capture.hpp"
#include "process.hpp"

namespace fikit::shim {

constinit thread_local Thread thread = {};

namespace {

pthread_key_t at_exit;
bool ends_are_seen = false;  // not where the program has every key that there is: its threads' streams stay
pthread_once_t once = PTHREAD_ONCE_INIT;

void end_thread(void*) {
    if (process.forked()) return;
    for (unsigned i = 0; i < process.device_count(); ++i) {
        // What still runs in this thread, as other such functions do, gets another one.
        const uint32_t number = std::exchange(thread.default_stream[i], 0);
        if (number == 0) continue;
        captures.abandon(process.device(i).stream(number));
        process.device(i).producer->stream_destroy(number);
    }
}

void make_key() { ends_are_seen = pthread_key_create(&at_exit, end_thread) == 0; }

}  // namespace

bool within_host_function() {
    for (unsigned i = 0; i < process.device_count(); ++i) {
        const Producer* const producer = load_acquire(process.device(i).producer);
        if (producer != nullptr && producer->within_host_function()) return true;
    }
    return false;
}

CUresult no_context() {
    if (within_host_function()) return CUDA_ERROR_NOT_PERMITTED;
    return thread.depth != 0 ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult own_default_stream(Device& device, uint32_t& stream) {
    uint32_t& number = thread.default_stream[device.ordinal];
    if (number == 0) {
        pthread_once(&once, make_key);
        if (const Status status = device.producer->stream_create(0, 0, number)) {
            number = 0;
            return result_of(status);
        }
        if (ends_are_seen) pthread_setspecific(at_exit, &thread);
    }
    stream = device.stream(number);
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
