// How a memory pool of an H200's (driver 580) lays out what it gives. Its addresses are one endless row of
// chunks. Memory is under those that something lies in, and under idle ones for as long as the pool keeps
// them; a chunk that is idle lends its memory to another place before the pool takes more. For whoever
// answers in the driver's place, and has a lock for it: this only counts, the memory itself comes from
// elsewhere. tests/integration/shim/pool_rules.txt is what one answered.
#pragma once

#include <stdint.h>

#include "row.hpp"

namespace fikit {

class PoolRoom {
  public:
    static constexpr uint64_t chunk = uint64_t{32} << 20;
    static constexpr uint64_t largest = uint64_t{1} << 40;
    static constexpr uint64_t unit = 512;

    // CUmemPoolProps::maxSize, of whole chunks; 0: none.
    void limit(uint64_t bytes) { most_chunks_ = bytes / chunk + (bytes % chunk != 0 ? 1 : 0); }

    // `place` is what the memory is removed by. False: the pool may not have more, though it may have taken
    // idle chunks for it.
    bool add(uint64_t bytes, uint64_t& place) {
        if (bytes == 0 || bytes > largest) return false;
        const uint64_t taken = (bytes + unit - 1) / unit * unit;
        // Between free pieces there is always one that was given, so of those there are at least as many.
        const uint64_t most_free = given_.size() + 1;
        if (!given_.reserve(1) || !free_.reserve(most_free - free_.size()) ||
            !chunks_.reserve(taken / chunk + 2))
            return false;
        before_ = reserved();
        const uint64_t at = choose(taken);
        place = at < free_.size() ? free_[at].begin : end_;
        if (!back(place, taken)) return false;
        take(at, taken);
        given_.insert(given_.from(place), {place, taken, bytes});
        used_ += bytes;
        if (used_high_ < used_) used_high_ = used_;
        return true;
    }

    void remove(uint64_t place) {
        const uint64_t at = given_.from(place);
        if (at == given_.size() || given_[at].begin != place) return;
        const uint64_t taken = given_[at].taken;
        used_ -= given_[at].bytes;
        given_.remove(at);
        let_go(place, taken);
        put_back({place, taken, ++changes_});
    }

    // Removes what was added last, where its memory is not to be had: the pool has not grown for it.
    void undo(uint64_t place) {
        remove(place);
        trim(before_);
    }

    // Gives back idle chunks while more than so many bytes are kept.
    void trim(uint64_t keep) {
        while (idle_ != 0 && reserved() > keep) drop_idle();
    }

    uint64_t used() const { return used_; }
    uint64_t used_high() const { return used_high_; }
    uint64_t reserved() const { return chunks_.size() * chunk; }
    uint64_t reserved_high() const { return reserved_high_; }
    void forget_used_high() { used_high_ = used_; }
    void forget_reserved_high() { reserved_high_ = reserved(); }

    void clear() {
        given_.clear();
        free_.clear();
        chunks_.clear();
    }

  private:
    struct Given {
        uint64_t begin, taken;
        uint64_t bytes;  // asked for
    };
    struct Free {
        uint64_t begin, taken;
        uint64_t changed;  // when: of two as large the older is taken
    };
    struct Chunk {
        uint64_t begin;
        uint64_t users;
    };

    static uint64_t chunk_of(uint64_t address) { return address / chunk * chunk; }

    // Whether memory is under all of it.
    bool backed(const Free& piece) const {
        const uint64_t first = chunk_of(piece.begin), last = chunk_of(piece.begin + piece.taken - 1);
        const uint64_t at = chunks_.from(first) + (last - first) / chunk;
        return at < chunks_.size() && chunks_[at].begin == last;
    }

    // The smallest free piece that is large enough, first of those with memory under all of them; what is
    // behind the last piece if there is none.
    uint64_t choose(uint64_t taken) const {
        uint64_t best = free_.size();
        bool best_backed = false;
        for (uint64_t at = 0; at < free_.size(); ++at) {
            const Free& piece = free_[at];
            if (piece.taken < taken) continue;
            const bool later = best < free_.size() && !before(piece, free_[best]);
            if (later && best_backed) continue;
            const bool is_backed = backed(piece);
            if (is_backed == best_backed ? later : best_backed) continue;
            best = at;
            best_backed = is_backed;
        }
        return best;
    }
    static bool before(const Free& one, const Free& other) {
        return one.taken != other.taken ? one.taken < other.taken : one.changed < other.changed;
    }

    // Puts memory under a range, which then uses it.
    bool back(uint64_t begin, uint64_t taken) {
        each_chunk(begin, taken, [&](Chunk& present) { idle_ -= present.users++ == 0 ? 1 : 0; });
        for (uint64_t wanted = chunk_of(begin); wanted < begin + taken; wanted += chunk) {
            const uint64_t at = chunks_.from(wanted);
            if (at < chunks_.size() && chunks_[at].begin == wanted) continue;
            if (idle_ != 0) {
                drop_idle();
            } else if (most_chunks_ != 0 && chunks_.size() >= most_chunks_) {
                let_go(begin, taken);
                return false;
            }
            chunks_.insert(chunks_.from(wanted), {wanted, 1});
            if (reserved_high_ < reserved()) reserved_high_ = reserved();
        }
        return true;
    }
    void let_go(uint64_t begin, uint64_t taken) {
        each_chunk(begin, taken, [&](Chunk& present) { idle_ += --present.users == 0 ? 1 : 0; });
    }
    template <class Visit>
    void each_chunk(uint64_t begin, uint64_t taken, Visit visit) {
        for (uint64_t at = chunks_.from(chunk_of(begin)); at < chunks_.size(); ++at) {
            if (chunks_[at].begin >= begin + taken) break;
            visit(chunks_[at]);
        }
    }
    void drop_idle() {
        uint64_t at = chunks_.size() - 1;
        while (chunks_[at].users != 0) --at;
        chunks_.remove(at);
        --idle_;
    }

    // The front of a free piece, or what is behind the last.
    void take(uint64_t at, uint64_t taken) {
        ++changes_;
        if (at == free_.size())
            end_ += taken;
        else if (free_[at].taken == taken)
            free_.remove(at);
        else
            free_[at] = {free_[at].begin + taken, free_[at].taken - taken, changes_};
    }
    // Together with those that it lies between.
    void put_back(Free piece) {
        uint64_t at = free_.from(piece.begin);
        if (at < free_.size() && piece.begin + piece.taken == free_[at].begin) {
            piece.taken += free_[at].taken;
            free_.remove(at);
        }
        if (at > 0 && free_[at - 1].begin + free_[at - 1].taken == piece.begin) {
            piece = {free_[at - 1].begin, free_[at - 1].taken + piece.taken, piece.changed};
            free_.remove(--at);
        }
        if (piece.begin + piece.taken == end_)
            end_ = piece.begin;
        else
            free_.insert(at, piece);
    }

    Row<Given> given_;   // side by side with the free ones up to end_
    Row<Free> free_;     // no two beside each other
    Row<Chunk> chunks_;  // with memory under them
    uint64_t end_ = 0, idle_ = 0, most_chunks_ = 0, changes_ = 0;
    uint64_t used_ = 0, used_high_ = 0, reserved_high_ = 0;
    uint64_t before_ = 0;  // reserved, when something was last added
};

}  // namespace fikit
