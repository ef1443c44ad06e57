#include "images.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "cubin_sections.hpp"
#include "fatbin_entries.hpp"
#include "ptx_variables.hpp"

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
constexpr std::string_view archive_magic = "!<arch>\n";
constexpr size_t member_header = 60;

// Of a fatbin's entry.
constexpr uint64_t ptx = 1, machine_code = 2;
uint64_t kind_of(Bytes entry) { return number(entry, 0, 2); }
uint64_t packing_of(Bytes entry) { return number(entry, 40, 8) & 0x1f000; }

// As LZ4's block format has it; the driver unpacks without looking.
bool is_lz4(Bytes packed, uint64_t expected) {
    uint64_t at = 0, made = 0;
    const auto length = [&](uint64_t start) {
        uint64_t sum = start;
        for (unsigned more = start == 15 ? 255 : 0; more == 255 && at < packed.size(); sum += more)
            more = packed[at++];
        return sum;
    };
    while (at < packed.size()) {
        const unsigned token = packed[at++];
        const uint64_t literals = length(token >> 4);
        if (literals > packed.size() - at || literals > expected - made) return false;
        at += literals;
        made += literals;
        if (at == packed.size()) return made == expected;  // the last sequence has no match
        if (packed.size() - at < 2) return false;
        const uint64_t distance = number(packed, at, 2);
        at += 2;
        const uint64_t match = length(token & 15) + 4;
        if (distance == 0 || distance > made || match > expected - made) return false;
        made += match;
    }
    return false;
}

class Elf {
  public:
    explicit Elf(Bytes image) : image_(image) {}

    const char* wrong() const {
        if (image_.size() < 64) return "ELF header beyond its end";
        if (at(4, 1) != 2 || at(18, 2) != cuda) return "not a 64-bit ELF image for GPUs";
        return damaged();
    }
    // An object file of the host's, with fat binaries in sections of theirs, or an image.
    const char* wrong_object() const;
    // Of a sound image's sections without content, but for shared and local memory, and of initial values.
    uint64_t variable_bytes() const {
        uint64_t sum = 0;
        for (uint64_t i = 0; i < count(); ++i) {
            const std::string_view called = name(i);
            const bool own = called.starts_with(".nv.shared") || called.starts_with(".nv.local");
            if (called == ".nv.global.init" || (is_empty_section(type(i)) && !own))
                sum += std::min(at(section(i) + 32, 8), UINT64_MAX - sum);
        }
        return sum;
    }

  private:
    const char* damaged() const {
        const uint64_t size = image_.size(), segments = at(56, 2);
        if (count() > 0 && at(58, 2) != 64) return "ELF section table beyond its end";
        if (!within(table(), 64 * count(), size)) return "ELF section table beyond its end";
        if (segments > 0 && (at(54, 2) != 56 || !within(at(32, 8), 56 * segments, size)))
            return "ELF program headers beyond its end";
        for (uint64_t i = 0; i < segments; ++i) {
            const uint64_t segment = at(32, 8) + 56 * i;
            if (!within(at(segment + 8, 8), at(segment + 32, 8), size)) return "ELF segment beyond its end";
        }
        uint64_t left = most_shared * size;
        for (uint64_t i = 0; i < count(); ++i) {
            if (is_empty_section(type(i))) continue;
            const uint64_t content = at(section(i) + 32, 8);
            if (!within(at(section(i) + 24, 8), content, size)) return "ELF section beyond its end";
            if (content > left) return "ELF sections that are all in one place";
            left -= content;
        }
        if (count() > 0 && !is_strings(at(62, 2))) return "ELF image without names of its sections";
        const uint64_t symbols_known = least_symbols();
        for (uint64_t i = 0; i < count(); ++i) {
            if (at(section(i), 4) >= bytes(at(62, 2)).size()) return "name of an ELF section beyond its end";
            if (!refers_well(i, symbols_known)) return "ELF section that refers beyond its end";
        }
        return nullptr;
    }

    // Sections may have bytes in common, as ptxas lets them from sm_100 on (1.3 times the image's in all),
    // but each of them is read, and there may be 65535.
    static constexpr uint64_t most_shared = 8;
    static constexpr uint64_t symbols = 2, strings = 3, added = 4, relocations = 9;
    static constexpr uint64_t reserved = 0xff00, cuda = 190;

    uint64_t at(uint64_t offset, size_t width) const { return number(image_, offset, width); }
    uint64_t table() const { return at(40, 8); }
    uint64_t count() const { return at(60, 2); }
    uint64_t section(uint64_t index) const { return table() + 64 * index; }
    uint32_t type(uint64_t index) const { return static_cast<uint32_t>(at(section(index) + 4, 4)); }
    uint64_t link(uint64_t index) const { return at(section(index) + 40, 4); }
    Bytes bytes(uint64_t index) const {
        if (is_empty_section(type(index))) return {};
        return image_.subspan(at(section(index) + 24, 8), at(section(index) + 32, 8));
    }
    std::string_view name(uint64_t index) const {
        return reinterpret_cast<const char*>(bytes(at(62, 2)).data()) + at(section(index), 4);
    }
    bool is_strings(uint64_t index) const {
        return index < count() && type(index) == strings && !bytes(index).empty() && bytes(index).back() == 0;
    }

    // Of any of its symbol tables. Which one a section of relocations means is not to be told by its link: in
    // a quarter of cuBLASLt's kernels that names another section, and the driver takes them.
    uint64_t least_symbols() const {
        uint64_t least = 0;
        bool any = false;
        for (uint64_t i = 0; i < count(); ++i) {
            if (type(i) != symbols) continue;
            least = any ? std::min<uint64_t>(least, bytes(i).size() / 24) : bytes(i).size() / 24;
            any = true;
        }
        return least;
    }

    // Symbols by their names and sections, relocations by their symbols.
    bool refers_well(uint64_t index, uint64_t symbols_known) const {
        if (link(index) >= count()) return false;
        const Bytes all = bytes(index);
        if (type(index) == symbols) {
            if (!is_strings(link(index)) || all.size() % 24 != 0) return false;
            for (uint64_t i = 0; i < all.size(); i += 24) {
                const uint64_t place = number(all, i + 6, 2);
                if (number(all, i, 4) >= bytes(link(index)).size()) return false;
                if (place >= count() && place < reserved) return false;
            }
        } else if (type(index) == added || type(index) == relocations) {
            const uint64_t width = type(index) == added ? 24 : 16;
            if (all.size() % width != 0 || at(section(index) + 44, 4) >= count()) return false;
            for (uint64_t i = 0; i < all.size(); i += width)
                if (number(all, i + 12, 4) >= symbols_known) return false;
        }
        return true;
    }

    Bytes image_;
};

bool ends(Bytes text) { return std::ranges::find(text, 0) != text.end(); }

// One image of a fat binary, from its header on. The layout is nvcc's: some 28,000 of NVIDIA's libraries keep
// to what is asked here.
const char* check_entry(Bytes entry, uint64_t& size) {
    constexpr uint64_t least = 64, most_unpacked = uint64_t{1} << 30;
    constexpr uint64_t lz4 = 0x2000, zstd = 0x8000;
    if (entry.size() < least) return "fatbin entry beyond its end";
    const auto at = [&](uint64_t offset, size_t bytes) { return number(entry, offset, bytes); };
    const uint64_t header = at(4, 4), content = at(8, 8), packed = at(16, 4), options = at(20, 4);
    if (header < least || !within(header, content, entry.size())) return "fatbin entry beyond its end";
    if (!within(at(32, 4), at(36, 4), header)) return "name of a fatbin entry beyond its header";
    if (options != 0 && (!within(options, 8, header) || !within(at(options, 4), at(options + 4, 4), header)))
        return "options of a fatbin entry beyond its header";
    if (packed > content) return "packed content of a fatbin entry beyond its end";
    if (options == 0 && kind_of(entry) == ptx)
        return "fatbin entry of PTX without options";  // the linker reads them
    if (options != 0 && !ends(entry.subspan(at(options, 4), header - at(options, 4))))
        return "options of a fatbin entry beyond its header";
    size = header + content;
    const uint64_t packing = packing_of(entry);
    if (packing != 0) {
        if (packed == 0 || at(56, 8) == 0) return "packed fatbin entry without content";
        if (at(56, 8) > most_unpacked) return "fatbin entry of more than 1 GiB";
        if (kind_of(entry) != ptx && kind_of(entry) != machine_code)
            return nullptr;                   // packed in a way of their own
        if (packing == zstd) return nullptr;  // the driver looks itself
        if (packing != lz4) return "fatbin entry that is packed in an unknown way";
        return is_lz4(entry.subspan(header, packed), at(56, 8)) ? nullptr
                                                                : "damaged content of a fatbin entry";
    }
    const bool elf = content >= sizeof(uint32_t) && at(header, 4) == elf_magic;
    return elf ? Elf(entry.subspan(header, content)).wrong() : nullptr;
}

constexpr uint64_t least_header = 16;

const char* check_fatbin(Bytes image, uint64_t& size) {
    const uint64_t header = number(image, 6, 2), content = number(image, 8, 8);
    if (header < least_header || !within(header, content, image.size())) return "fatbin beyond its end";
    size = header + content;
    for (Bytes left = image.subspan(header, content); !left.empty();) {
        uint64_t entry = 0;
        if (const char* wrong = check_entry(left, entry); wrong != nullptr) return wrong;
        left = left.subspan(entry);
    }
    return nullptr;
}

bool is_elf(Bytes image) { return image.size() >= 64 && number(image, 0, 4) == elf_magic; }
bool is_fatbin(Bytes image) { return image.size() >= least_header && number(image, 0, 4) == fatbin_magic; }

uint64_t text_variable_bytes(Bytes text) {
    const auto* const first = reinterpret_cast<const char*>(text.data());
    return ptx_variable_bytes({first, strnlen(first, text.size())});
}

// Of a sound one.
uint64_t entry_variable_bytes(Bytes entry, int major) {
    Bytes content = entry.subspan(number(entry, 4, 4), number(entry, 8, 8));
    std::vector<uint8_t> unpacked;
    if (packing_of(entry) != 0) {
        fatbin::Entry head;
        std::memcpy(&head, entry.data(), sizeof head);
        if (major == 0 || !head.packed() || !head.useful(major)) return 0;
        const auto packed = std::as_bytes(content);
        unpacked.resize(fatbin::expanded_size(head, packed));
        // What is damaged the driver refuses; without the library nobody knows.
        if (!fatbin::expand(head, packed, std::as_writable_bytes(std::span(unpacked)))) return 0;
        content = unpacked;
        if (is_elf(content) && Elf(content).wrong() != nullptr) return UINT64_MAX;
    }
    if (kind_of(entry) == ptx) return text_variable_bytes(content);
    return is_elf(content) ? Elf(content).variable_bytes() : 0;
}

const char* Elf::wrong_object() const {
    if (at(4, 1) != 2) return "not a 64-bit object file";
    if (const char* wrong = damaged(); wrong != nullptr) return wrong;
    const bool hosts = at(18, 2) != cuda;
    for (uint64_t i = 0; hosts && i < count(); ++i) {
        if (name(i) != ".nv_fatbin" && name(i) != "__nv_relfatbin") continue;
        uint64_t size = 0;
        for (Bytes left = bytes(i); !left.empty(); left = left.subspan(std::min(size, left.size()))) {
            if (!is_fatbin(left)) return "object file with something else among its fatbins";
            if (const char* wrong = check_fatbin(left, size); wrong != nullptr) return wrong;
            size = (size + 7) / 8 * 8;
        }
    }
    return nullptr;
}

// A number in ASCII, followed by blanks.
bool read_decimal(Bytes digits, uint64_t& value) {
    size_t at = 0;
    for (value = 0; at < digits.size() && digits[at] >= '0' && digits[at] <= '9'; ++at)
        value = value * 10 + (digits[at] - '0');
    return at > 0 && std::ranges::all_of(digits.subspan(at), [](uint8_t each) { return each == ' '; });
}

// Where the members that define symbols begin, most significant byte first, and the symbols' names.
bool is_symbol_table(Bytes table, uint64_t archive) {
    if (table.size() < 4) return false;
    const auto at = [&](uint64_t offset) {
        return __builtin_bswap32(static_cast<uint32_t>(number(table, offset, 4)));
    };
    const uint64_t count = at(0);
    if (count > table.size() / 4 - 1) return false;
    for (uint64_t i = 1; i <= count; ++i)
        if (!within(at(4 * i), member_header, archive)) return false;
    const Bytes names = table.subspan(4 * (count + 1));
    return static_cast<uint64_t>(std::ranges::count(names, 0)) >= count;
}

const char* check_object(Bytes object) {
    uint64_t size = 0;
    if (is_elf(object)) return Elf(object).wrong_object();
    return is_fatbin(object) ? check_fatbin(object, size) : "neither an object file nor a fatbin";
}

// As System V and GNU write them.
const char* check_archive(Bytes archive) {
    uint64_t names = 0;  // bytes of those that are too long for a member's header
    for (Bytes left = archive.subspan(archive_magic.size()); !left.empty();) {
        uint64_t size = 0, name = 0;
        if (left.size() < member_header || left[58] != '`' || left[59] != '\n' ||
            !read_decimal(left.subspan(48, 10), size))
            return "damaged header in an archive";
        if (!within(member_header, size, left.size())) return "archive member beyond its end";
        const Bytes member = left.subspan(member_header, size);
        const bool special = left[0] == '/';
        if (special && left[1] == '/') {
            names = size;
        } else if (special && left[1] == ' ') {
            if (!is_symbol_table(member, archive.size())) return "damaged symbol table of an archive";
        } else {
            if (special && (!read_decimal(left.subspan(1, 15), name) || name >= names))
                return "name of an archive member beyond its end";
            if (const char* wrong = check_object(member); wrong != nullptr) return wrong;
        }
        left = left.subspan(std::min(member_header + size + size % 2, left.size()));
    }
    return nullptr;
}

}  // namespace

const char* check_image(const std::vector<uint8_t>& image) {
    const Bytes given = Bytes(image).first(image.size() - 1);  // a NUL was added
    uint64_t size = 0;
    if (is_elf(given)) return Elf(given).wrong();
    if (is_fatbin(given)) return check_fatbin(given, size);
    for (size_t i = 0; i < std::min<size_t>(given.size(), 4096); ++i)
        if (given[i] != 0)
            return std::strchr("./ \t\r\n", given[i]) != nullptr ? nullptr : "neither PTX, ELF nor fatbin";
    return "neither PTX, ELF nor fatbin";
}

uint64_t variable_bytes(const std::vector<uint8_t>& image, int major) {
    const Bytes given = Bytes(image).first(image.size() - 1);
    if (is_elf(given)) return Elf(given).variable_bytes();
    if (!is_fatbin(given)) return text_variable_bytes(given);
    uint64_t most = 0, size = 0;
    for (Bytes left = given.subspan(number(given, 6, 2), number(given, 8, 8));
         !left.empty() && check_entry(left, size) == nullptr; left = left.subspan(size))
        most = std::max(most, entry_variable_bytes(left, major));
    return most;
}

const char* check_linked(const std::vector<uint8_t>& image) {
    const Bytes given = Bytes(image).first(image.size() - 1);
    const size_t magic = archive_magic.size();
    if (given.size() >= magic && std::memcmp(given.data(), archive_magic.data(), magic) == 0)
        return check_archive(given);
    return is_elf(given) ? check_object(given) : check_image(image);
}

}  // namespace fikit
