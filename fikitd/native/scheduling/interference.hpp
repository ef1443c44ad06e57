// How much longer high-priority kernels last beside others: caches and memory bandwidth shared, fewer SMs,
// an SM shared. Learnt from what such launches took in truth, by the pair of kernels; for a pair hardly
// seen together yet, by the one that disturbs.
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
        uint64_t name = 0;          // 0: nobody
        float sms = 1;              // by which shares are multiplied
        float share = 0, most = 0;  // of a kernel not seen beside it yet; of any, about
    };

    Guest guest(uint64_t key, uint32_t of, uint32_t all) const {
        const uint64_t name = (key ^ (of < all)) * 0x9e3779b97f4a7c15u | 1;
        const float sms = of == all ? 1 : static_cast<float>(of) / static_cast<float>(all);
        const Learnt& any = guests_[name >> (64 - guest_bits)];
        if (any.guest != name || any.most == 0) return {name, sms, 0, 0};
        return {name, sms, any.share * sms, any.most * sms};
    }
    float share(uint64_t kernel, const Guest& guest) const {
        if (guest.most == 0) return 0;
        const Pair& pair = pairs_[place(kernel, guest.name)];
        const bool seen = pair.kernel == kernel && pair.guest == guest.name && pair.times >= sure;
        return seen ? pair.share * guest.sms : guest.share;
    }
    void learn(uint64_t kernel, const Guest& from, float share) {
        if (from.name == 0) return;
        share = std::min(share / from.sms, most);
        Learnt& any = guests_[from.name >> (64 - guest_bits)];
        if (any.guest != from.name) any = {from.name, 0, 0, 0};
        Pair& pair = pairs_[place(kernel, from.name)];
        if (pair.kernel != kernel || pair.guest != from.name) pair = {{from.name, 0, 0, 0}, kernel};
        any.learn(share, harmless);
        pair.learn(share, 0);
    }

  private:
    static constexpr uint32_t sure = 4, settled = 16;  // times
    // One accident must not keep a kernel out: as if so many launches beside it had lost nothing before.
    static constexpr uint32_t harmless = 3;
    static constexpr float falls = 0.998F, least = 1e-4F;

    struct Learnt {
        uint64_t guest = 0;
        float share = 0, most = 0;  // most: a slowly falling maximum
        uint32_t times = 0;

        void learn(float told, uint32_t presumed) {
            if (times < settled) {
                share += (told - share) / static_cast<float>(presumed + ++times);
            } else {
                if (told == share && told == most) return;  // mostly: nothing disturbs
                share += (told - share) / settled;
            }
            most = std::max(told, most > least ? most * falls : 0);
        }
    };
    struct Pair : Learnt {
        uint64_t kernel = 0;
    };
    static size_t place(uint64_t kernel, uint64_t guest) {
        return ((kernel * 0xbf58476d1ce4e5b9u) ^ guest) >> (64 - pair_bits);
    }
    static constexpr unsigned pair_bits = 12, guest_bits = 10;

    std::array<Pair, size_t{1} << pair_bits> pairs_{};
    std::array<Learnt, size_t{1} << guest_bits> guests_{};
};

}  // namespace fikit::scheduling
