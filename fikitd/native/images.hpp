// What a tenant gives for a module image, looked at before the driver sees it.
#pragma once

#include <cstdint>
#include <vector>

namespace fikit {

// An image the driver may read: its own headers must not lead it beyond its end. nullptr, or what is wrong.
// `image` ends with a NUL that is no part of it.
const char* check_image(const std::vector<uint8_t>& image);

// The same of what the linker may be given besides: object files of the host's compiler, and archives of
// those.
const char* check_linked(const std::vector<uint8_t>& image);

}  // namespace fikit
