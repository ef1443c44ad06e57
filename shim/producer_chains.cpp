// Several steps of a stream that are one to whoever else uses it.
#include <pthread.h>

#include "producer.hpp"

namespace fikit {

Producer::Chain::Chain(Producer& producer, uint32_t stream) {
    if (producer.channel_.usable() != status::success) return;  // a forked child may find the mutex locked
    producer_ = &producer;
    pthread_mutex_lock(&producer.chain_mutex_);
    store_relaxed(producer.chain_stream_, stream);
    store_release(producer.chain_owner_, pthread_self());
}

Producer::Chain::~Chain() {
    if (producer_ == nullptr) return;
    store_release(producer_->chain_owner_, pthread_t{0});
    pthread_mutex_unlock(&producer_->chain_mutex_);
}

// Called with the ring locked: so whoever is not seen here has begun nothing yet.
bool Producer::is_in_others_chain(uint32_t stream) const {
    const pthread_t owner = load_acquire(chain_owner_);
    if (owner == 0 || owner == pthread_self()) return false;
    const uint32_t chained = load_relaxed(chain_stream_);
    return chained == stream || (chained == 0 && load_relaxed(streams_[stream].blocking)) ||
           (stream == 0 && load_relaxed(streams_[chained].blocking));
}

// Called with the ring locked.
[[gnu::noinline]] Status Producer::reserve_behind_chain(uint32_t stream, uint32_t bytes, void*& room,
                                                        int64_t deadline) {
    Status status = status::success;
    while (status == status::success && is_in_others_chain(stream)) {
        channel_.give_up();
        if (deadline != forever) return status::not_ready;
        {
            const Locked over(chain_mutex_);
        }
        status = channel_.reserve(bytes, room, deadline);
    }
    return status;
}

}  // namespace fikit
