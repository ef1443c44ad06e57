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

Range* Ranges::range(Place place) const {
    return place.piece < count_ ? &pieces_[place.piece]->ranges[place.at] : nullptr;
}

Ranges::Place Ranges::next(Place place) const {
    if (++place.at < pieces_[place.piece]->count) return place;
    return {place.piece + 1, 0};
}

Range* Ranges::until(uint64_t address, Place& place) const {
    uint32_t low = 0, high = count_;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (pieces_[middle]->ranges[0].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return nullptr;
    Piece& piece = *pieces_[low - 1];
    uint32_t at = 1;
    high = piece.count;
    while (at < high) {
        const uint32_t middle = (at + high) / 2;
        if (piece.ranges[middle].address <= address)
            at = middle + 1;
        else
            high = middle;
    }
    place = {low - 1, at - 1};
    return &piece.ranges[at - 1];
}

Ranges::Place Ranges::from(uint64_t address) const {
    Place place;
    const Range* const there = until(address, place);
    if (there == nullptr) return {0, 0};
    return there->address == address ? place : next(place);
}

bool Ranges::add_piece(uint32_t at, const Range* first, uint32_t count) {
    if (count_ == room_) {
        const uint32_t room = room_ == 0 ? 16 : room_ * 2;
        auto** const grown = static_cast<Piece**>(realloc(pieces_, room * sizeof(Piece*)));
        if (grown == nullptr) return false;
        pieces_ = grown;
        room_ = room;
    }
    auto* const piece = static_cast<Piece*>(malloc(sizeof(Piece)));
    if (piece == nullptr) return false;
    piece->count = count;
    memcpy(static_cast<void*>(piece->ranges), first, count * sizeof(Range));
    memmove(pieces_ + at + 1, pieces_ + at, (count_ - at) * sizeof(Piece*));
    pieces_[at] = piece;
    ++count_;
    return true;
}

// There, or behind the last of a piece.
bool Ranges::insert(Place place, const Range& range) {
    if (count_ == 0) return add_piece(0, &range, 1);
    Piece* piece = pieces_[place.piece];
    if (piece->count == most) {
        if (place.at == most) return add_piece(place.piece + 1, &range, 1);
        constexpr uint32_t half = most / 2;
        if (!add_piece(place.piece + 1, piece->ranges + half, most - half)) return false;
        piece->count = half;
        if (place.at > half) {
            piece = pieces_[place.piece + 1];
            place.at -= half;
        }
    }
    memmove(static_cast<void*>(piece->ranges + place.at + 1), piece->ranges + place.at,
            (piece->count - place.at) * sizeof(Range));
    piece->ranges[place.at] = range;
    ++piece->count;
    return true;
}

void Ranges::remove(Place place, Range& range) {
    Piece* const piece = pieces_[place.piece];
    range = piece->ranges[place.at];
    --piece->count;
    memmove(static_cast<void*>(piece->ranges + place.at), piece->ranges + place.at + 1,
            (piece->count - place.at) * sizeof(Range));
    if (piece->count != 0) return;
    free(piece);
    --count_;
    memmove(pieces_ + place.piece, pieces_ + place.piece + 1, (count_ - place.piece) * sizeof(Piece*));
}

bool Ranges::add(Range range) {
    const Writing lock(lock_);
    range.id = ++ids_;
    Place place;
    Range* const there = until(range.address, place);
    if (there == nullptr) return insert({0, 0}, range);
    if (there->address != range.address) return insert({place.piece, place.at + 1}, range);
    range.id = there->id;
    *there = range;
    return true;
}

bool Ranges::take(uint64_t address, Range::Kind kind, Range& range) {
    const Writing lock(lock_);
    Place place;
    const Range* const there = until(address, place);
    if (there == nullptr || there->address != address || there->kind != kind) return false;
    remove(place, range);
    return true;
}

bool Ranges::take_first(uint64_t begin, uint64_t end, Range::Kind kind, Range& range) {
    const Writing lock(lock_);
    Place place = from(begin);
    const Range* there = this->range(place);
    while (there != nullptr && there->address < end && there->kind != kind) {
        place = next(place);
        there = this->range(place);
    }
    if (there == nullptr || there->address >= end) return false;
    remove(place, range);
    return true;
}

bool Ranges::take_of(const Context& context, Range& range) {
    const Writing lock(lock_);
    for (Place place = {0, 0}; const Range* const there = this->range(place); place = next(place)) {
        if (there->context != &context) continue;
        remove(place, range);
        return true;
    }
    return false;
}

Ranges::Held Ranges::find(uint64_t address, uint64_t bytes, Range& range) const {
    const Reading lock(lock_);
    Place place;
    const Range* const found = until(address, place);
    if (found == nullptr) return Held::nowhere;
    const uint64_t offset = address - found->address;
    if (offset >= found->bytes) return Held::nowhere;
    range = *found;
    const uint64_t room = found->bytes - offset;
    if (bytes <= room) return Held::wholly;
    const bool goes_on = found->kind == Range::Kind::mapped && mapped(address + room, bytes - room);
    return goes_on ? Held::wholly : Held::partly;
}

bool Ranges::any_has(Range::Kind kind, uint8_t device, uint32_t handle) const {
    const Reading lock(lock_);
    for (Place place = {0, 0}; const Range* const there = range(place); place = next(place))
        if (there->kind == kind && there->device == device && there->handle == handle) return true;
    return false;
}

bool Ranges::meet(uint64_t address, uint64_t bytes, Range& range) const {
    const Reading lock(lock_);
    Place place;
    const Range* there = until(address, place);
    if (there == nullptr || address - there->address >= there->bytes) there = this->range(from(address));
    if (there == nullptr || (there->address > address && there->address - address >= bytes)) return false;
    range = *there;
    return true;
}

bool Ranges::mapped(uint64_t address, uint64_t bytes) const {
    for (Place place = from(address); bytes != 0; place = next(place)) {
        const Range* const more = range(place);
        if (more == nullptr || more->kind != Range::Kind::mapped || more->address != address) break;
        bytes -= bytes < more->bytes ? bytes : more->bytes;
        address += more->bytes;
    }
    return bytes == 0;
}

}  // namespace fikit::shim
