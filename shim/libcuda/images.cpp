#include "images.hpp"

#include <elf.h>
#include <string.h>

#include <algorithm>

#include "cubin_sections.hpp"
#include "cuda_interface.hpp"
#include "fatbin_entries.hpp"

namespace fikit::shim {
namespace {

// What a program passes, of which there are so many bytes at most.
struct Passed {
    const uint8_t* data;
    uint64_t most;

    template <class Value>
    bool read(uint64_t at, Value& value) const {
        if (at > most || most - at < sizeof value) return false;
        memcpy(&value, data + at, sizeof value);
        return true;
    }
};

// A sum that is too large is larger than anything there is.
uint64_t sum(uint64_t one, uint64_t other) {
    uint64_t both;
    return __builtin_add_overflow(one, other, &both) ? UINT64_MAX : both;
}

// The furthest end of anything that its headers name, of which the tables may come last, or first; 0: it is
// none for any device. What lies beyond all that there is ends there at the earliest.
uint64_t elf_bytes(const Passed& passed) {
    Elf64_Ehdr header{};
    if (passed.read(0, header) && header.e_ident[EI_CLASS] != ELFCLASS64) return 0;
    uint64_t end = sizeof header;
    end = std::max(end, sum(header.e_shoff, uint64_t{header.e_shentsize} * header.e_shnum));
    end = std::max(end, sum(header.e_phoff, uint64_t{header.e_phentsize} * header.e_phnum));
    if (end >= passed.most) return end;
    for (unsigned i = 0; i < header.e_shnum && header.e_shentsize >= sizeof(Elf64_Shdr); ++i) {
        Elf64_Shdr section;
        if (!passed.read(header.e_shoff + uint64_t{header.e_shentsize} * i, section)) continue;
        if (!is_empty_section(section.sh_type)) end = std::max(end, sum(section.sh_offset, section.sh_size));
    }
    for (unsigned i = 0; i < header.e_phnum && header.e_phentsize >= sizeof(Elf64_Phdr); ++i) {
        Elf64_Phdr segment;
        if (!passed.read(header.e_phoff + uint64_t{header.e_phentsize} * i, segment)) continue;
        end = std::max(end, sum(segment.p_offset, segment.p_filesz));
    }
    return end;
}

// Of an image in which nothing is left for the device.
Status refusal(const Image& image, const fatbin::Wanted& wanted) {
    const bool packed = fatbin::is_fatbin(image.data, image.bytes);
    return packed && !wanted.machine_code ? CUDA_ERROR_NO_BINARY_FOR_GPU : status::success;
}

uint64_t fatbin_bytes(const Passed& passed) {
    fatbin::Header header{};
    passed.read(0, header);
    return sum(header.header_bytes, header.bytes);
}

}  // namespace

bool find_image(const void* data, Image& image, uint64_t most) {
    const Passed passed = {static_cast<const uint8_t*>(data), most};
    uint32_t magic = 0;
    passed.read(0, magic);
    if (magic == fatbin::wrapper_magic) return false;
    image = {.data = data};
    if (magic != fatbin::magic && memcmp(&magic, ELFMAG, SELFMAG) != 0) {
        image.bytes = strlen(static_cast<const char*>(data)) + 1;
        return true;
    }
    image.bytes = magic == fatbin::magic ? fatbin_bytes(passed) : elf_bytes(passed);
    // Of a file that is cut short the driver says what is wrong.
    if (most != no_limit) image.bytes = std::min(image.bytes, most);
    return image.bytes != 0 && image.bytes != UINT64_MAX;
}

bool find_wrapped(const void* data, Image& image, uint64_t most) {
    fatbin::Wrapper wrapper{};
    const Passed passed = {static_cast<const uint8_t*>(data), most};
    // Its addresses are the program's: none is in a file.
    if (most != no_limit || !passed.read(0, wrapper.magic) || wrapper.magic != fatbin::wrapper_magic)
        return find_image(data, image, most);
    passed.read(0, wrapper);
    if (wrapper.data == nullptr || !find_image(wrapper.data, image)) return false;
    image.unlinked = wrapper.version == 2 ? wrapper.others : nullptr;
    return true;
}

UsefulParts::UsefulParts(const Image& image, const fatbin::Wanted& wanted) {
    any_ = choose(image, wanted);
    if (any_) return;
    refused_ = refusal(image, wanted);
    parts_[0] = {image.data, image.bytes};
    count_ = 1;
}

bool UsefulParts::choose(const Image& image, const fatbin::Wanted& wanted) {
    fatbin::Header header;
    static_assert(sizeof header == sizeof header_);
    parts_[0] = {header_, sizeof header_};
    count_ = 1;
    uint64_t kept = 0;
    bool useful = false;
    const auto keep = [&](const fatbin::Entry& entry, const uint8_t* begin, const uint8_t*) {
        if (!entry.useful(wanted)) return true;
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
