// How much longer high-priority kernels last beside others: caches and memory bandwidth shared, fewer SMs,
// an SM shared. Learnt from what such launches took in truth, by the pair of kernels; for a pair not seen
// together yet, by the one that disturbs.
//
// What is learnt is a share of the disturbed kernel's own duration. Fixed size; a pair that meets another's
// place takes it over.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "policy.hpp"

namespace fikit::scheduling {

class Interference {
  public:
    static constexpr float most = 8;  // an accident is no interference

    // How a kernel confined to so many SMs goes by here; never 0.
    static uint64_t guest(uint64_t key, uint32_t sms) { return (key ^ sms) * 0x9e3779b97f4a7c15u | 1; }

    double share(uint64_t kernel, uint64_t guest) const {
        const Pair& pair = pairs_[place(kernel, guest)];
        if (pair.kernel == kernel && pair.guest == guest && pair.times >= sure) return pair.share;
        const Pair& any = pairs_[place(0, guest)];
        return any.kernel == 0 && any.guest == guest ? any.share : 0;
    }
    void learn(uint64_t kernel, uint64_t guest, float share) {
        share = std::min(share, most);
        for (const uint64_t which : {kernel, uint64_t{0}}) {
            Pair& pair = pairs_[place(which, guest)];
            if (pair.kernel != which || pair.guest != guest) pair = {which, guest, 0, 0};
            if (pair.times < settled) ++pair.times;
            pair.share += (share - pair.share) / static_cast<float>(pair.times);
        }
    }

  private:
    static constexpr uint32_t sure = 2, settled = 16;  // times

    struct Pair {
        uint64_t kernel = 0, guest = 0;
        float share = 0;
        uint32_t times = 0;
    };
    static size_t place(uint64_t kernel, uint64_t guest) {
        return ((kernel * 0xbf58476d1ce4e5b9u) ^ guest) >> (64 - bits);
    }
    static constexpr unsigned bits = 12;

    std::array<Pair, size_t{1} << bits> pairs_{};
};

}  // namespace fikit::scheduling
