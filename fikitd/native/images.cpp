#include "images.hpp"

#include <algorithm>
#include <cstring>

namespace fikit {

const char* check_image(const std::vector<uint8_t>& image) {
    const auto at = [&](size_t offset, size_t bytes) {
        uint64_t value = 0;
        std::memcpy(&value, image.data() + offset, bytes);
        return value;
    };
    const size_t size = image.size() - 1;  // a NUL was added
    if (size >= 64 && at(0, 4) == 0x464c457f) {
        const uint64_t sections = at(40, 8), segments = at(32, 8);
        const uint64_t section_bytes = at(58, 2) * at(60, 2), segment_bytes = at(54, 2) * at(56, 2);
        if (at(4, 1) != 2) return "not a 64-bit ELF image";
        if (sections > size || section_bytes > size - sections) return "ELF section table beyond its end";
        if (segments > size || segment_bytes > size - segments) return "ELF program headers beyond its end";
        for (uint64_t header = sections; at(58, 2) >= 64 && header + 64 <= sections + section_bytes;
             header += at(58, 2)) {
            const uint64_t offset = at(header + 24, 8), bytes = at(header + 32, 8);
            if (at(header + 4, 4) != 8 && (offset > size || bytes > size - offset))
                return "ELF section beyond its end";
        }
        return nullptr;
    }
    if (size >= 16 && at(0, 4) == 0xba55ed50) {
        const uint64_t header = at(6, 2), content = at(8, 8);
        return header <= size && content <= size - header ? nullptr : "fatbin beyond its end";
    }
    for (size_t i = 0; i < std::min<size_t>(size, 4096); ++i)
        if (image[i] != 0)
            return std::strchr("./ \t\r\n", image[i]) != nullptr ? nullptr : "neither PTX, ELF nor fatbin";
    return "neither PTX, ELF nor fatbin";
}

}  // namespace fikit
