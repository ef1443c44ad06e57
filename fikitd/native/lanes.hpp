// Lanes: the real CUDA streams. A session's stream is on one while it has work in flight, so that a program
// that makes 128 streams costs nothing. A lane belongs to one CUDA priority and to the whole GPU or to one
// partition, so high- and low-priority work never share one. When a kind has none left that is idle, the
// least busy is shared: that adds order. What the driver is told to wait for adds no deadlock, since work is
// issued only when that has been issued, and nothing on a lane waits for a tenant (backlog.cpp). Kernels that
// look for what others write do: those of more streams than there are lanes may be behind one another.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "driver.hpp"

namespace fikit {

struct Lane {
    CUstream stream = nullptr;
    int cuda_priority = 0;
    uint32_t multiprocessors = 0;  // of its partition; 0: the whole GPU
    uint32_t busy = 0;             // streams whose last steps are in flight here
};

class Lanes {
  public:
    void add(CUstream stream, int cuda_priority, uint32_t multiprocessors) {
        lanes_.push_back(std::make_unique<Lane>(Lane{stream, cuda_priority, multiprocessors}));
    }

    // The least busy lane of so many multiprocessors (0: the whole GPU), of this urgency or the nearest lower
    // one; of less than `least` only if there is no other. Never nullptr for a size that was added.
    Lane* choose(int cuda_priority, int least, uint32_t multiprocessors) const {
        Lane* best = nullptr;
        const auto rank = [least](const Lane& lane) {
            return std::tuple(lane.cuda_priority > least ? lane.cuda_priority : least, lane.busy,
                              lane.cuda_priority);
        };
        for (const auto& lane : lanes_) {
            if (lane->multiprocessors != multiprocessors) continue;
            if (multiprocessors == 0 && lane->cuda_priority < cuda_priority)
                continue;  // more urgent than allowed
            if (best == nullptr || rank(*lane) < rank(*best)) best = lane.get();
        }
        return best;
    }

    // The sizes of the partitions, the largest first.
    std::vector<uint32_t> partitions() const {
        std::set<uint32_t, std::greater<>> sizes;
        for (const auto& lane : lanes_)
            if (lane->multiprocessors != 0) sizes.insert(lane->multiprocessors);
        return {sizes.begin(), sizes.end()};
    }
    int greatest_priority() const {
        int greatest = 0;
        for (const auto& lane : lanes_)
            if (lane->cuda_priority < greatest) greatest = lane->cuda_priority;
        return greatest;
    }

  private:
    std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace fikit
