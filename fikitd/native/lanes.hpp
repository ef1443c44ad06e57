// Lanes: the real CUDA streams. Sessions' streams borrow them when first used, so that a program that makes
// 128 streams costs nothing. A lane belongs to one CUDA priority and to the whole GPU or to one partition, so
// high- and low-priority work never share one. When a kind has none left unused, the least used is shared:
// that adds order. It adds no deadlock, since work is issued only when what it waits for has been issued, but
// for what may never come (holds.cpp): so a lane that waits for that is its session's alone meanwhile.
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
    uint32_t users = 0;
    uint32_t held = 0;    // streams that wait on it for what may never come
    unsigned holder = 0;  // the session whose they are

    void hold(unsigned session) {
        ++held;
        holder = session;
    }
    bool open_to(unsigned session) const { return held == 0 || holder == session; }
};

class Lanes {
  public:
    void add(CUstream stream, int cuda_priority, uint32_t multiprocessors) {
        lanes_.push_back(std::make_unique<Lane>(Lane{stream, cuda_priority, multiprocessors, 0}));
    }

    // The least used lane of so many multiprocessors (0: the whole GPU) that the session may use; of the
    // nearest lower urgency if there is none of this one. Where all of those are held, the least used all the
    // same. Never nullptr for a size that was added.
    Lane* borrow(int cuda_priority, uint32_t multiprocessors, unsigned session) {
        Lane* best = nullptr;
        const auto rank = [session](const Lane& lane) {
            return std::tuple(!lane.open_to(session), lane.cuda_priority, lane.users);
        };
        for (const auto& lane : lanes_) {
            if (lane->multiprocessors != multiprocessors) continue;
            if (multiprocessors == 0 && lane->cuda_priority < cuda_priority)
                continue;  // more urgent than allowed
            if (best == nullptr || rank(*lane) < rank(*best)) best = lane.get();
        }
        if (best != nullptr) ++best->users;
        return best;
    }
    // The lane that a stream which is on `wished` is to wait on, perhaps for ever: one of its session's
    // already, or one beside which others of its kind stay open, of this urgency or a lower one. Where there
    // is none: one that other streams of the session wait on; and where there is none of those either,
    // `wished`.
    Lane* to_hold(Lane* wished, unsigned session) const {
        if (wished->held != 0 && wished->holder == session) return wished;
        Lane* found = nullptr;
        Lane* shared = nullptr;
        for (const auto& lane : lanes_) {
            if (lane->multiprocessors != wished->multiprocessors ||
                (lane->multiprocessors == 0 && lane->cuda_priority < wished->cuda_priority))
                continue;
            if (lane->held != 0) {
                if (lane->holder == session) shared = lane.get();
            } else if (open_beside(*lane)) {
                if (lane.get() == wished) return wished;
                if (found == nullptr || lane->cuda_priority < found->cuda_priority) found = lane.get();
            }
        }
        return found != nullptr ? found : shared != nullptr ? shared : wished;
    }
    static void give_back(Lane*& lane) {
        if (lane != nullptr) --lane->users;
        lane = nullptr;
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
    bool empty() const { return lanes_.empty(); }

  private:
    bool open_beside(const Lane& one) const {
        for (const auto& lane : lanes_)
            if (lane.get() != &one && lane->held == 0 && lane->cuda_priority == one.cuda_priority &&
                lane->multiprocessors == one.multiprocessors)
                return true;
        return false;
    }

    std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace fikit
