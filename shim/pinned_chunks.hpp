// Which pinned memory lies together with an H200's driver (580): less than 2 MiB comes from a chunk of so
// much, the first of the context's with room for it, write-combined memory from others than the rest. Whether
// it is portable is told of all in a chunk alike, as of the one that the chunk was made for. For whoever
// answers in the driver's place, and has a lock for it: the memory itself comes from elsewhere.
// tests/integration/shim/pinned_rules.txt is what one answered.
#pragma once

#include <stdint.h>

#include "cuda_interface.hpp"  // of whoever includes this
#include "row.hpp"

namespace fikit {

class PinnedChunks {
  public:
    static constexpr uint64_t unit = 512;
    // What is told of memory that was asked for with `flags`. `place` is what it is removed by; 0: it is
    // alone.
    unsigned add(const void* context, uint64_t bytes, unsigned flags, uint64_t& place) {
        place = 0;
        if (bytes >= chunk || !pieces_.reserve(1)) return flags;
        Piece made = {0, (bytes + unit - 1) / unit * unit, context, flags};
        uint64_t at = 0;
        if (!find_room(made, at)) at = make_chunk(made);
        pieces_.insert(at, made);
        place = made.begin;
        return made.flags;
    }
    void remove(uint64_t place) {
        const uint64_t at = pieces_.from(place);
        if (at < pieces_.size() && pieces_[at].begin == place) pieces_.remove(at);
    }
    void clear() { pieces_.clear(); }

  private:
    static constexpr uint64_t chunk = uint64_t{2} << 20;
    struct Piece {
        uint64_t begin, taken;
        const void* context;
        unsigned flags;

        uint64_t end() const { return begin + taken; }
        uint64_t number() const { return begin / chunk; }
        bool goes_with(const Piece& other) const {
            return context == other.context && ((flags ^ other.flags) & CU_MEMHOSTALLOC_WRITECOMBINED) == 0;
        }
    };

    // In a chunk that there is; `at` is where it belongs then.
    bool find_room(Piece& made, uint64_t& at) const {
        uint64_t begin = 0;  // of what is free before the piece
        for (uint64_t each = 0; each < pieces_.size(); ++each) {
            const Piece& piece = pieces_[each];
            if (begin < piece.number() * chunk) begin = piece.number() * chunk;
            const bool last = each + 1 == pieces_.size() || pieces_[each + 1].number() != piece.number();
            const bool before = piece.begin - begin >= made.taken;
            const bool behind = last && (piece.number() + 1) * chunk - piece.end() >= made.taken;
            if ((before || behind) && piece.goes_with(made)) {
                made.begin = before ? begin : piece.end();
                made.flags = (made.flags & ~portable) | (piece.flags & portable);
                at = before ? each : each + 1;
                return true;
            }
            begin = piece.end();
        }
        return false;
    }
    // The first that there is not, but none at 0.
    uint64_t make_chunk(Piece& made) const {
        uint64_t number = 1, at = 0;
        for (; at < pieces_.size() && pieces_[at].number() <= number; ++at) number = pieces_[at].number() + 1;
        made.begin = number * chunk;
        return at;
    }

    static constexpr unsigned portable = CU_MEMHOSTALLOC_PORTABLE;
    Row<Piece> pieces_;  // of all chunks, sorted
};

}  // namespace fikit
