// Which of the GPUs a program is to see: CUDA_VISIBLE_DEVICES (CUDA C++ Programming Guide, "Environment
// Variables"), whose numbers count those that it is given. What is no number and no UUID is read as the
// driver 580 reads it, on two H100s.
#pragma once

#include <stdlib.h>
#include <string.h>
#include <strings.h>

namespace fikit::shim {

struct VisibleDevices {
    const char* const* uuids;
    unsigned count;

    // The GPU that an entry means; `count`: none.
    unsigned by_uuid(const char* entry, size_t length) const {
        constexpr size_t shortest = 5;  // one digit
        unsigned found = count;
        for (unsigned i = 0; i < count && length >= shortest && strncmp(entry, "GPU-", 4) == 0; ++i) {
            const size_t whole = strlen(uuids[i]);  // what comes behind that is no matter
            if (strncasecmp(uuids[i], entry, length < whole ? length : whole) != 0) continue;
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
        const bool uuid = strncmp(wished, "GPU-", 4) == 0;
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
