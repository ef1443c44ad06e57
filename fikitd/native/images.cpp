#include "images.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace fikit {

namespace {

using Bytes = std::span<const uint8_t>;

uint64_t number(Bytes from, uint64_t offset, size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, from.data() + offset, bytes);
    return value;
}

bool within(uint64_t offset, uint64_t bytes, uint64_t size) {
    return offset <= size && bytes <= size - offset;
}

constexpr uint64_t elf_magic = 0x464c457f, fatbin_magic = 0xba55ed50;

const char* check_elf(Bytes image) {
    const auto at = [&](uint64_t offset, size_t bytes) { return number(image, offset, bytes); };
    const uint64_t size = image.size();
    if (size < 64) return "ELF header beyond its end";
    const uint64_t sections = at(40, 8), segments = at(32, 8);
    const uint64_t section_bytes = at(58, 2) * at(60, 2), segment_bytes = at(54, 2) * at(56, 2);
    if (at(4, 1) != 2) return "not a 64-bit ELF image";
    if (!within(sections, section_bytes, size)) return "ELF section table beyond its end";
    if (!within(segments, segment_bytes, size)) return "ELF program headers beyond its end";
    for (uint64_t header = sections; at(58, 2) >= 64 && header + 64 <= sections + section_bytes;
         header += at(58, 2)) {
        if (at(header + 4, 4) != 8 && !within(at(header + 24, 8), at(header + 32, 8), size))
            return "ELF section beyond its end";
    }
    return nullptr;
}

// One image of a fat binary, from its header on. The layout is nvcc's: some 28,000 of NVIDIA's libraries keep
// to what is asked here.
const char* check_entry(Bytes entry, uint64_t& size) {
    constexpr uint64_t least = 64, most_unpacked = uint64_t{1} << 30;
    constexpr uint64_t ptx = 1, lz4 = 0x2000, zstd = 0x8000;
    if (entry.size() < least) return "fatbin entry beyond its end";
    const auto at = [&](uint64_t offset, size_t bytes) { return number(entry, offset, bytes); };
    const uint64_t header = at(4, 4), content = at(8, 8), packed = at(16, 4), options = at(20, 4);
    if (header < least || !within(header, content, entry.size())) return "fatbin entry beyond its end";
    if (!within(at(32, 4), at(36, 4), header)) return "name of a fatbin entry beyond its header";
    if (options != 0 && (!within(options, 8, header) || !within(at(options, 4), at(options + 4, 4), header)))
        return "options of a fatbin entry beyond its header";
    if (packed > content) return "packed content of a fatbin entry beyond its end";
    if (options == 0 && at(0, 2) == ptx)
        return "fatbin entry of PTX without options";  // the linker reads them
    size = header + content;
    if ((at(40, 8) & (lz4 | zstd)) != 0) {
        if (packed == 0 || at(56, 8) == 0) return "packed fatbin entry without content";
        return at(56, 8) <= most_unpacked ? nullptr : "fatbin entry of more than 1 GiB";
    }
    const bool elf = content >= sizeof(uint32_t) && at(header, 4) == elf_magic;
    return elf ? check_elf(entry.subspan(header, content)) : nullptr;
}

const char* check_fatbin(Bytes image) {
    const uint64_t header = number(image, 6, 2), content = number(image, 8, 8);
    if (!within(header, content, image.size())) return "fatbin beyond its end";
    for (Bytes left = image.subspan(header, content); !left.empty();) {
        uint64_t size = 0;
        if (const char* wrong = check_entry(left, size); wrong != nullptr) return wrong;
        left = left.subspan(size);
    }
    return nullptr;
}

}  // namespace

const char* check_image(const std::vector<uint8_t>& image) {
    const Bytes given = Bytes(image).first(image.size() - 1);  // a NUL was added
    if (given.size() >= 64 && number(given, 0, 4) == elf_magic) return check_elf(given);
    if (given.size() >= 16 && number(given, 0, 4) == fatbin_magic) return check_fatbin(given);
    for (size_t i = 0; i < std::min<size_t>(given.size(), 4096); ++i)
        if (given[i] != 0)
            return std::strchr("./ \t\r\n", given[i]) != nullptr ? nullptr : "neither PTX, ELF nor fatbin";
    return "neither PTX, ELF nor fatbin";
}

}  // namespace fikit
