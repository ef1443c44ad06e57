#include "managed_image.hpp"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "unpacked.hpp"

namespace fikit::shim {
namespace {

using fatbin::Entry;

bool is_code(const uint8_t* data, uint64_t bytes) {
    return bytes >= sizeof(Elf64_Ehdr) && memcmp(data, ELFMAG, SELFMAG) == 0;
}

// Text ends with a null byte, and may be padded with more.
std::string_view text_of(const uint8_t* data, uint64_t bytes) {
    const auto* const text = reinterpret_cast<const char*>(data);
    return {text, strnlen(text, bytes)};
}

bool find_in(const uint8_t* data, uint64_t bytes, ManagedVariables& variables) {
    return is_code(data, bytes) ? find_in_code(data, bytes, variables)
                                : find_in_ptx(text_of(data, bytes), variables);
}

bool find_in_entry(const Entry& entry, const uint8_t* content, ManagedVariables& variables) {
    Unpacked unpacked;
    return unpacked.open(entry, content) && find_in(unpacked.data(), unpacked.bytes(), variables);
}

// Whether a fatbin has managed variables is seen from its plain machine code for the device, or, where it has
// none at all, from its PTX: to unpack all of what large libraries load would take too long.
bool find_in_fatbin(const Image& image, const fatbin::Wanted& wanted, ManagedVariables& variables) {
    bool any_code = false;
    const bool read =
        each_useful(image, wanted, [&](const Entry& entry, const uint8_t*, const uint8_t* content) {
            if (entry.kind != fatbin::kind_machine_code) return true;
            any_code = true;
            return entry.packed() || find_in_code(content, entry.bytes, variables);
        });
    if (!read || (any_code && variables.first() == nullptr)) return read;
    return each_useful(image, wanted, [&](const Entry& entry, const uint8_t*, const uint8_t* content) {
        const bool code = entry.kind == fatbin::kind_machine_code && entry.packed();
        return (entry.kind != fatbin::kind_ptx && !code) || find_in_entry(entry, content, variables);
    });
}

bool place_in(const uint8_t* data, uint64_t bytes, const ManagedVariables& variables, Bytes& placed) {
    if (!is_code(data, bytes)) return place_in_ptx(text_of(data, bytes), variables, placed);
    const uint64_t begin = placed.size();
    placed.add(data, bytes);
    return !placed.failed() && place_in_code(placed.data() + begin, bytes, variables);
}

// An entry, plain, with the variables' addresses.
bool place_in_entry(Entry entry, const uint8_t* header, const uint8_t* content,
                    const ManagedVariables& variables, Bytes& placed) {
    if (entry.kind != fatbin::kind_machine_code && entry.kind != fatbin::kind_ptx) {
        placed.add(header, entry.header_bytes + entry.bytes);
        return true;
    }
    Unpacked unpacked;
    if (!unpacked.open(entry, content)) return false;
    const uint64_t at = placed.size();
    placed.add(header, entry.header_bytes);
    const uint64_t begin = placed.size();
    if (!place_in(unpacked.data(), unpacked.bytes(), variables, placed)) return false;
    const uint64_t bytes = placed.size() - begin;
    placed.grow(8 - bytes % 8);  // text ends with a null byte, and entries are aligned
    if (placed.failed()) return false;
    entry.bytes = placed.size() - begin;
    entry.flags &= ~(fatbin::flag_lz4 | fatbin::flag_zstd);
    entry.packed_bytes = 0;
    entry.expanded_bytes = 0;
    memcpy(placed.data() + at, &entry, sizeof entry);
    return true;
}

bool place_in_fatbin(const Image& image, const fatbin::Wanted& wanted, const ManagedVariables& variables,
                     Bytes& placed) {
    fatbin::Header header;
    memcpy(&header, image.data, sizeof header);
    placed.add(&header, sizeof header);
    const auto place = [&](const Entry& entry, const uint8_t* head, const uint8_t* content) {
        return place_in_entry(entry, head, content, variables, placed);
    };
    if (!each_useful(image, wanted, place) || placed.failed()) return false;
    header.bytes = placed.size() - sizeof header;
    memcpy(placed.data(), &header, sizeof header);
    return true;
}

}  // namespace

ManagedVariables::~ManagedVariables() {
    while (ManagedVariable* const variable = first_) {
        first_ = variable->next;
        free(variable->name);
        delete variable;
    }
}

ManagedVariable* ManagedVariables::find(std::string_view name) const {
    ManagedVariable* variable = first_;
    while (variable != nullptr && name != variable->name) variable = variable->next;
    return variable;
}

bool ManagedVariables::add(std::string_view name, uint64_t bytes) {
    if (const ManagedVariable* const earlier = find(name)) return earlier->bytes == bytes;
    auto* const variable =
        new (std::nothrow) ManagedVariable{strndup(name.data(), name.size()), bytes, 0, first_};
    if (variable == nullptr) return false;
    first_ = variable;
    return variable->name != nullptr && bytes != 0;
}

Bytes::~Bytes() { free(data_); }

void Bytes::grow(uint64_t bytes) {
    if (failed_ || bytes > UINT64_MAX / 4 - size_) {
        failed_ = true;
        return;
    }
    if (size_ + bytes > room_) {
        const uint64_t room = (size_ + bytes) * 2;
        void* const larger = realloc(data_, room);
        failed_ = larger == nullptr;
        if (failed_) return;
        data_ = static_cast<uint8_t*>(larger);
        room_ = room;
    }
    if (bytes != 0) memset(data_ + size_, 0, bytes);
    size_ += bytes;
}

void Bytes::add(const void* data, uint64_t bytes) {
    const uint64_t at = size_;
    grow(bytes);
    if (!failed_ && bytes != 0) memcpy(data_ + at, data, bytes);
}

void Bytes::insert(uint64_t at, std::string_view text) {
    const uint64_t behind = size_ - at;
    grow(text.size());
    if (failed_) return;
    memmove(data_ + at + text.size(), data_ + at, behind);
    memcpy(data_ + at, text.data(), text.size());
}

uint8_t* Bytes::release() {
    uint8_t* const data = data_;
    data_ = nullptr;
    size_ = room_ = 0;
    return data;
}

bool find_managed(const Image& image, const fatbin::Wanted& wanted, ManagedVariables& variables) {
    return fatbin::is_fatbin(image.data, image.bytes)
               ? find_in_fatbin(image, wanted, variables)
               : find_in(static_cast<const uint8_t*>(image.data), image.bytes, variables);
}

bool place_managed(const Image& image, const fatbin::Wanted& wanted, const ManagedVariables& variables,
                   Bytes& placed) {
    if (fatbin::is_fatbin(image.data, image.bytes)) return place_in_fatbin(image, wanted, variables, placed);
    if (!place_in(static_cast<const uint8_t*>(image.data), image.bytes, variables, placed)) return false;
    placed.grow(1);  // the end of a text
    return !placed.failed();
}

}  // namespace fikit::shim
