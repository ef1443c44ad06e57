// The board of a GPU: a page shared by its executors on which each says whether high-priority work of its own
// is under way, so that every gate knows. A slot is refreshed while it says so. One that is not refreshed
// counts as long as its executor lives, which may just have been kept from a processor, but for nothing once
// that is dead, or hangs (`hung_after`). Nor does one of a time to come: the machine has been started since.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "clock.hpp"
#include "slots.hpp"

namespace fikit {

class Board {
  public:
    static constexpr unsigned slots = 64;  // max_per_gpu (fikitd/configuration.py) keeps below it
    static constexpr int64_t refresh_after = 1'000'000;  // host nanoseconds
    static constexpr int64_t doubted_after = 20'000'000;
    static constexpr int64_t hung_after = 1'000'000'000;

    Board() = default;
    Board(const Board&) = delete;
    ~Board() {
        if (Slot* mine = slots_.mine(); mine != nullptr)
            __atomic_store_n(&mine->busy_since_refresh, 0, __ATOMIC_RELEASE);
    }

    // Opens or makes the file and takes a free slot; false with errno, or when no slot is free.
    bool open(const std::string& path) {
        if (!slots_.open(path) || !slots_.take()) return false;
        __atomic_store_n(&slots_.mine()->busy_since_refresh, 0, __ATOMIC_RELEASE);
        return true;
    }

    bool is_open() const { return slots_.mine() != nullptr; }

    // Called at every turn of the loop: cheap while nothing changes.
    void say(bool busy, int64_t host_time) {
        Slot* mine = slots_.mine();
        if (mine == nullptr) return;
        const int64_t said = mine->busy_since_refresh;
        if (busy ? host_time - said < refresh_after : said == 0) return;
        __atomic_store_n(&mine->busy_since_refresh, busy ? host_time : 0, __ATOMIC_RELEASE);
    }

    bool others_busy(int64_t host_time) {
        if (!is_open()) return false;
        if (looked_at_ != 0 && host_time - looked_at_ >= hung_after) watches_since_ = host_time;
        looked_at_ = host_time;
        for (const Slot& slot : slots_.all()) {
            const int64_t said = __atomic_load_n(&slot.busy_since_refresh, __ATOMIC_ACQUIRE);
            const int64_t ago = host_time - said;
            const bool hangs = std::min(ago, host_time - watches_since_) >= hung_after;
            if (said == 0 || &slot == slots_.mine() || hangs || ago <= -hung_after) continue;
            if (ago < doubted_after || slots_.held(slot)) return true;
        }
        return false;
    }

  private:
    struct Slot {
        alignas(64) int64_t busy_since_refresh = 0;  // host time of the last refresh, 0: not busy
    };
    SharedSlots<Slot, slots> slots_;
    int64_t looked_at_ = 0;
    int64_t watches_since_ = 0;  // without having been held up itself for as long as who hangs
};

}  // namespace fikit
