// The ledger of a tenant: how much memory its executors use together, or are about to, of a GPU's or of the
// host's, so that the tenant's limit holds for all of them. Shared by a file. Taking from what is left is one
// exchange of a word; each executor's own entry tells what to put back once it has ended, killed or not.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "slots.hpp"

namespace fikit {

class Ledger {
  public:
    static constexpr unsigned executors = 255;

    // Until this is called, the executor is the tenant's only one. False with errno, or when no slot is free.
    bool open(const std::string& path) {
        if (!shared_.open(path)) return false;
        shared_.enter();
        const bool taken = shared_.take(first);
        if (taken) {
            entry_ = shared_.mine();
            sum_ = &shared_.all()[0];
            sum_->fetch_sub(entry_->exchange(0));
            bool alone = true;
            for (const Entry& entry : shared_.all()) alone &= &entry == entry_ || !shared_.held(entry);
            if (alone) {  // whatever the others left is gone
                for (Entry& entry : shared_.all()) entry.store(0);
            }
        }
        shared_.leave();
        return taken;
    }

    // Takes `bytes` of what the limit (0: none) leaves; false when that is less. Only with `thorough` does it
    // look for executors that have ended, which takes system calls.
    bool reserve(uint64_t bytes, uint64_t limit, bool thorough) {
        if (take(bytes, limit)) return true;
        if (!thorough) return false;
        forget_ended();
        return take(bytes, limit);
    }
    // What was reserved is not needed, or has become memory that `change` told of.
    void give_back(uint64_t bytes) { add(0 - bytes); }

    // This executor uses more memory, or less.
    void change(int64_t bytes) { add(static_cast<uint64_t>(bytes)); }

    // What executors have used that have ended counts no longer. Takes system calls.
    void forget_ended() {
        if (shared_.mine() == nullptr) return;
        shared_.enter();
        for (unsigned slot = first; slot <= executors; ++slot)
            if (Entry& entry = shared_.all()[slot]; entry.load() != 0 && !shared_.held(entry))
                sum_->fetch_sub(entry.exchange(0));
        shared_.leave();
    }

    // Of all executors; may count one that has just ended.
    uint64_t total() const { return sum_->load(); }

  private:
    using Entry = std::atomic<uint64_t>;
    static_assert(Entry::is_always_lock_free);
    static constexpr unsigned first = 1;  // the slot before is nobody's: it has the sum

    // The sum grows first and shrinks last: one that is killed in between leaves too much in it, never too
    // little.
    bool take(uint64_t bytes, uint64_t limit) {
        uint64_t sum = sum_->load();
        do {
            if (limit != 0 && (sum > limit || bytes > limit - sum)) return false;
        } while (!sum_->compare_exchange_weak(sum, sum + bytes));
        entry_->fetch_add(bytes);
        return true;
    }
    void add(uint64_t bytes) {
        const bool shrinks = (bytes >> 63) != 0;
        if (!shrinks) sum_->fetch_add(bytes);
        entry_->fetch_add(bytes);
        if (shrinks) sum_->fetch_add(bytes);
    }

    SharedSlots<Entry, executors + 1> shared_;
    Entry own_{0}, own_sum_{0};
    Entry* entry_ = &own_;
    Entry* sum_ = &own_sum_;
};

}  // namespace fikit
