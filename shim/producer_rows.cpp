// Copies of rows, of which arrays may be an end. As of others (producer_copies.cpp), pinned memory is named
// by handle, and pageable memory travels through the staging area; there the rows of a part lie one behind
// the other.
#include <string.h>

#include <algorithm>

#include "producer.hpp"

namespace fikit {
namespace {

// A part of a copy: where it begins in the whole, and how large it is.
struct Box {
    uint64_t x = 0, y = 0, z = 0;
    uint64_t width = 0, rows = 0, slices = 0;
    uint64_t bytes() const { return width * rows * slices; }
};

// The part behind another one, as far as there is room: slices, or rows of a slice, or some of a row. Room is
// a multiple of every element's size.
Box box_behind(const fikit_copy_rows& whole, const Box& before, uint64_t room) {
    Box next;
    next.x = before.x + before.width;
    next.y = before.y;
    next.z = before.z;
    if (next.x == whole.width) {
        next.x = 0;
        next.y += before.rows;
    }
    if (next.y == whole.rows) {
        next.y = 0;
        next.z += before.slices;
    }
    next.width = std::min(whole.width - next.x, room);
    next.rows = next.slices = 1;
    if (next.width == whole.width) {
        next.rows = std::min(whole.rows - next.y, room / whole.width);
        if (next.rows == whole.rows)
            next.slices = std::min(whole.slices - next.z, room / (whole.width * whole.rows));
    }
    return next;
}

// Moves what is no host memory to where the part begins.
void advance(fikit_copy_end& end, uint64_t& address, const Box& part) {
    if (end.array != 0) {
        end.x += part.x;
        end.y += part.y;
        end.z += part.z;
    } else {
        address += (part.z * end.height + part.y) * end.pitch + part.x;
    }
}

// Each row of a part: in host memory, and in the staging area.
template <class Move>
void each_row(const Box& part, const fikit_copy_end& host_end, uint8_t* host, uint8_t* staged,
              const Move& move) {
    for (uint64_t z = part.z; z < part.z + part.slices; ++z)
        for (uint64_t y = part.y; y < part.y + part.rows; ++y, staged += part.width)
            move(host + (z * host_end.height + y) * host_end.pitch + part.x, staged);
}

}  // namespace

Status Producer::enqueue_rows(uint32_t stream, const fikit_copy_rows& what, bool mark, uint64_t& step) {
    fikit_copy_rows* record;
    if (const Status status = begin(FIKIT_OP_COPY, stream, record)) return status;
    const fikit_record header = record->copy.record;
    *record = what;
    record->copy.record = header;
    record->copy.record.flags = FIKIT_ROWS;
    record->copy.size = what.width * what.rows * what.slices;
    step = finish(record->copy.record, mark);
    return status::success;
}

Status Producer::copy_rows(uint32_t stream, const fikit_copy_rows& what, void* host) {
    if (stream >= FIKIT_MAX_STREAMS) return status::invalid_handle;
    uint64_t step = 0;
    if (host == nullptr) return enqueue_rows(stream, what, false, step);
    const fikit_copy_end& end = what.copy.kind == FIKIT_COPY_TO_HOST ? what.to : what.from;
    const uint64_t span = ((what.slices - 1) * end.height + what.rows - 1) * end.pitch +
                          what.width;  // the caller knows it fits
    fikit_copy_rows pinned = what;
    pinned.copy.host_buffer = find_host_buffer(host, span, pinned.copy.other);
    return pinned.copy.host_buffer != 0 ? enqueue_rows(stream, pinned, false, step)
                                        : copy_rows_in_parts(stream, what, static_cast<uint8_t*>(host));
}

Status Producer::copy_rows_in_parts(uint32_t stream, const fikit_copy_rows& what, uint8_t* host) {
    const bool to_host = what.copy.kind == FIKIT_COPY_TO_HOST;
    const fikit_copy_end& host_end = to_host ? what.to : what.from;
    Box part;
    for (uint64_t left = what.width * what.rows * what.slices; left != 0; left -= part.bytes()) {
        Piece piece;
        if (const Status status = acquire_piece(left, stream, piece)) return status;
        part = box_behind(what, part, piece.bytes);
        fikit_copy_rows record = what;
        record.width = part.width;
        record.rows = part.rows;
        record.slices = part.slices;
        advance(to_host ? record.from : record.to, record.copy.device, part);
        fikit_copy_end& staged_end = to_host ? record.to : record.from;
        staged_end.pitch = part.width;
        staged_end.height = part.rows;
        record.copy.host_buffer = 0;
        record.copy.other = piece.offset;
        uint8_t* const staged = channel_.staging() + piece.offset;
        if (!to_host)
            each_row(part, host_end, host, staged,
                     [&](const uint8_t* from, uint8_t* to) { memcpy(to, from, part.width); });
        uint64_t step = 0;
        const bool mark = to_host || part.bytes() == staging_.largest_piece();
        if (const Status status = enqueue_rows(stream, record, mark, step)) {
            staging_.release(piece);
            return status;
        }
        if (!to_host) {
            staging_.release_after(piece, stream, step);
            continue;
        }
        const Status status = wait_for(stream, step, forever);
        if (status != status::success) {
            staging_.release_after(piece, stream, step);
            return status;
        }
        each_row(part, host_end, host, staged,
                 [&](uint8_t* to, const uint8_t* from) { memcpy(to, from, part.width); });
        staging_.release(piece);
    }
    return to_host ? channel_.take_deferred() : status::success;
}

}  // namespace fikit
