// Pools of stream-ordered memory, and those of other processes.
#pragma once

#include <cstdint>

#include "../pool_room.hpp"
#include "objects.hpp"

namespace fikit::shim {

inline constexpr uint32_t pool_magic = 0x46504f4f;

struct PoolImport;
struct Range;

// Calls that have waited for a context, a stream or an event. After one a pool keeps no more than its
// threshold; it looks for that when it is next asked.
inline uint64_t ended_waits = 0;
inline CUresult end_wait(CUresult result) {
    if (result == CUDA_SUCCESS) __atomic_fetch_add(&ended_waits, 1u, __ATOMIC_RELAXED);
    return result;
}

// Memory of all pools comes from the same place; a pool remembers what it was told, and counts what it has
// given.
struct Pool {
    uint32_t magic = pool_magic;
    int device = 0;
    uint64_t attribute[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD + 1] = {0, 1, 1, 1};  // by id; reuse is allowed
    bool on_host = false;                                                      // pinned
    bool managed = false;                                                      // on the host, too
    bool let_in[most_gpus + 1] = {};                            // who may reach it, by place, beside its own
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_NONE, {0}};  // where managed memory would rather be
    bool shareable = false;                                     // made for other processes to import
    uint32_t number = 0;                 // of one that was exported, as its process counts; 0: it was not
    const PoolImport* import = nullptr;  // of another process' pool: its memory is opened, never allocated
    uint32_t opened = 0;                 // so many pieces of that are
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // of what follows
    PoolRoom room{};
    uint64_t seen_waits = 0;

    // A device's number, or `host`.
    static constexpr int host = most_gpus;
    int place() const { return on_host ? host : device; }
    bool lets_in(int who) const { return load_relaxed(let_in[who]) || (!managed && who == place()); }
    // Whether kernels may be given its memory.
    bool reachable() const {
        bool found = !on_host || managed;
        for (int who = 0; who < host; ++who) found = found || lets_in(who);
        return found;
    }

    // The room, as it is by now; under its lock.
    template <class Look>
    auto with_room(Look look) {
        const Locked lock(mutex);
        const uint64_t waits = load_relaxed(ended_waits);
        if (waits != seen_waits) room.trim(attribute[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD]);
        seen_waits = waits;
        return look(room);
    }
    // False: it would be more than the pool may have. `place` is in units.
    bool give(uint64_t bytes, uint32_t& place) {
        return with_room([&](PoolRoom& its) {
            uint64_t begin = 0;
            if (!its.add(bytes, begin)) return false;
            place = static_cast<uint32_t>(begin / PoolRoom::unit);
            if (begin == place * PoolRoom::unit) return true;
            its.undo(begin);
            return false;
        });
    }
    void take_back(uint32_t place) {
        change([&](PoolRoom& its) { its.remove(place * PoolRoom::unit); });
    }
    // Of what was given, but is not to be had.
    void give_up(uint32_t place) {
        change([&](PoolRoom& its) { its.undo(place * PoolRoom::unit); });
    }
    void destroy() {
        change([&](PoolRoom&) { wipe(magic); });
    }

  private:
    // A pool that was destroyed ends with the last of its memory.
    template <class Change>
    void change(Change to) {
        const bool last = with_room([&](PoolRoom& its) {
            to(its);
            return its.used() == 0 && magic != pool_magic;
        });
        if (!last) return;
        room.clear();
        delete this;
    }
};

inline Pool* pool_of(CUmemoryPool handle) { return object_of<Pool>(handle, pool_magic); }

// Takes away an imported pool's handle, once it was destroyed as often as imported; not while memory of it is
// open.
CUresult destroy_import(Pool& pool);
// Memory of an imported pool's, which is no more: once all work of the device's is done, or what was issued
// to the stream.
CUresult close_imported(const Range& range);
CUresult close_imported(const Range& range, uint32_t stream);

}  // namespace fikit::shim
