// The board of a GPU: a page shared by its executors on which each says whether high-priority work of its own
// is under way, so that every gate knows. A slot is refreshed while it says so; one that is not (its executor
// was killed, or hangs) counts for nothing after `stale_after`.
//
// Only executors map it (the daemon's user owns the file); what a slot says is never used as an address or
// a size.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>

#include "clock.hpp"
#include "shared_memory.hpp"

namespace fikit {

class Board {
  public:
    static constexpr unsigned slots = 64;
    static constexpr int64_t refresh_after = 1'000'000;  // host nanoseconds
    static constexpr int64_t stale_after = 20'000'000;

    Board() = default;
    Board(const Board&) = delete;
    ~Board() {
        if (mine_ != nullptr) __atomic_store_n(&mine_->busy_since_refresh, 0, __ATOMIC_RELEASE);
        if (page_ != nullptr) munmap(page_, sizeof(Page));
    }

    // Opens or makes the file and takes a free slot; false with errno, or when no slot is free.
    bool open(const std::string& path) {
        file_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!file_ || ftruncate(file_.get(), sizeof(Page)) != 0) return false;
        void* address = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
        if (address == MAP_FAILED) return false;
        page_ = static_cast<Page*>(address);
        // A record lock on its byte of the file is what holds a slot: the kernel drops it with the process.
        for (unsigned slot = 0; slot < slots; ++slot) {
            struct flock lock{};
            lock.l_type = F_WRLCK;
            lock.l_whence = SEEK_SET;
            lock.l_start = slot;
            lock.l_len = 1;
            if (fcntl(file_.get(), F_OFD_SETLK, &lock) != 0) continue;
            mine_ = &page_->slot[slot];
            __atomic_store_n(&mine_->busy_since_refresh, 0, __ATOMIC_RELEASE);
            return true;
        }
        return false;
    }

    bool is_open() const { return mine_ != nullptr; }

    // Called at every turn of the loop: cheap while nothing changes.
    void say(bool busy, int64_t host_time) {
        if (mine_ == nullptr) return;
        const int64_t said = mine_->busy_since_refresh;
        if (busy ? host_time - said < refresh_after : said == 0) return;
        __atomic_store_n(&mine_->busy_since_refresh, busy ? host_time : 0, __ATOMIC_RELEASE);
    }

    bool others_busy(int64_t host_time) const {
        if (mine_ == nullptr) return false;
        for (const Slot& slot : page_->slot) {
            const int64_t said = __atomic_load_n(&slot.busy_since_refresh, __ATOMIC_ACQUIRE);
            if (said != 0 && &slot != mine_ && host_time - said < stale_after) return true;
        }
        return false;
    }

  private:
    struct Slot {
        alignas(64) int64_t busy_since_refresh = 0;  // host time of the last refresh, 0: not busy
    };
    struct Page {
        std::array<Slot, slots> slot;
    };

    Descriptor file_;
    Page* page_ = nullptr;
    Slot* mine_ = nullptr;
};

}  // namespace fikit
