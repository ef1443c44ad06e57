// Pools of stream-ordered memory, and those of other processes.
#pragma once

#include <cstdint>

#include "objects.hpp"

namespace fikit::shim {

inline constexpr uint32_t pool_magic = 0x46504f4f;

struct PoolImport;
struct Range;

// Memory of all pools comes from the same place; a pool remembers what it was told and what it has given.
struct Pool {
    uint32_t magic = pool_magic;
    int device = 0;
    uint64_t attribute[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD + 1] = {0, 1, 1, 1};  // by id; reuse is allowed
    bool on_host = false;                                                      // pinned
    bool managed = false;                                                      // on the host, too
    bool let_in[most_gpus + 1] = {};                            // who may reach it, by place, beside its own
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_NONE, {0}};  // where managed memory would rather be
    uint64_t used_bytes = 0, most_bytes = 0;
    uint64_t limit_bytes = UINT64_MAX;
    bool shareable = false;              // made for other processes to import
    uint32_t number = 0;                 // of one that was exported, as its process counts; 0: it was not
    const PoolImport* import = nullptr;  // of another process' pool: its memory is opened, never allocated

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

    // False: it would be more than the pool may have.
    bool give(uint64_t bytes) {
        const uint64_t now = __atomic_add_fetch(&used_bytes, bytes, __ATOMIC_RELAXED);
        if (now > limit_bytes || now < bytes) {
            take_back(bytes);
            return false;
        }
        uint64_t before = load_relaxed(most_bytes);
        while (before < now && !__atomic_compare_exchange_n(&most_bytes, &before, now, false,
                                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
        return true;
    }
    // A pool that was destroyed ends with the last of its memory.
    void take_back(uint64_t bytes) {
        const uint64_t left = __atomic_sub_fetch(&used_bytes, bytes, __ATOMIC_ACQ_REL);
        if (left == 0 && magic != pool_magic) delete this;
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
