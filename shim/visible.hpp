// Which of the GPUs a program is to see: CUDA_VISIBLE_DEVICES (CUDA C++ Programming Guide, "Environment
// Variables"), whose numbers count those that it is given. What is no number and no UUID is read as the
// driver 580 reads it, on two H100s and an H200.
#pragma once

#include <stdlib.h>
#include <string.h>
#include <strings.h>

namespace fikit::shim {

// CUDA_DEVICE_ORDER, with which the driver refuses to start if it is none of these. Who wrote one of them in
// small letters, or nothing, means no other, and the order of the GPUs is the daemon's.
inline bool known_order(const char* order) {
    return order == nullptr || *order == '\0' || strcasecmp(order, "FASTEST_FIRST") == 0 ||
           strcasecmp(order, "PCI_BUS_ID") == 0;
}

struct VisibleDevices {
    const char* const* uuids;
    unsigned count;

    static constexpr size_t prefix = 4;  // of a UUID
    static bool is_uuid(const char* entry) {
        return strncmp(entry, "GPU-", prefix) == 0 || strncmp(entry, "MIG-", prefix) == 0;
    }
    // The GPU that an entry means; `count`: none. The whole UUID of a GPU may follow MIG-, too.
    unsigned by_uuid(const char* entry, size_t length) const {
        if (length <= prefix || !is_uuid(entry)) return count;
        unsigned found = count;
        for (unsigned i = 0; i < count; ++i) {
            const size_t whole = strlen(uuids[i]);  // what comes behind that is no matter
            if (*entry == 'M' && length != whole) continue;
            const size_t compared = (length < whole ? length : whole) - prefix;
            if (strncasecmp(uuids[i] + prefix, entry + prefix, compared) != 0) continue;
            if (found != count) return count;  // not one alone
            found = i;
        }
        return found;
    }
    // A number may be signed, and anything may come behind it.
    unsigned by_number(const char* entry) const {
        char* end = nullptr;
        const auto number = static_cast<int>(strtol(entry, &end, 10));
        return end != entry && number >= 0 && static_cast<unsigned>(number) < count
                   ? static_cast<unsigned>(number)
                   : count;
    }
    // Their indices in order into `chosen`, which has room for `count`, and how many into `number`. `wished`:
    // numbers, or beginnings of UUIDs; nothing counts from the first on that is wrong, or is of the other
    // kind. nullptr: all. False: one is named twice.
    bool choose(const char* wished, unsigned* chosen, unsigned& number) const {
        number = 0;
        if (wished == nullptr) {
            for (; number < count; ++number) chosen[number] = number;
            return true;
        }
        const bool uuid = is_uuid(wished);
        for (bool more = true; more;) {
            const size_t length = strcspn(wished, ",");
            const unsigned gpu = uuid ? by_uuid(wished, length) : by_number(wished);
            if (gpu == count) break;
            for (unsigned i = 0; i < number; ++i)
                if (chosen[i] == gpu) return false;
            chosen[number++] = gpu;
            more = wished[length] == ',';
            wished += length + 1;
        }
        return true;
    }
};

}  // namespace fikit::shim
