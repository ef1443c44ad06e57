// What a program hands to graphs to keep alive: counted references, and a function for when there are none.
#pragma once

#include <cstdint>

#include "objects.hpp"

namespace fikit::shim {

inline constexpr uint32_t user_object_magic = 0x4655534f;

struct UserObject {
    uint32_t magic = user_object_magic;
    unsigned references;
    CUhostFn destroy;
    void* value;

    void retain(unsigned count) { __atomic_fetch_add(&references, count, __ATOMIC_RELAXED); }
    // With the last reference it ends, in this thread. False: there are not so many.
    bool release(unsigned count);
};

inline UserObject* user_object_of(CUuserObject handle) {
    return object_of<UserObject>(handle, user_object_magic);
}

// A graph's references to one of them.
struct Kept {
    UserObject* object;
    unsigned count;
    bool operator!=(const Kept& other) const { return object != other.object; }
};

}  // namespace fikit::shim
