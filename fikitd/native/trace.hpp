// The trace: recorded operations in a ring buffer of fixed size, the oldest overwritten. Readers keep their
// own cursors, counted since the executor began, so that none takes anything from another.
//
// One thread writes, any may read meanwhile and cost it nothing: a record's place is announced before it is
// overwritten, so a reader that has copied a record learns whether it was still there (a sequence lock
// without the retry; H.-J. Boehm, "Can seqlocks get along with programming language memory models?", 2012).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "clock.hpp"

namespace fikit {

struct TraceRecord {
    uint32_t session = 0;  // serial number of the session
    uint32_t stream = 0;
    uint16_t op = 0;
    uint16_t detail = 0;  // copy kind
    uint32_t name = 0;    // kernel name index, for launches
    Nanoseconds arrived = 0, issued = 0, started = 0, ended = 0;
    uint64_t bytes = 0;
    uint64_t blocks = 0;
    uint32_t multiprocessors = 0;  // of the partition; 0: the whole GPU
};

class Trace {
  public:
    static constexpr size_t capacity = 1u << 17;

    // From any thread, before the first start(): takes milliseconds.
    void make_room() {
        std::call_once(made_, [this] { slots_ = std::make_unique<Slot[]>(capacity); });
    }

    // The writer's.
    bool on() const { return on_; }
    void start() { on_ = true; }
    void stop() { on_ = false; }
    void add(const TraceRecord& record) {
        const uint64_t at = written_.load(std::memory_order_relaxed);
        announced_.store(at + 1, std::memory_order_relaxed);
        std::atomic_thread_fence(
            std::memory_order_release);  // whoever sees the words sees what was announced
        const auto words = std::bit_cast<Words>(record);
        Slot& slot = slots_[at % capacity];
        for (size_t i = 0; i < words.size(); ++i) slot[i].store(words[i], std::memory_order_relaxed);
        written_.store(at + 1, std::memory_order_release);
    }

    // From any thread.
    // The cursor of what is recorded next.
    uint64_t cursor() const { return written_.load(std::memory_order_acquire); }
    // What was recorded at `cursor` and after, which moves on; `dropped` counts what was overwritten before.
    std::vector<TraceRecord> read(uint64_t& cursor, size_t limit, uint64_t& dropped) const {
        const uint64_t written = this->cursor(), wished = std::min(cursor, written);
        uint64_t first = std::max(wished, oldest(written));
        cursor = first + std::min<uint64_t>(limit, written - first);
        std::vector<TraceRecord> out(cursor - first);
        for (size_t i = 0; i < out.size(); ++i) {
            const Slot& slot = slots_[(first + i) % capacity];
            Words words;
            for (size_t word = 0; word < words.size(); ++word)
                words[word] = slot[word].load(std::memory_order_relaxed);
            out[i] = std::bit_cast<TraceRecord>(words);
        }
        std::atomic_thread_fence(std::memory_order_acquire);
        const uint64_t kept = std::min(oldest(announced_.load(std::memory_order_relaxed)), cursor);
        if (kept > first) {  // overwritten while it was copied
            out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(kept - first));
            first = kept;
        }
        dropped = first - wished;
        return out;
    }

  private:
    static_assert(std::is_trivially_copyable_v<TraceRecord> && sizeof(TraceRecord) % sizeof(uint64_t) == 0);
    using Words = std::array<uint64_t, sizeof(TraceRecord) / sizeof(uint64_t)>;
    using Slot = std::array<std::atomic<uint64_t>, sizeof(TraceRecord) / sizeof(uint64_t)>;

    // The oldest that is there once so many were written.
    static uint64_t oldest(uint64_t written) { return written > capacity ? written - capacity : 0; }

    std::once_flag made_;
    std::unique_ptr<Slot[]> slots_;
    std::atomic<uint64_t> announced_{0}, written_{0};
    bool on_ = false;
};

}  // namespace fikit
