// What a tenant gives for a module image, looked at before the driver sees it.
#pragma once

#include <cstdint>
#include <vector>

namespace fikit {

// An image the driver may read: its own headers must not lead it beyond its end. nullptr, or what is wrong.
// `image` ends with a NUL that is no part of it.
const char* check_image(const std::vector<uint8_t>& image);

// How much device memory the variables of such an image take; of the parts of a fatbin, the one that has
// most. What is packed in one is unpacked if a GPU of this compute capability (its first number) may take it;
// 0: it is not, which takes time, and counts as none. UINT64_MAX: some have a size that cannot be told.
uint64_t variable_bytes(const std::vector<uint8_t>& image, int major);

// check_image() of what the linker may be given besides: object files of the host's compiler, and archives of
// those.
const char* check_linked(const std::vector<uint8_t>& image);

}  // namespace fikit
