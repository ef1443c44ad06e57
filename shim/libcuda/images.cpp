#include "images.hpp"

#include <elf.h>
#include <string.h>

#include <algorithm>

#include "cubin_sections.hpp"
#include "fatbin_entries.hpp"

namespace fikit::shim {
namespace {

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
    if (magic == fatbin::wrapper_magic) return false;
    image = {.data = passed};
    if (magic == fatbin::magic) {
        fatbin::Header header;
        memcpy(&header, passed, sizeof header);
        image.bytes = header.header_bytes + header.bytes;
    } else if (memcmp(passed, ELFMAG, SELFMAG) == 0) {
        image.bytes = elf_bytes(passed);
    } else {
        image.bytes = strlen(static_cast<const char*>(passed)) + 1;
    }
    return image.bytes != 0;
}

bool find_wrapped(const void* passed, Image& image) {
    if (word_at(passed) != fatbin::wrapper_magic) return find_image(passed, image);
    fatbin::Wrapper wrapper;
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
    fatbin::Header header;
    static_assert(sizeof header == sizeof header_);
    parts_[0] = {header_, sizeof header_};
    count_ = 1;
    uint64_t kept = 0;
    bool useful = false;
    const auto keep = [&](const fatbin::Entry& entry, const uint8_t* begin, const uint8_t*) {
        if (!entry.useful(major)) return true;
        useful = useful || entry.kind == fatbin::kind_machine_code || entry.kind == fatbin::kind_ptx;
        const uint64_t bytes = entry.header_bytes + entry.bytes;
        Part& last = parts_[count_ - 1];
        kept += bytes;
        if (count_ > 1 && static_cast<const uint8_t*>(last.data) + last.bytes == begin) {
            last.bytes += bytes;
            return true;
        }
        if (count_ == most) return false;
        parts_[count_++] = {begin, bytes};
        return true;
    };
    if (!fatbin::each_entry(image.data, image.bytes, keep)) return false;
    memcpy(&header, image.data, sizeof header);
    header.bytes = kept;
    memcpy(header_, &header, sizeof header);
    return useful;
}

uint64_t UsefulParts::bytes() const {
    uint64_t sum = 0;
    for (const Part& part : parts()) sum += part.bytes;
    return sum;
}

}  // namespace fikit::shim
