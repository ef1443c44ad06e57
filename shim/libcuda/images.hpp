// Module images as programs pass them: an address without a length. What the headers say is believed only as
// far as it makes sense; the executor validates the copy again.
#pragma once

#include <cstdint>

namespace fikit::shim {

struct Image {
    const void* data = nullptr;
    uint64_t bytes = 0;
};

// The image behind what a program hands to cuModuleLoadData or cuLibraryLoadData: PTX text, a cubin, a
// fatbin, or the wrapper that the compiler puts around one. False: none of these.
bool find_image(const void* passed, Image& image);

}  // namespace fikit::shim
