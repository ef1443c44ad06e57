// How much longer high-priority kernels last beside others: caches and memory bandwidth shared, fewer SMs,
// an SM shared. Learnt from what such launches took in truth, by the pair of kernels; for a pair not seen
// together yet, by the one that disturbs.
//
// What is learnt is a share of the disturbed kernel's own duration; beside a confined kernel for each SM that
// it has, beside one on the whole GPU, where SMs are shared too, apart from that. Fixed size; a pair that
// meets another's place takes it over.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "policy.hpp"

namespace fikit::scheduling {

class Interference {
  public:
    static constexpr float most = 8;  // an accident is no interference

    // Who disturbs: a kernel, and where.
    struct Guest {
        uint64_t name = 0;  // 0: nobody
        float sms = 1;      // by which shares are multiplied
        Guest() = default;
        Guest(uint64_t key, uint32_t of, uint32_t all)
            : name((key ^ (of < all)) * 0x9e3779b97f4a7c15u | 1),
              sms(static_cast<float>(of) / static_cast<float>(all)) {}
    };

    float share(uint64_t kernel, const Guest& guest) const {
        const Pair& pair = pairs_[place(kernel, guest.name)];
        if (pair.kernel == kernel && pair.guest == guest.name && pair.times >= sure)
            return pair.share * guest.sms;
        const Pair& any = pairs_[place(0, guest.name)];
        return any.kernel == 0 && any.guest == guest.name ? any.share * guest.sms : 0;
    }
    void learn(uint64_t kernel, const Guest& from, float share) {
        share = std::min(share / from.sms, most);
        const uint64_t guest = from.name;
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
