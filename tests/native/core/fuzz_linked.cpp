// The fuzz target of what looks images and object files through before the driver gets them.
#include <cstdint>
#include <vector>

#include "images.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    std::vector<std::uint8_t> image(data, data + size);
    image.push_back(0);
    image.shrink_to_fit();
    if (fikit::check_image(image) == nullptr) fikit::variable_bytes(image, 9);
    fikit::check_linked(image);
    return 0;
}
