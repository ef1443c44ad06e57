#include "images.hpp"

#include <elf.h>

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

constexpr std::string_view archive_magic = "!<arch>\n";
constexpr size_t member_header = 60;

// How the content of a fatbin's entry is packed, of its flags.
constexpr uint64_t packing = 0x1f000;

template <class Record>
Record read(Bytes from, uint64_t offset = 0) {
    Record record;
    std::memcpy(&record, from.data() + offset, sizeof record);
    return record;
}

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
    explicit Elf(Bytes image) : image_(image) {
        if (image.size() >= sizeof header_) header_ = read<Elf64_Ehdr>(image);
    }

    const char* wrong() const {
        if (image_.size() < sizeof header_) return "ELF header beyond its end";
        if (!is_wide() || !is_for_gpus()) return "not a 64-bit ELF image for GPUs";
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
            if (called == ".nv.global.init" || (is_empty_section(section(i).sh_type) && !own))
                sum += std::min<uint64_t>(section(i).sh_size, UINT64_MAX - sum);
        }
        return sum;
    }

  private:
    const char* damaged() const {
        const uint64_t size = image_.size(), segments = header_.e_phnum, names = header_.e_shstrndx;
        if (count() > 0 && header_.e_shentsize != sizeof(Elf64_Shdr))
            return "ELF section table beyond its end";
        if (!within(header_.e_shoff, sizeof(Elf64_Shdr) * count(), size))
            return "ELF section table beyond its end";
        if (segments > 0 && (header_.e_phentsize != sizeof(Elf64_Phdr) ||
                             !within(header_.e_phoff, sizeof(Elf64_Phdr) * segments, size)))
            return "ELF program headers beyond its end";
        for (uint64_t i = 0; i < segments; ++i) {
            const auto segment = read<Elf64_Phdr>(image_, header_.e_phoff + sizeof(Elf64_Phdr) * i);
            if (!within(segment.p_offset, segment.p_filesz, size)) return "ELF segment beyond its end";
        }
        uint64_t left = most_shared * size;
        for (uint64_t i = 0; i < count(); ++i) {
            const Elf64_Shdr each = section(i);
            if (is_empty_section(each.sh_type)) continue;
            if (!within(each.sh_offset, each.sh_size, size)) return "ELF section beyond its end";
            if (each.sh_size > left) return "ELF sections that are all in one place";
            left -= each.sh_size;
        }
        if (count() > 0 && !is_strings(names)) return "ELF image without names of its sections";
        const uint64_t symbols_known = least_symbols();
        for (uint64_t i = 0; i < count(); ++i) {
            if (section(i).sh_name >= bytes(names).size()) return "name of an ELF section beyond its end";
            if (!refers_well(i, symbols_known)) return "ELF section that refers beyond its end";
        }
        return nullptr;
    }

    // Sections may have bytes in common, as ptxas lets them from sm_100 on (1.3 times the image's in all),
    // but each of them is read, and there may be 65535.
    static constexpr uint64_t most_shared = 8;

    bool is_wide() const { return header_.e_ident[EI_CLASS] == ELFCLASS64; }
    bool is_for_gpus() const { return header_.e_machine == EM_CUDA; }
    uint64_t count() const { return header_.e_shnum; }
    Elf64_Shdr section(uint64_t index) const {
        return read<Elf64_Shdr>(image_, header_.e_shoff + sizeof(Elf64_Shdr) * index);
    }
    Bytes bytes(uint64_t index) const {
        const Elf64_Shdr of = section(index);
        return is_empty_section(of.sh_type) ? Bytes() : image_.subspan(of.sh_offset, of.sh_size);
    }
    std::string_view name(uint64_t index) const {
        return reinterpret_cast<const char*>(bytes(header_.e_shstrndx).data()) + section(index).sh_name;
    }
    bool is_strings(uint64_t index) const {
        return index < count() && section(index).sh_type == SHT_STRTAB && !bytes(index).empty() &&
               bytes(index).back() == 0;
    }

    // Of any of its symbol tables. Which one a section of relocations means is not to be told by its link: in
    // a quarter of cuBLASLt's kernels that names another section, and the driver takes them.
    uint64_t least_symbols() const {
        uint64_t least = 0;
        bool any = false;
        for (uint64_t i = 0; i < count(); ++i) {
            if (section(i).sh_type != SHT_SYMTAB) continue;
            const uint64_t symbols = bytes(i).size() / sizeof(Elf64_Sym);
            least = any ? std::min(least, symbols) : symbols;
            any = true;
        }
        return least;
    }

    // Symbols by their names and sections, relocations by their symbols.
    bool refers_well(uint64_t index, uint64_t symbols_known) const {
        const Elf64_Shdr own = section(index);
        if (own.sh_link >= count()) return false;
        const Bytes all = bytes(index);
        if (own.sh_type == SHT_SYMTAB) {
            if (!is_strings(own.sh_link) || all.size() % sizeof(Elf64_Sym) != 0) return false;
            const uint64_t names = bytes(own.sh_link).size();
            for (uint64_t i = 0; i < all.size(); i += sizeof(Elf64_Sym)) {
                const auto symbol = read<Elf64_Sym>(all, i);
                if (symbol.st_name >= names) return false;
                if (symbol.st_shndx >= count() && symbol.st_shndx < SHN_LORESERVE) return false;
            }
        } else if (own.sh_type == SHT_RELA || own.sh_type == SHT_REL) {
            // One with an addend begins as one without.
            const uint64_t width = own.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
            if (all.size() % width != 0 || own.sh_info >= count()) return false;
            for (uint64_t i = 0; i < all.size(); i += width)
                if (ELF64_R_SYM(read<Elf64_Rel>(all, i).r_info) >= symbols_known) return false;
        }
        return true;
    }

    Bytes image_;
    Elf64_Ehdr header_{};
};

bool ends(Bytes text) { return std::ranges::find(text, 0) != text.end(); }

bool is_elf(Bytes image) {
    return image.size() >= sizeof(Elf64_Ehdr) && std::memcmp(image.data(), ELFMAG, SELFMAG) == 0;
}
bool is_fatbin(Bytes image) { return fatbin::is_fatbin(image.data(), image.size()); }

// One image of a fat binary, from its header on. The layout is nvcc's: some 28,000 of NVIDIA's libraries keep
// to what is asked here.
const char* check_entry(Bytes entry, uint64_t& size) {
    if (entry.size() < sizeof(fatbin::Entry)) return "fatbin entry beyond its end";
    const auto head = read<fatbin::Entry>(entry);
    const uint64_t header = head.header_bytes, options = head.options;
    if (header < sizeof head || !within(header, head.bytes, entry.size()))
        return "fatbin entry beyond its end";
    if (!within(head.name, head.name_bytes, header)) return "name of a fatbin entry beyond its header";
    if (options != 0 && (!within(options, 8, header) ||
                         !within(number(entry, options, 4), number(entry, options + 4, 4), header)))
        return "options of a fatbin entry beyond its header";
    if (head.packed_bytes > head.bytes) return "packed content of a fatbin entry beyond its end";
    if (options == 0 && head.kind == fatbin::kind_ptx)
        return "fatbin entry of PTX without options";  // the linker reads them
    if (options != 0 && !ends(entry.first(header).subspan(number(entry, options, 4))))
        return "options of a fatbin entry beyond its header";
    size = header + head.bytes;
    const Bytes content = entry.subspan(header, head.bytes);
    if (const uint64_t packed = head.flags & packing; packed != 0) {
        if (head.packed_bytes == 0 || head.expanded_bytes == 0) return "packed fatbin entry without content";
        if (head.expanded_bytes > fatbin::expanded_most) return "fatbin entry of more than 1 GiB";
        if (head.kind != fatbin::kind_ptx && head.kind != fatbin::kind_machine_code)
            return nullptr;                               // packed in a way of their own
        if (packed == fatbin::flag_zstd) return nullptr;  // the driver looks itself
        if (packed != fatbin::flag_lz4) return "fatbin entry that is packed in an unknown way";
        return is_lz4(content.first(head.packed_bytes), head.expanded_bytes)
                   ? nullptr
                   : "damaged content of a fatbin entry";
    }
    const bool elf = content.size() >= SELFMAG && std::memcmp(content.data(), ELFMAG, SELFMAG) == 0;
    return elf ? Elf(content).wrong() : nullptr;
}

// The entries, of one whose header fits.
Bytes entries_of(Bytes image) {
    const auto header = read<fatbin::Header>(image);
    return image.subspan(header.header_bytes, header.bytes);
}

const char* check_fatbin(Bytes image, uint64_t& size) {
    const auto header = read<fatbin::Header>(image);
    if (header.header_bytes < sizeof header || !within(header.header_bytes, header.bytes, image.size()))
        return "fatbin beyond its end";
    size = header.header_bytes + header.bytes;
    for (Bytes left = entries_of(image); !left.empty();) {
        uint64_t entry = 0;
        if (const char* wrong = check_entry(left, entry); wrong != nullptr) return wrong;
        left = left.subspan(entry);
    }
    return nullptr;
}

uint64_t text_variable_bytes(Bytes text) {
    const auto* const first = reinterpret_cast<const char*>(text.data());
    return ptx_variable_bytes({first, strnlen(first, text.size())});
}

// Of a sound one.
uint64_t entry_variable_bytes(Bytes entry, int major) {
    const auto head = read<fatbin::Entry>(entry);
    Bytes content = entry.subspan(head.header_bytes, head.bytes);
    std::vector<uint8_t> unpacked;
    if ((head.flags & packing) != 0) {
        if (major == 0 || !head.packed() || !head.useful(major)) return 0;
        const auto packed = std::as_bytes(content);
        unpacked.resize(fatbin::expanded_size(head, packed));
        // What is damaged the driver refuses; without the library nobody knows.
        if (!fatbin::expand(head, packed, std::as_writable_bytes(std::span(unpacked)))) return 0;
        content = unpacked;
        if (is_elf(content) && Elf(content).wrong() != nullptr) return UINT64_MAX;
    }
    if (head.kind == fatbin::kind_ptx) return text_variable_bytes(content);
    return is_elf(content) ? Elf(content).variable_bytes() : 0;
}

const char* Elf::wrong_object() const {
    if (!is_wide()) return "not a 64-bit object file";
    if (const char* wrong = damaged(); wrong != nullptr) return wrong;
    for (uint64_t i = 0; !is_for_gpus() && i < count(); ++i) {
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
    for (Bytes left = entries_of(given); !left.empty() && check_entry(left, size) == nullptr;
         left = left.subspan(size))
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
