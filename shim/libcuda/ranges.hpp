// Which addresses are whose: device memory, pinned and registered host memory, reserved addresses. Sorted, in
// pieces, so that a program with a hundred thousand allocations moves a few hundred at most to make another.
#pragma once

#include <pthread.h>

#include <cstdint>

#include "cuda_interface.hpp"

namespace fikit {
class ManagedAdvice;
}

namespace fikit::shim {

struct Context;
struct GraphMemory;
struct Pool;

struct Range {
    enum class Kind : uint8_t { device, variable, pinned, managed, registered, mapped, imported };
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t device_address = 0;
    uint64_t id = 0;  // unique in the process
    uint32_t handle = 0;
    uint32_t flags = 0;
    Kind kind = Kind::device;
    uint8_t device = 0;               // whose session has it
    bool synchronous = false;         // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, which is heeded in any case
    uint32_t place = 0;               // in the pool's room, or among PinnedChunks, in units of these
    Pool* pool = nullptr;             // that device memory came from, here or there; nullptr: none
    GraphMemory* graph = nullptr;     // that it is; nullptr: no graph's
    Context* context = nullptr;       // with which it goes; nullptr: none
    ManagedAdvice* advice = nullptr;  // of managed memory

    // Managed memory lies on the host, and is what device memory is to all calls.
    bool on_device() const { return kind != Kind::pinned && kind != Kind::registered; }
    bool on_host() const { return kind == Kind::pinned || kind == Kind::managed; }
    bool read_only() const { return kind == Kind::registered && (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0; }
    // A host pool's: nowhere taken for a device's, whoever may reach it.
    bool host_pooled() const { return kind == Kind::pinned && pool != nullptr; }
};

class Ranges {
  public:
    // False: no memory for it. A range at the same address is replaced.
    bool add(Range range);
    // The range that begins at `address`, which is forgotten; false when there is none of the kind.
    bool take(uint64_t address, Range::Kind kind, Range& range);
    // The first of the kind that begins in [begin, end), likewise.
    bool take_first(uint64_t begin, uint64_t end, Range::Kind kind, Range& range);
    bool find(uint64_t address, Range& range) const { return find(address, 0, range) != Held::nowhere; }
    // And how much of so many bytes lies in the range, or in what a program has mapped behind it.
    enum class Held : uint8_t { nowhere, partly, wholly };
    Held find(uint64_t address, uint64_t bytes, Range& range) const;
    // Is any of that kind the device's memory of that handle?
    bool any_has(Range::Kind kind, uint8_t device, uint32_t handle) const;
    // The first that these bytes share some with; false when there is none.
    bool meet(uint64_t address, uint64_t bytes, Range& range) const;
    // Any one that goes with the context, and is forgotten; false when there is none.
    bool take_of(const Context& context, Range& range);

  private:
    static constexpr uint32_t most = 256;  // in a piece, which is never empty
    struct Piece {
        uint32_t count;
        Range ranges[most];
    };
    struct Place {
        uint32_t piece, at;
    };

    Range* range(Place place) const;  // nullptr: behind the last
    Place next(Place place) const;
    // The last range that begins there or before, and its place; nullptr: none does.
    Range* until(uint64_t address, Place& place) const;
    Place from(uint64_t address) const;  // of the first that begins there or beyond
    bool insert(Place place, const Range& range);
    void remove(Place place, Range& range);
    bool add_piece(uint32_t at, const Range* first, uint32_t count);
    bool mapped(uint64_t address, uint64_t bytes) const;  // from there on

    mutable pthread_rwlock_t lock_ = PTHREAD_RWLOCK_INITIALIZER;
    Piece** pieces_ = nullptr;
    uint32_t count_ = 0, room_ = 0;
    uint64_t ids_ = 0;
};

extern Ranges ranges;

// The memory of a context that ends.
void free_memory_of(const Context& context);

}  // namespace fikit::shim
