// How a wait for the GPU is spent. Who spins sees the mark at once. Who sleeps is woken late: the executor
// looks for completions every 50 us while it sleeps itself, and then the kernel has to find a core. A program
// that waits in every step waits about as long each time, so it sleeps for most of that and spins around the
// expected end. On a virtual machine a timer is up to 0.3 ms late, so it spins all of a short wait, as it
// would natively.
#pragma once

#include <cstdint>

namespace fikit {

struct Patience {
    int64_t spin_ns;            // from the beginning,
    int64_t sleep_ns = 0;       // then asleep for so long,
    int64_t spin_again_ns = 0;  // then again; after that asleep until woken
};

inline constexpr int64_t first_spin_ns = 30'000;      // longer than an idle GPU's launch and synchronise
inline constexpr int64_t query_patience_ns = 20'000;  // a mark behind what is over takes 8 us on an H200
inline constexpr int64_t least_margin_ns = 300'000, most_margin_ns = 1'000'000;
inline constexpr int64_t worth_a_sleep_ns = 2'400'000;
inline constexpr int64_t too_long_ns = 1'000'000'000;  // what happens 100 us late there does not matter

// For a wait like those before it, which took `usual_ns`; 0: there was none.
constexpr Patience patience_for(int64_t usual_ns) {
    if (usual_ns == 0 || usual_ns > too_long_ns) return {first_spin_ns};
    int64_t margin = usual_ns / 8;
    margin = margin < least_margin_ns ? least_margin_ns : margin > most_margin_ns ? most_margin_ns : margin;
    if (usual_ns < worth_a_sleep_ns) return {usual_ns + margin};
    return {first_spin_ns, usual_ns - margin - first_spin_ns, 2 * margin};
}

// What the latest few such times have in common: their median, so that one that was far longer changes
// nothing. Threads may use one together; of what they note at a time one may be lost. Zeros are a new one.
class Usual {
  public:
    void note(int64_t ns) {
        const uint32_t count = __atomic_load_n(&count_, __ATOMIC_RELAXED);
        __atomic_store_n(&latest_[count % kept], ns < most ? static_cast<uint32_t>(ns) : most,
                         __ATOMIC_RELAXED);
        __atomic_store_n(&count_, count + 1 < 2 * kept ? count + 1 : kept, __ATOMIC_RELAXED);
    }
    // 0: nothing was noted.
    int64_t ns() const {
        uint32_t sorted[kept];
        const uint32_t count = __atomic_load_n(&count_, __ATOMIC_RELAXED),
                       known = count < kept ? count : kept;
        for (uint32_t number = 0; number < known; ++number) {
            const uint32_t time = __atomic_load_n(&latest_[number], __ATOMIC_RELAXED);
            uint32_t place = number;
            for (; place > 0 && sorted[place - 1] > time; --place) sorted[place] = sorted[place - 1];
            sorted[place] = time;
        }
        return known == 0 ? 0 : sorted[known / 2];
    }

  private:
    static constexpr uint32_t kept = 5, most = UINT32_MAX;
    uint32_t latest_[kept]{};
    uint32_t count_ = 0;  // up to `kept`, then round and round
};

}  // namespace fikit
