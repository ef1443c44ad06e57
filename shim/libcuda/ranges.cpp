#include "ranges.hpp"

#include <stdlib.h>
#include <string.h>

namespace fikit::shim {

constinit Ranges ranges;

namespace {

template <int (*take)(pthread_rwlock_t*)>
class Holding {
  public:
    explicit Holding(pthread_rwlock_t& lock) : lock_(lock) { take(&lock_); }
    ~Holding() { pthread_rwlock_unlock(&lock_); }
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;

  private:
    pthread_rwlock_t& lock_;
};
using Reading = Holding<pthread_rwlock_rdlock>;
using Writing = Holding<pthread_rwlock_wrlock>;

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

void Ranges::remove(uint32_t at, Range& range) {
    range = ranges_[at];
    --count_;
    memmove(static_cast<void*>(ranges_ + at), ranges_ + at + 1, (count_ - at) * sizeof(Range));
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
    remove(at - 1, range);
    return true;
}

bool Ranges::take_first(uint64_t begin, uint64_t end, Range::Kind kind, Range& range) {
    const Writing lock(lock_);
    uint32_t at = begin != 0 ? after(begin - 1) : 0;
    while (at < count_ && ranges_[at].address < end && ranges_[at].kind != kind) ++at;
    if (at == count_ || ranges_[at].address >= end) return false;
    remove(at, range);
    return true;
}

bool Ranges::take_of(const Context& context, Range& range) {
    const Writing lock(lock_);
    for (uint32_t at = 0; at < count_; ++at) {
        if (ranges_[at].context != &context) continue;
        remove(at, range);
        return true;
    }
    return false;
}

Ranges::Held Ranges::find(uint64_t address, uint64_t bytes, Range& range) const {
    const Reading lock(lock_);
    const uint32_t at = after(address);
    if (at == 0) return Held::nowhere;
    const Range& found = ranges_[at - 1];
    const uint64_t offset = address - found.address;
    if (offset >= found.bytes) return Held::nowhere;
    range = found;
    const uint64_t room = found.bytes - offset;
    if (bytes <= room) return Held::wholly;
    const bool goes_on = found.kind == Range::Kind::mapped && mapped(at, address + room, bytes - room);
    return goes_on ? Held::wholly : Held::partly;
}

bool Ranges::any_has(Range::Kind kind, uint8_t device, uint32_t handle) const {
    const Reading lock(lock_);
    for (uint32_t at = 0; at < count_; ++at)
        if (ranges_[at].kind == kind && ranges_[at].device == device && ranges_[at].handle == handle)
            return true;
    return false;
}

bool Ranges::meet(uint64_t address, uint64_t bytes, Range& range) const {
    const Reading lock(lock_);
    uint32_t at = after(address);
    if (at != 0 && address - ranges_[at - 1].address < ranges_[at - 1].bytes) --at;
    if (at == count_ || (ranges_[at].address > address && ranges_[at].address - address >= bytes))
        return false;
    range = ranges_[at];
    return true;
}

bool Ranges::mapped(uint32_t at, uint64_t address, uint64_t bytes) const {
    for (; at < count_ && bytes != 0; ++at) {
        const Range& more = ranges_[at];
        if (more.kind != Range::Kind::mapped || more.address != address) break;
        bytes -= bytes < more.bytes ? bytes : more.bytes;
        address += more.bytes;
    }
    return bytes == 0;
}

}  // namespace fikit::shim
