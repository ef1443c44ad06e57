#include "staging.hpp"

#include <stdlib.h>

namespace fikit {
namespace {
constexpr uint64_t kibi = 1024;
constexpr uint64_t least_staging = 256 * kibi;
constexpr uint64_t largest_slot = 2048 * kibi;  // 40 us on the link: near full speed, and soon under way
}  // namespace

Staging::~Staging() {
    for (Class& entry : classes_) free(entry.table);
}

Status Staging::prepare() {
    const uint64_t total = channel_.staging_bytes();
    if (total < least_staging) return status::invalid_value;
    const uint64_t small_share = total / 16 < 4096 * kibi ? total / 16 : 4096 * kibi;
    const uint64_t rest = total - 2 * small_share;
    uint64_t slot = 16 * kibi;
    while (slot < largest_slot && slot * 8 <= rest) slot *= 2;
    const uint64_t medium_slot = small_share < 64 * kibi ? small_share : 64 * kibi;
    const uint64_t sizes[class_count] = {4 * kibi, medium_slot, slot};
    const uint64_t shares[class_count] = {small_share, small_share, rest};
    uint64_t offset = 0;
    for (uint32_t index = 0; index < class_count; ++index) {
        Class& entry = classes_[index];
        entry.offset = offset;
        entry.slot_bytes = sizes[index];
        entry.slots = static_cast<uint32_t>(shares[index] / sizes[index]);
        entry.table = static_cast<Slot*>(calloc(entry.slots, sizeof(Slot)));
        if (entry.table == nullptr) return status::out_of_memory;
        offset += shares[index] / FIKIT_RECORD_ALIGN * FIKIT_RECORD_ALIGN;
    }
    return status::success;
}

bool Staging::available(Slot& slot) const {
    if (slot.state == in_flight && channel_.mark(slot.stream) >= slot.step) slot.state = unused;
    return slot.state == unused;
}

bool Staging::may_take_large(uint32_t stream) const {
    const Class& entry = classes_[large];
    uint32_t free_slots = 0;
    bool holds_some = false;
    for (uint32_t index = 0; index < entry.slots; ++index) {
        Slot& slot = entry.table[index];
        if (available(slot))
            ++free_slots;
        else
            holds_some |= slot.stream == stream;
    }
    return free_slots > (holds_some ? entry.slots / 4 : 0);
}

bool Staging::take(uint32_t size_class, uint32_t stream, Piece& piece) {
    Class& entry = classes_[size_class];
    for (uint32_t turn = 0; turn < entry.slots; ++turn) {
        const uint32_t index = entry.cursor;
        entry.cursor = index + 1 == entry.slots ? 0 : index + 1;
        Slot& slot = entry.table[index];
        if (!available(slot)) continue;
        slot = {.step = 0, .stream = stream, .state = held};
        piece = {.size_class = size_class,
                 .slot = index,
                 .slots = 1,
                 .offset = entry.offset + index * entry.slot_bytes,
                 .bytes = entry.slot_bytes};
        return true;
    }
    return false;
}

bool Staging::acquire(uint64_t bytes, uint32_t stream, Piece& piece) {
    const Locked lock(mutex_);
    if (bytes <= classes_[small].slot_bytes && take(small, stream, piece)) return true;
    if (bytes <= classes_[medium].slot_bytes && take(medium, stream, piece)) return true;
    return may_take_large(stream) && take(large, stream, piece);
}

bool Staging::acquire_run(uint64_t bytes, Piece& piece) {
    const Locked lock(mutex_);
    Class& entry = classes_[large];
    const auto wanted = static_cast<uint32_t>((bytes + entry.slot_bytes - 1) / entry.slot_bytes);
    uint32_t run = 0;
    for (uint32_t index = 0; index < entry.slots; ++index) {
        run = available(entry.table[index]) ? run + 1 : 0;
        if (run < wanted) continue;
        const uint32_t first = index + 1 - wanted;
        for (uint32_t each = first; each <= index; ++each)
            entry.table[each] = {.step = 0, .stream = 0, .state = held};
        piece = {.size_class = large,
                 .slot = first,
                 .slots = wanted,
                 .offset = entry.offset + first * entry.slot_bytes,
                 .bytes = wanted * entry.slot_bytes};
        return true;
    }
    return false;
}

void Staging::release_after(const Piece& piece, uint32_t stream, uint64_t step) {
    const Locked lock(mutex_);
    for (uint32_t each = 0; each < piece.slots; ++each)
        classes_[piece.size_class].table[piece.slot + each] = {
            .step = step, .stream = stream, .state = in_flight};
}

void Staging::release(const Piece& piece) { release_after(piece, 0, 0); }

bool Staging::oldest_user(uint32_t& stream, uint64_t& step) {
    const Locked lock(mutex_);
    for (const Class& entry : classes_) {
        for (uint32_t turn = 0; turn < entry.slots; ++turn) {
            Slot& slot = entry.table[(entry.cursor + turn) % entry.slots];
            if (available(slot) || slot.state != in_flight) continue;
            stream = slot.stream;
            step = slot.step;
            return true;
        }
    }
    return false;
}

}  // namespace fikit
