#include "ranges.hpp"

#include <stdlib.h>
#include <string.h>

namespace fikit::shim {

constinit Ranges ranges;

namespace {

class Writing {
  public:
    explicit Writing(pthread_rwlock_t& lock) : lock_(lock) { pthread_rwlock_wrlock(&lock_); }
    ~Writing() { pthread_rwlock_unlock(&lock_); }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;

  private:
    pthread_rwlock_t& lock_;
};

}  // namespace

uint32_t Ranges::after(uint64_t address) const {
    uint32_t low = 0, high = count_;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (ranges_[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool Ranges::add(Range range) {
    const Writing lock(lock_);
    range.id = ++ids_;
    const uint32_t at = after(range.address);
    if (at != 0 && ranges_[at - 1].address == range.address) {
        range.id = ranges_[at - 1].id;
        ranges_[at - 1] = range;
        return true;
    }
    if (count_ == room_) {
        const uint32_t room = room_ == 0 ? 64 : room_ * 2;
        auto* const grown = static_cast<Range*>(realloc(ranges_, room * sizeof(Range)));
        if (grown == nullptr) return false;
        ranges_ = grown;
        room_ = room;
    }
    memmove(static_cast<void*>(ranges_ + at + 1), ranges_ + at, (count_ - at) * sizeof(Range));
    ranges_[at] = range;
    ++count_;
    return true;
}

bool Ranges::take(uint64_t address, Range::Kind kind, Range& range) {
    const Writing lock(lock_);
    const uint32_t at = after(address);
    if (at == 0 || ranges_[at - 1].address != address || ranges_[at - 1].kind != kind) return false;
    range = ranges_[at - 1];
    memmove(static_cast<void*>(ranges_ + at - 1), ranges_ + at, (count_ - at) * sizeof(Range));
    --count_;
    return true;
}

bool Ranges::take_of(const Context& context, Range& range) {
    const Writing lock(lock_);
    for (uint32_t at = 0; at < count_; ++at) {
        if (ranges_[at].context != &context) continue;
        range = ranges_[at];
        --count_;
        memmove(static_cast<void*>(ranges_ + at), ranges_ + at + 1, (count_ - at) * sizeof(Range));
        return true;
    }
    return false;
}

bool Ranges::find(uint64_t address, Range& range) const {
    pthread_rwlock_rdlock(&lock_);
    const uint32_t at = after(address);
    const bool found = at != 0 && address - ranges_[at - 1].address < ranges_[at - 1].bytes;
    if (found) range = ranges_[at - 1];
    pthread_rwlock_unlock(&lock_);
    return found;
}

bool Ranges::holds(const Range& range, uint64_t address, uint64_t bytes) const {
    const uint64_t room = range.bytes - (address - range.address);
    if (bytes <= room) return true;
    if (range.kind != Range::Kind::mapped) return false;
    uint64_t left = bytes - room, next = range.address + range.bytes;
    pthread_rwlock_rdlock(&lock_);
    for (uint32_t at = after(range.address); at < count_ && left != 0; ++at) {
        const Range& more = ranges_[at];
        if (more.kind != Range::Kind::mapped || more.address != next) break;
        left -= left < more.bytes ? left : more.bytes;
        next += more.bytes;
    }
    pthread_rwlock_unlock(&lock_);
    return left == 0;
}

}  // namespace fikit::shim
