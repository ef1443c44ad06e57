// What high sessions have in flight that policy fikit does not follow: launches of who was not predicted
// then, or was of another priority since, and kernels that others came and went beside. On its stream each is
// older than what is followed, so a completion there is that of the former as long as there is any.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "policy.hpp"

namespace fikit::scheduling {

class Unfollowed {
  public:
    void issued(unsigned session, uint8_t stream) {
        ++launches_[session][stream];
        sessions_ |= uint64_t{1} << session;
    }
    // Was it one of them that is over?
    bool completed(unsigned session, uint8_t stream) {
        if ((sessions_ >> session & 1) == 0) [[likely]]
            return false;
        Streams& streams = launches_[session];
        if (streams[stream] == 0) return false;
        --streams[stream];
        if (std::ranges::all_of(streams, [](uint32_t left) { return left == 0; }))
            sessions_ &= ~(uint64_t{1} << session);
        return true;
    }
    void forget(unsigned session) {
        launches_[session] = {};
        sessions_ &= ~(uint64_t{1} << session);
    }

  private:
    using Streams = std::array<uint32_t, streams_told_apart>;

    std::array<Streams, max_sessions> launches_{};
    uint64_t sessions_ = 0;  // bits of those that have any
};

}  // namespace fikit::scheduling
