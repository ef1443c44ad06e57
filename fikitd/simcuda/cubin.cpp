// See cubin.hpp. The format is ELF's, with sections and attributes of NVIDIA's: ".text.K" holds the code
// of kernel K, ".nv.info.K" its attributes, ".nv.shared.K" its shared memory; ".nv.info" those by symbol.
#include "cubin.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "cubin_sections.hpp"
#include "model.hpp"

namespace fikit::sim {

namespace {

constexpr std::string_view text_prefix = ".text.";
constexpr std::string_view info_prefix = ".nv.info.";
constexpr std::string_view shared_prefix = ".nv.shared.";
constexpr std::size_t parameter_bytes_most = 32764;
constexpr std::uint64_t variable_bytes_most = std::uint64_t{1} << 40;

// Attributes of .nv.info (EIATTR_*).
enum class Attribute : std::uint8_t {
    max_threads = 0x05,
    required_threads = 0x10,
    parameter = 0x17,
    parameters_size = 0x19,
    registers = 0x2f,
    parameter_large = 0x45,
};
constexpr std::uint8_t sized_value = 4;  // the other formats hold their two bytes in place

template <typename T>
std::optional<T> read_at(Bytes bytes, std::uint64_t offset) {
    if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

std::optional<Bytes> part(Bytes bytes, std::uint64_t offset, std::uint64_t length) {
    if (offset > bytes.size() || bytes.size() - offset < length) return std::nullopt;
    return bytes.subspan(offset, length);
}

struct Section {
    Elf64_Shdr header;
    std::string_view name;
    Bytes content;  // none of one that is empty (cubin_sections.hpp)
};

struct File {
    std::vector<Section> sections;
    std::vector<Elf64_Sym> symbols;
    Bytes symbol_names;

    std::string_view symbol_name(const Elf64_Sym& symbol) const {
        return text_at(symbol_names, symbol.st_name);
    }
    static std::string_view text_at(Bytes names, std::uint64_t offset) {
        if (offset >= names.size()) return {};
        const auto* start = reinterpret_cast<const char*>(names.data()) + offset;
        return {start, strnlen(start, names.size() - offset)};
    }
    const Section* find(std::string_view prefix, std::string_view kernel) const {
        const auto found = std::find_if(sections.begin(), sections.end(), [&](const Section& section) {
            return section.name.starts_with(prefix) && section.name.substr(prefix.size()) == kernel;
        });
        return found == sections.end() ? nullptr : &*found;
    }
};

bool read_tables(Bytes image, File& file, std::string& problem) {
    const auto header = read_at<Elf64_Ehdr>(image, 0);
    if (!header || header->e_shentsize != sizeof(Elf64_Shdr)) {
        problem = "no section headers";
        return false;
    }
    for (unsigned index = 0; index < header->e_shnum; ++index) {
        const auto section =
            read_at<Elf64_Shdr>(image, header->e_shoff + std::uint64_t{index} * sizeof(Elf64_Shdr));
        if (!section) {
            problem = "the section headers end early";
            return false;
        }
        std::optional<Bytes> content = Bytes{};
        if (!is_empty_section(section->sh_type)) content = part(image, section->sh_offset, section->sh_size);
        if (!content) {
            problem = "a section lies outside the file";
            return false;
        }
        file.sections.push_back({*section, {}, *content});
    }
    if (header->e_shstrndx >= file.sections.size()) {
        problem = "no section names";
        return false;
    }
    const Bytes names = file.sections[header->e_shstrndx].content;
    for (Section& section : file.sections) section.name = File::text_at(names, section.header.sh_name);
    for (const Section& section : file.sections) {
        if (section.header.sh_type != SHT_SYMTAB) continue;
        for (std::size_t at = 0; section.content.size() - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym))
            file.symbols.push_back(*read_at<Elf64_Sym>(section.content, at));
        if (section.header.sh_link < file.sections.size())
            file.symbol_names = file.sections[section.header.sh_link].content;
    }
    return true;
}

// Calls visit(attribute, value) for each attribute; the value of an unsized one are its two bytes.
template <typename Visit>
bool each_attribute(Bytes info, Visit visit) {
    for (std::size_t at = 0; at < info.size();) {
        const auto head = part(info, at, 4);
        if (!head) return false;
        const auto format = std::to_integer<std::uint8_t>((*head)[0]);
        const auto attribute = static_cast<Attribute>((*head)[1]);
        Bytes value = head->subspan(2);
        at += 4;
        if (format == sized_value) {
            const std::uint16_t length = *read_at<std::uint16_t>(value, 0);
            const auto sized = part(info, at, length);
            if (!sized) return false;
            value = *sized;
            at += length;
        }
        if (!visit(attribute, value)) return false;
    }
    return true;
}

bool add_parameter(Bytes value, bool large, std::map<unsigned, ptx::Parameter>& parameters) {
    const auto ordinal = read_at<std::uint16_t>(value, 4);
    const auto offset = read_at<std::uint16_t>(value, 6);
    const auto packed = read_at<std::uint32_t>(value, 8);
    if (!ordinal || !offset || !packed) return false;
    const std::uint32_t bytes = large ? *packed : *packed >> 18;
    if (bytes > parameter_bytes_most || *offset > parameter_bytes_most - bytes) return false;
    parameters[*ordinal] = {*offset, bytes};
    return true;
}

// More than a block can have is what a block can have.
std::uint32_t threads_of(Bytes value, std::uint32_t (&dimensions)[3]) {
    std::uint64_t product = 1;
    for (std::size_t index = 0; index < 3; ++index) {
        dimensions[index] = read_at<std::uint32_t>(value, index * 4).value_or(0);
        product = std::min<std::uint64_t>(product * dimensions[index], model::threads_per_block);
    }
    return static_cast<std::uint32_t>(product);
}

bool read_kernel(const File& file, std::string_view name, ptx::Kernel& kernel) {
    kernel.name = name;
    std::map<unsigned, ptx::Parameter> parameters;
    if (const Section* info = file.find(info_prefix, name)) {
        const bool sound = each_attribute(info->content, [&](Attribute attribute, Bytes value) {
            switch (attribute) {
                case Attribute::parameter:
                case Attribute::parameter_large:
                    return add_parameter(value, attribute == Attribute::parameter_large, parameters);
                case Attribute::parameters_size:
                    kernel.parameter_bytes = *read_at<std::uint16_t>(value, 0);
                    return kernel.parameter_bytes <= parameter_bytes_most;
                case Attribute::max_threads: {
                    std::uint32_t dimensions[3];
                    kernel.threads_limit = threads_of(value, dimensions);
                    return kernel.threads_limit != 0;
                }
                case Attribute::required_threads: {
                    kernel.threads_limit = threads_of(value, kernel.required);
                    return kernel.threads_limit != 0;
                }
                default:
                    return true;
            }
        });
        if (!sound) return false;
    }
    for (const auto& [ordinal, parameter] : parameters) {
        if (ordinal != kernel.parameters.size()) return false;
        kernel.parameters.push_back(parameter);
        kernel.parameter_bytes = std::max(kernel.parameter_bytes, parameter.offset + parameter.bytes);
    }
    if (const Section* shared = file.find(shared_prefix, name)) {
        // The block's reserved part is counted in where the file has a symbol for it.
        const bool reserved =
            std::any_of(file.symbols.begin(), file.symbols.end(), [&](const Elf64_Sym& symbol) {
                return file.symbol_name(symbol).starts_with(".nv.reservedSmem");
            });
        std::uint64_t bytes = shared->header.sh_size;
        if (reserved) bytes -= std::min<std::uint64_t>(bytes, model::shared_reserved_per_block);
        if (bytes > model::shared_per_block_optin) return false;
        kernel.static_shared = static_cast<std::uint32_t>(bytes);
    }
    return true;
}

// Registers come by symbol: in .nv.info of today's files, in the section's info field of old ones.
bool read_registers(const File& file, std::map<std::string_view, std::uint32_t>& registers) {
    for (const Section& section : file.sections) {
        if (section.name.starts_with(text_prefix))
            registers[section.name.substr(text_prefix.size())] = section.header.sh_info >> 24;
    }
    for (const Section& section : file.sections) {
        if (section.name != ".nv.info") continue;
        const bool sound = each_attribute(section.content, [&](Attribute attribute, Bytes value) {
            if (attribute != Attribute::registers) return true;
            const auto symbol = read_at<std::uint32_t>(value, 0);
            const auto count = read_at<std::uint32_t>(value, 4);
            if (!symbol || !count || *symbol >= file.symbols.size()) return false;
            registers[file.symbol_name(file.symbols[*symbol])] = *count;
            return true;
        });
        if (!sound) return false;
    }
    return true;
}

bool read_variables(const File& file, ptx::Module& module) {
    constexpr unsigned managed_mark = 0x4;
    for (const Elf64_Sym& symbol : file.symbols) {
        if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx >= file.sections.size()) continue;
        const Section& section = file.sections[symbol.st_shndx];
        const bool initialised = section.name == ".nv.global.init" || section.name == ".nv.constant3";
        if (!initialised && section.name != ".nv.global") continue;
        if (symbol.st_value > section.header.sh_size ||
            symbol.st_size > section.header.sh_size - symbol.st_value ||
            symbol.st_size > variable_bytes_most) {
            return false;
        }
        ptx::Variable variable;
        variable.name = file.symbol_name(symbol);
        variable.bytes = symbol.st_size;
        variable.alignment = 16;
        variable.managed = (symbol.st_other & managed_mark) != 0;
        if (initialised) {
            const auto content = part(section.content, symbol.st_value, symbol.st_size);
            if (!content) return false;
            const auto* first = reinterpret_cast<const std::uint8_t*>(content->data());
            variable.initial.assign(first, first + content->size());
        }
        module.variables.push_back(std::move(variable));
    }
    return true;
}

}  // namespace

bool is_cubin(Bytes image) {
    const auto header = read_at<Elf64_Ehdr>(image, 0);
    return header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_machine == EM_CUDA;
}

unsigned cubin_target(Bytes image) {
    const auto header = read_at<Elf64_Ehdr>(image, 0);
    if (!is_cubin(image)) return 0;
    // Since version 8 of the ABI the lowest byte is flags.
    return header->e_ident[EI_ABIVERSION] >= 8 ? header->e_flags >> 8 & 0xff : header->e_flags & 0xff;
}

bool read_cubin(Bytes image, ptx::Module& module, std::string& problem) {
    File file;
    if (!is_cubin(image)) {
        problem = "no cubin";
        return false;
    }
    if (!read_tables(image, file, problem)) return false;
    std::map<std::string_view, std::uint32_t> registers;
    if (!read_registers(file, registers)) {
        problem = ".nv.info is damaged";
        return false;
    }
    module.target = cubin_target(image);
    for (const Elf64_Sym& symbol : file.symbols) {
        const std::string_view name = file.symbol_name(symbol);
        // Of the functions the kernels are those with a section of their own and the entry mark.
        constexpr unsigned entry_mark = 0x10;
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || (symbol.st_other & entry_mark) == 0 ||
            name.empty() || file.find(text_prefix, name) == nullptr) {
            continue;
        }
        const bool known = std::any_of(module.kernels.begin(), module.kernels.end(),
                                       [&](const ptx::Kernel& other) { return other.name == name; });
        ptx::Kernel kernel;
        if (known || !read_kernel(file, name, kernel)) {
            problem = "the attributes of kernel " + std::string(name) + " are damaged";
            return false;
        }
        kernel.registers_per_thread = std::clamp(registers[name], 1U, model::registers_per_thread);
        module.kernels.push_back(std::move(kernel));
    }
    if (!read_variables(file, module)) {
        problem = "a variable lies outside its section";
        return false;
    }
    return true;
}

}  // namespace fikit::sim
