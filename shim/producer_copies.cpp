// Copies between host and device. Pinned memory is named by handle and copied as it lies; pageable memory
// travels through the staging area in pieces, so that reading or writing the one overlaps with the copy of
// the others.
#include <string.h>

#include "producer.hpp"

namespace fikit {

Status Producer::enqueue_copy(uint32_t kind, uint32_t stream, uint32_t buffer, uint64_t device,
                              uint64_t other, uint64_t bytes, bool mark, uint64_t& step) {
    if (bytes == 0) return channel_.usable();  // an operation moves something
    fikit_copy* record;
    if (const Status status = begin(FIKIT_OP_COPY, stream, record)) return status;
    record->kind = kind;
    record->host_buffer = buffer;
    record->device = device;
    record->other = other;
    record->size = bytes;
    step = finish(record->record, mark);
    return status::success;
}

Status Producer::copy_on_device(uint32_t stream, uint64_t to, uint64_t from, uint64_t bytes) {
    uint64_t step;
    return enqueue_copy(FIKIT_COPY_ON_DEVICE, stream, 0, to, from, bytes, false, step);
}

// Waits while others use all of the staging area. Small pieces are not marked as they go, so the mark of
// whoever has held one longest is asked for.
Status Producer::acquire_piece(uint64_t bytes, uint32_t stream, Piece& piece) {
    if (const Status status = channel_.usable()) return status;  // a forked child has no staging area
    while (!staging_.acquire(bytes, stream, piece)) {
        uint32_t user = 0;
        uint64_t step = 0;
        if (staging_.oldest_user(user, step) && load_relaxed(streams_[user].marked) < step)
            if (const Status status = ask_for_mark(user, step)) return status;
        bool got = false;
        const Status status = channel_.wait_until(
            [&] { return got = staging_.acquire(bytes, stream, piece); }, now_ns() + 10'000'000);
        if (got) return status::success;
        if (status != status::not_ready) return status;
        if (channel_.interrupted()) return status::interrupted;
    }
    return status::success;
}

Status Producer::copy_to_device(uint32_t stream, uint64_t to, const void* from, uint64_t bytes,
                                bool* pinned) {
    if (stream >= FIKIT_MAX_STREAMS) return status::invalid_handle;
    uint64_t offset = 0;
    uint64_t step = 0;
    const uint32_t buffer = find_host_buffer(from, bytes, offset);
    if (pinned != nullptr) *pinned = buffer != 0;
    if (buffer != 0)
        return enqueue_copy(FIKIT_COPY_TO_DEVICE, stream, buffer, to, offset, bytes, false, step);

    if (bytes >= CopyThreads::worthwhile_bytes) copy_threads_.start(CopyThreads::suitable_threads());
    const auto* source = static_cast<const uint8_t*>(from);
    while (bytes != 0) {
        Piece piece;
        if (const Status status = acquire_piece(bytes, stream, piece)) return status;
        const uint64_t part = bytes < piece.bytes ? bytes : piece.bytes;
        copy_threads_.copy(channel_.staging() + piece.offset, source, part);
        const bool mark = part == staging_.largest_piece();
        const Status status =
            enqueue_copy(FIKIT_COPY_TO_DEVICE, stream, 0, to, piece.offset, part, mark, step);
        if (status != status::success) {
            staging_.release(piece);
            return status;
        }
        staging_.release_after(piece, stream, step);
        source += part;
        to += part;
        bytes -= part;
    }
    return status::success;
}

Status Producer::copy_to_host(uint32_t stream, void* to, uint64_t from, uint64_t bytes, bool* pinned) {
    if (stream >= FIKIT_MAX_STREAMS) return status::invalid_handle;
    uint64_t offset = 0;
    const uint32_t buffer = find_host_buffer(to, bytes, offset);
    if (pinned != nullptr) *pinned = buffer != 0;
    if (buffer != 0) {
        uint64_t step;
        return enqueue_copy(FIKIT_COPY_TO_HOST, stream, buffer, from, offset, bytes, false, step);
    }
    if (bytes >= CopyThreads::worthwhile_bytes) copy_threads_.start(CopyThreads::suitable_threads());

    struct OnItsWay {
        Piece piece;
        uint64_t step;
        uint64_t bytes;
    };
    constexpr uint32_t ahead = 6;  // pieces on their way while one is read
    OnItsWay window[ahead];
    uint32_t first = 0;
    uint32_t count = 0;
    auto* destination = static_cast<uint8_t*>(to);
    Status status = status::success;
    while (bytes != 0 || count != 0) {
        if (bytes != 0 && count < ahead) {
            OnItsWay& next = window[(first + count) % ahead];
            // With pieces of its own to go on with, a copy does not wait for more.
            if (count != 0 ? staging_.acquire(bytes, stream, next.piece)
                           : (status = acquire_piece(bytes, stream, next.piece)) == status::success) {
                next.bytes = bytes < next.piece.bytes ? bytes : next.piece.bytes;
                status = enqueue_copy(FIKIT_COPY_TO_HOST, stream, 0, from, next.piece.offset, next.bytes,
                                      true, next.step);
                if (status != status::success) {
                    staging_.release(next.piece);
                    break;
                }
                from += next.bytes;
                bytes -= next.bytes;
                ++count;
                continue;
            }
            if (status != status::success) break;
        }
        const OnItsWay& ready = window[first];
        status = wait_for(stream, ready.step, forever);
        if (status != status::success) break;
        copy_threads_.copy(destination, channel_.staging() + ready.piece.offset, ready.bytes);
        staging_.release(ready.piece);
        destination += ready.bytes;
        first = (first + 1) % ahead;
        --count;
    }
    for (; count != 0; --count, first = (first + 1) % ahead)
        staging_.release_after(window[first].piece, stream, window[first].step);
    return status != status::success ? status : channel_.take_deferred();
}

}  // namespace fikit
