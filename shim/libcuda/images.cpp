#include "images.hpp"

#include <elf.h>
#include <string.h>

#include <algorithm>

#include "cubin_sections.hpp"

namespace fikit::shim {
namespace {

constexpr uint32_t wrapper_magic = 0x466243b1;
constexpr uint32_t fatbin_magic = 0xba55ed50;
constexpr uint32_t elf_magic = 0x464c457f;

struct Wrapper {
    uint32_t magic, version;
    const void* data;
    const void* const* others;  // version 2: what `data` was linked from
};

struct Fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t content_bytes;
};

struct Entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t unknown[3];
    uint32_t target;  // 90: compute capability 9.0
};
constexpr uint16_t kind_ptx = 1, kind_machine_code = 2;

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
        if (!is_empty_section(section.sh_type)) end = std::max(end, section.sh_offset + section.sh_size);
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
    if (magic == wrapper_magic) return false;
    image = {.data = passed};
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

bool find_wrapped(const void* passed, Image& image) {
    if (word_at(passed) != wrapper_magic) return find_image(passed, image);
    Wrapper wrapper;
    memcpy(&wrapper, passed, sizeof wrapper);
    if (wrapper.data == nullptr || !find_image(wrapper.data, image)) return false;
    image.unlinked = wrapper.version == 2 ? wrapper.others : nullptr;
    return true;
}

UsefulParts::UsefulParts(const Image& image, int major) {
    any_ = choose(image, major);
    if (any_) return;
    parts_[0] = {image.data, image.bytes};
    count_ = 1;
}

bool UsefulParts::choose(const Image& image, int major) {
    Fatbin fatbin;
    static_assert(sizeof fatbin == sizeof header_);
    if (image.bytes < sizeof fatbin || word_at(image.data) != fatbin_magic) return false;
    memcpy(&fatbin, image.data, sizeof fatbin);
    if (fatbin.header_bytes != sizeof fatbin) return false;
    const auto* base = static_cast<const uint8_t*>(image.data);
    parts_[0] = {header_, sizeof header_};
    count_ = 1;
    uint64_t kept = 0;
    bool useful = false;
    for (uint64_t at = sizeof fatbin; at < image.bytes;) {
        Entry entry;
        if (image.bytes - at < sizeof entry) return false;
        memcpy(&entry, base + at, sizeof entry);
        const uint64_t left = image.bytes - at;
        if (entry.header_bytes < sizeof entry || entry.header_bytes > left ||
            entry.bytes > left - entry.header_bytes)
            return false;
        const uint64_t bytes = entry.header_bytes + entry.bytes;
        const bool runs = static_cast<int>(entry.target / 10) == major;
        if (entry.kind != kind_machine_code || runs) {
            useful = useful || entry.kind == kind_machine_code || entry.kind == kind_ptx;
            Part& last = parts_[count_ - 1];
            if (count_ > 1 && static_cast<const uint8_t*>(last.data) + last.bytes == base + at) {
                last.bytes += bytes;
            } else {
                if (count_ == most) return false;
                parts_[count_++] = {base + at, bytes};
            }
            kept += bytes;
        }
        at += bytes;
    }
    fatbin.content_bytes = kept;
    memcpy(header_, &fatbin, sizeof fatbin);
    return useful;
}

uint64_t UsefulParts::bytes() const {
    uint64_t sum = 0;
    for (const Part& part : parts()) sum += part.bytes;
    return sum;
}

}  // namespace fikit::shim
