// Which of the GPUs a program is to see: CUDA_VISIBLE_DEVICES (CUDA C++ Programming Guide, "Environment
// Variables"), whose numbers count those that it is given.
#pragma once

#include <string.h>
#include <strings.h>

namespace fikit::shim {

// The one GPU that an entry means; `count`: none.
inline unsigned meant(const char* entry, size_t length, const char* const* uuids, unsigned count) {
    unsigned found = count;
    if (length > 4 && strncmp(entry, "GPU-", 4) == 0) {
        for (unsigned i = 0; i < count; ++i) {
            if (strncasecmp(uuids[i], entry, length) != 0) continue;
            if (found != count) return count;  // not one alone
            found = i;
        }
        return found;
    }
    if (length == 0 || length > 3 || strspn(entry, "0123456789") < length) return count;
    found = 0;
    for (size_t i = 0; i < length; ++i) found = 10 * found + static_cast<unsigned>(entry[i] - '0');
    return found < count ? found : count;
}

// Their indices in order into `chosen`, which has room for `count`, and how many. `wished`: indices and
// beginnings of UUIDs; nothing counts from the first that is wrong on, and what is named twice shows none.
// nullptr: all.
inline unsigned visible(const char* wished, const char* const* uuids, unsigned count, unsigned* chosen) {
    unsigned number = 0;
    if (wished == nullptr) {
        for (; number < count; ++number) chosen[number] = number;
        return number;
    }
    for (bool more = true; more;) {
        const size_t length = strcspn(wished, ",");
        const unsigned gpu = meant(wished, length, uuids, count);
        if (gpu == count) break;
        for (unsigned i = 0; i < number; ++i)
            if (chosen[i] == gpu) return 0;
        chosen[number++] = gpu;
        more = wished[length] == ',';
        wished += length + 1;
    }
    return number;
}

}  // namespace fikit::shim
