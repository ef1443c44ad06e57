// The session's own numbers for its streams, events, modules, functions and pinned buffers. The one freed
// longest ago is given out first, so the executor has the most time to be done with a number.
#pragma once

#include <pthread.h>
#include <stdlib.h>

#include <cstdint>

#include "channel.hpp"

namespace fikit {

template <uint32_t Limit>
class Handles {
  public:
    Handles() = default;
    Handles(const Handles&) = delete;
    Handles& operator=(const Handles&) = delete;
    ~Handles() { free(freed_); }

    // 0 is never given out: it means none, or the default stream, or the staging area.
    uint32_t take() {
        const Locked lock(mutex_);
        if (freed_ == nullptr) freed_ = static_cast<uint32_t*>(malloc(Limit * sizeof(uint32_t)));
        if (freed_ == nullptr) return 0;
        if (next_ < Limit) return next_++;
        if (waiting_ == 0) return 0;
        const uint32_t handle = freed_[first_];
        first_ = (first_ + 1) % Limit;
        --waiting_;
        return handle;
    }
    // How many there may be, where there are as many; else 0.
    uint32_t limit_reached() const {
        const Locked lock(mutex_);
        return next_ == Limit && waiting_ == 0 ? Limit - 1 : 0;
    }
    void give_back(uint32_t handle) {
        const Locked lock(mutex_);
        freed_[(first_ + waiting_++) % Limit] = handle;
    }
    // Makes something by a call of the executor's that names it, under a handle that is taken for it unless
    // it has one. Of an interrupted call nobody knows whether it made it.
    template <class Call>
    Status make(uint32_t& handle, Call call) {
        const bool fresh = handle == 0;
        if (fresh) handle = take();
        if (handle == 0) return status::out_of_memory;
        const Status status = call();
        if (fresh && status != status::success) {
            if (status != status::interrupted) give_back(handle);
            handle = 0;
        }
        return status;
    }

  private:
    mutable pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    uint32_t* freed_ = nullptr;
    uint32_t first_ = 0;
    uint32_t waiting_ = 0;
    uint32_t next_ = 1;
};

}  // namespace fikit
