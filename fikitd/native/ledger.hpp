// The ledger of a tenant on a GPU: how much device memory each of its executors has mapped, or is about to,
// so that the tenant's limit holds for all of them together. Shared by a file; an executor that has ended,
// killed or not, counts for nothing. Called by one thread at a time, but for `total` and `change`.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "slots.hpp"

namespace fikit {

class Ledger {
  public:
    static constexpr unsigned slots = 256;

    // Until this is called, the executor is the tenant's only one. False with errno, or when no slot is free.
    bool open(const std::string& path) {
        if (!shared_.open(path)) return false;
        shared_.enter();
        const bool taken = shared_.take();
        if (taken) {
            entry_ = shared_.mine();
            entry_->store(0);
        }
        shared_.leave();
        return taken;
    }

    // Takes `bytes` of what the limit (0: none) leaves; false when that is less.
    bool reserve(uint64_t bytes, uint64_t limit) {
        if (shared_.mine() != nullptr) shared_.enter();
        const uint64_t taken = living();
        const bool fits = limit == 0 || (taken <= limit && bytes <= limit - taken);
        if (fits) entry_->fetch_add(bytes);
        if (shared_.mine() != nullptr) shared_.leave();
        return fits;
    }
    // What was reserved is not needed, or has become memory that `change` told of.
    void give_back(uint64_t bytes) { entry_->fetch_sub(bytes); }

    // This executor's mapped memory has grown, or shrunk.
    void change(int64_t bytes) { entry_->fetch_add(static_cast<uint64_t>(bytes)); }

    // Of all executors; may count one that has just ended.
    uint64_t total() const {
        if (shared_.mine() == nullptr) return entry_->load();
        uint64_t sum = 0;
        for (const Entry& entry : shared_.all()) sum += entry.load();
        return sum;
    }

  private:
    using Entry = std::atomic<uint64_t>;
    static_assert(Entry::is_always_lock_free);

    // Inside enter and leave, so that no slot changes hands meanwhile.
    uint64_t living() {
        if (shared_.mine() == nullptr) return entry_->load();
        for (Entry& entry : shared_.all())
            if (entry.load() != 0 && !shared_.held(entry)) entry.store(0);
        return total();
    }

    SharedSlots<Entry, slots> shared_;
    Entry alone_{0};
    Entry* entry_ = &alone_;
};

}  // namespace fikit
