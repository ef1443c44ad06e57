// Managed variables in machine code. Which symbol is one, its `other` field says; code reads such a
// variable's address from constant memory or has it in instructions, where relocations put it. (Seen in what
// nvcc 13 and driver 580 make for compute capability 7.5 to 12.0, with and without -G.)
#include <elf.h>
#include <string.h>

#include "managed_image.hpp"

namespace fikit::shim {
namespace {

constexpr unsigned char other_managed = 4;
// Eight bytes; the lower and the upper half of an instruction's 32 bits behind its first 32.
constexpr uint32_t whole = 2, lower_half = 0x38, upper_half = 0x39;

// A cubin's bytes, of which no more is read than is there.
class Code {
  public:
    Code(const uint8_t* data, uint64_t bytes) : data_(data), bytes_(bytes) {}

    bool open() {
        return read(0, header_) && header_.e_ident[EI_CLASS] == ELFCLASS64 &&
               header_.e_shentsize == sizeof(Elf64_Shdr);
    }
    bool has(uint64_t at, uint64_t bytes) const { return at <= bytes_ && bytes <= bytes_ - at; }
    template <class Thing>
    bool read(uint64_t at, Thing& thing) const {
        if (!has(at, sizeof thing)) return false;
        memcpy(&thing, data_ + at, sizeof thing);
        return true;
    }
    uint64_t place_of(uint64_t section) const { return header_.e_shoff + section * sizeof(Elf64_Shdr); }
    bool section(uint64_t number, Elf64_Shdr& section) const {
        return number < header_.e_shnum && read(place_of(number), section);
    }
    uint64_t sections() const { return header_.e_shnum; }

    // The symbol's name, and whether it is a managed variable of this image.
    bool symbol(const Elf64_Shdr& table, uint64_t number, Elf64_Sym& symbol, std::string_view& name) const {
        Elf64_Shdr names;
        if (number >= table.sh_size / sizeof symbol ||
            !read(table.sh_offset + number * sizeof symbol, symbol) || !section(table.sh_link, names) ||
            !has(names.sh_offset, names.sh_size) || symbol.st_name >= names.sh_size)
            return false;
        const char* const text = reinterpret_cast<const char*>(data_) + names.sh_offset + symbol.st_name;
        name = {text, strnlen(text, names.sh_size - symbol.st_name)};
        return true;
    }
    static bool is_managed(const Elf64_Sym& symbol) {
        return ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && (symbol.st_other & other_managed) != 0;
    }

  private:
    const uint8_t* data_;
    uint64_t bytes_;
    Elf64_Ehdr header_ = {};
};

// Each symbol that is a managed variable, with where it stands.
template <class Take>
bool each_managed(const Code& code, const Take& take) {
    Elf64_Shdr table;
    for (uint64_t i = 0; i < code.sections(); ++i) {
        if (!code.section(i, table)) return false;
        if (table.sh_type != SHT_SYMTAB) continue;
        for (uint64_t number = 0; number < table.sh_size / sizeof(Elf64_Sym); ++number) {
            Elf64_Sym symbol;
            std::string_view name;
            if (!code.symbol(table, number, symbol, name)) return false;
            if (Code::is_managed(symbol) && !take(symbol, name, table.sh_offset + number * sizeof symbol))
                return false;
        }
    }
    return true;
}

class Placing {
  public:
    Placing(uint8_t* data, uint64_t bytes, const ManagedVariables& variables)
        : data_(data), code_(data, bytes), variables_(variables) {}

    bool all() {
        if (!code_.open()) return false;
        for (uint64_t i = 0; i < code_.sections(); ++i) {
            Elf64_Shdr section;
            if (!code_.section(i, section)) return false;
            const bool placed = section.sh_type == SHT_RELA  ? relocations<Elf64_Rela>(i, section)
                                : section.sh_type == SHT_REL ? relocations<Elf64_Rel>(i, section)
                                                             : true;
            if (!placed) return false;
        }
        return each_managed(code_, [&](Elf64_Sym symbol, std::string_view, uint64_t at) {
            symbol.st_other &= static_cast<unsigned char>(~other_managed);
            memcpy(data_ + at, &symbol, sizeof symbol);
            return true;
        });
    }

  private:
    // The driver takes no relocation that does nothing, so those of managed variables are left out.
    template <class Relocation>
    bool relocations(uint64_t number, Elf64_Shdr section) {
        Elf64_Shdr symbols, target;
        if (!code_.has(section.sh_offset, section.sh_size) || !code_.section(section.sh_link, symbols) ||
            !code_.section(section.sh_info, target))
            return false;
        uint64_t kept = 0;
        for (uint64_t at = 0; at + sizeof(Relocation) <= section.sh_size; at += sizeof(Relocation)) {
            Relocation relocation;
            memcpy(&relocation, data_ + section.sh_offset + at, sizeof relocation);
            Elf64_Sym symbol;
            std::string_view name;
            if (!code_.symbol(symbols, ELF64_R_SYM(relocation.r_info), symbol, name)) return false;
            const ManagedVariable* const variable =
                Code::is_managed(symbol) ? variables_.find(name) : nullptr;
            if (variable == nullptr) {
                memmove(data_ + section.sh_offset + kept, &relocation, sizeof relocation);
                kept += sizeof relocation;
            } else if (!place(relocation, target, variable->address)) {
                return false;
            }
        }
        section.sh_size = kept;
        memcpy(data_ + code_.place_of(number), &section, sizeof section);
        return true;
    }

    template <class Relocation>
    bool place(const Relocation& relocation, const Elf64_Shdr& target, uint64_t address) {
        const uint32_t type = ELF64_R_TYPE(relocation.r_info);
        const uint64_t field = relocation.r_offset + (type == whole ? 0 : 4), width = type == whole ? 8 : 4;
        const uint64_t at = target.sh_offset + field;
        if ((type != whole && type != lower_half && type != upper_half) || target.sh_size < width ||
            field < relocation.r_offset || field > target.sh_size - width || !code_.has(at, width))
            return false;
        if constexpr (sizeof(Relocation) == sizeof(Elf64_Rela)) {
            address += static_cast<uint64_t>(relocation.r_addend);
        } else {  // what is added stands in the place itself
            uint64_t added = 0;
            memcpy(&added, data_ + at, width);
            if (type != whole && added != 0) return false;
            address += added;
        }
        if (type == upper_half) address >>= 32;
        memcpy(data_ + at, &address, width);
        return true;
    }

    uint8_t* data_;
    Code code_;
    const ManagedVariables& variables_;
};

}  // namespace

bool find_in_code(const uint8_t* data, uint64_t bytes, ManagedVariables& variables) {
    Code code(data, bytes);
    if (!code.open()) return false;
    return each_managed(code, [&](const Elf64_Sym& symbol, std::string_view name, uint64_t) {
        return symbol.st_shndx != SHN_UNDEF && variables.add(name, symbol.st_size);
    });
}

bool place_in_code(uint8_t* data, uint64_t bytes, const ManagedVariables& variables) {
    return Placing(data, bytes, variables).all();
}

}  // namespace fikit::shim
