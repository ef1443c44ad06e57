// Who may use which piece of the staging area, through which pageable memory travels.
//
// Three classes of slots of fixed size. A slot that a copy to the device used is free again once the mark of
// its stream has reached the copy's step, in whatever order streams get there: work that is stuck on one
// stream takes no room for ever from the others. A stream that already holds large slots cannot take the
// last quarter of them, for the same reason. Callers wait by asking again.
#pragma once

#include <pthread.h>

#include <cstdint>

#include "channel.hpp"

namespace fikit {

struct Piece {
    uint32_t size_class = 0;
    uint32_t slot = 0;
    uint32_t slots = 1;   // more than one only for a run
    uint64_t offset = 0;  // in the staging area
    uint64_t bytes = 0;   // room
};

class Staging {
  public:
    explicit Staging(Channel& channel) : channel_(channel) {}
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    ~Staging();

    Status prepare();

    // A piece for up to `bytes` (it may be smaller than that, never more than the largest slot).
    bool acquire(uint64_t bytes, uint32_t stream, Piece& piece);
    // Contiguous room for all of `bytes`.
    bool acquire_run(uint64_t bytes, Piece& piece);
    // The piece is free once `stream` has reached `step`.
    void release_after(const Piece& piece, uint32_t stream, uint64_t step);
    void release(const Piece& piece);
    // A stream whose progress would free a piece: its mark is worth asking for.
    bool oldest_user(uint32_t& stream, uint64_t& step);

    uint64_t largest_piece() const { return classes_[large].slot_bytes; }

  private:
    enum : uint32_t { small, medium, large, class_count };
    enum State : uint32_t { unused, held, in_flight };
    struct Slot {
        uint64_t step;
        uint32_t stream;
        State state;
    };
    struct Class {
        uint64_t offset;
        uint64_t slot_bytes;
        uint32_t slots;
        uint32_t cursor;
        Slot* table;
    };

    bool available(Slot& slot) const;
    bool take(uint32_t size_class, uint32_t stream, Piece& piece);
    bool may_take_large(uint32_t stream) const;

    Channel& channel_;
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    Class classes_[class_count] = {};
};

}  // namespace fikit
