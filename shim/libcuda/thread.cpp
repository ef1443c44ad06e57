#include "thread.hpp"

#include "process.hpp"

namespace fikit::shim {

constinit thread_local Thread thread = {};

namespace {

pthread_key_t at_exit;
pthread_once_t once = PTHREAD_ONCE_INIT;

void make_key() {
    pthread_key_create(&at_exit, [](void* number) {
        Producer* const producer = process.producer();
        if (producer != nullptr && !producer->channel().forked())
            producer->stream_destroy(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(number)));
    });
}

}  // namespace

CUresult no_context() {
    const Producer* const producer = process.producer();
    const bool within = producer != nullptr && producer->within_host_function();
    if (within) return CUDA_ERROR_NOT_PERMITTED;
    return thread.depth != 0 ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult own_default_stream(uint32_t& number) {
    if (thread.default_stream == 0) {
        pthread_once(&once, make_key);
        if (const Status status = producer().stream_create(0, 0, thread.default_stream)) {
            thread.default_stream = 0;
            return result_of(status);
        }
        pthread_setspecific(at_exit, reinterpret_cast<void*>(uintptr_t{thread.default_stream}));
    }
    number = thread.default_stream;
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
