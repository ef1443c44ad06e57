#include "images.hpp"

#include <elf.h>
#include <string.h>

#include <algorithm>

namespace fikit::shim {
namespace {

constexpr uint32_t wrapper_magic = 0x466243b1;
constexpr uint32_t fatbin_magic = 0xba55ed50;
constexpr uint32_t elf_magic = 0x464c457f;

struct Wrapper {
    uint32_t magic, version;
    const void* data;
    const void* others;  // version 2: a list of prelinked fatbins, ended by nullptr
};

struct Fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t content_bytes;
};

uint32_t word_at(const void* address) {
    uint32_t word;
    memcpy(&word, address, sizeof word);
    return word;
}

// The furthest end of anything that its headers name. Tables may come last, or first.
uint64_t elf_bytes(const void* data) {
    const auto* base = static_cast<const uint8_t*>(data);
    Elf64_Ehdr header;
    memcpy(&header, base, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64) return 0;
    uint64_t end = sizeof header;
    end = std::max(end, header.e_shoff + uint64_t{header.e_shentsize} * header.e_shnum);
    end = std::max(end, header.e_phoff + uint64_t{header.e_phentsize} * header.e_phnum);
    for (unsigned i = 0; i < header.e_shnum && header.e_shentsize >= sizeof(Elf64_Shdr); ++i) {
        Elf64_Shdr section;
        memcpy(&section, base + header.e_shoff + uint64_t{header.e_shentsize} * i, sizeof section);
        if (section.sh_type != SHT_NOBITS) end = std::max(end, section.sh_offset + section.sh_size);
    }
    for (unsigned i = 0; i < header.e_phnum && header.e_phentsize >= sizeof(Elf64_Phdr); ++i) {
        Elf64_Phdr segment;
        memcpy(&segment, base + header.e_phoff + uint64_t{header.e_phentsize} * i, sizeof segment);
        end = std::max(end, segment.p_offset + segment.p_filesz);
    }
    return end;
}

}  // namespace

bool find_image(const void* passed, Image& image) {
    const uint32_t magic = word_at(passed);
    if (magic == wrapper_magic) {
        Wrapper wrapper;
        memcpy(&wrapper, passed, sizeof wrapper);
        const void* content = wrapper.data;
        if (wrapper.version == 2 && wrapper.others != nullptr) {
            const void* first;
            memcpy(&first, wrapper.others, sizeof first);
            if (first != nullptr) content = first;
        }
        return content != nullptr && word_at(content) != wrapper_magic && find_image(content, image);
    }
    image.data = passed;
    if (magic == fatbin_magic) {
        Fatbin fatbin;
        memcpy(&fatbin, passed, sizeof fatbin);
        image.bytes = fatbin.header_bytes + fatbin.content_bytes;
    } else if (magic == elf_magic) {
        image.bytes = elf_bytes(passed);
    } else {
        image.bytes = strlen(static_cast<const char*>(passed)) + 1;
    }
    return image.bytes != 0;
}

}  // namespace fikit::shim
