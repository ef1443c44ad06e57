// Images with managed variables: what of them gets the address of the program's memory, and what is left
// alone.
#include <elf.h>

#include <cstring>
#include <string>
#include <vector>

#include "../core/check.hpp"
#include "managed_image.hpp"

using namespace fikit::shim;

namespace {

const std::string head = ".version 8.0\n.target sm_90\n.address_size 64\n";
const std::string variable = ".global .attribute(.managed) .align 4 .u32 total[2] = {7, 8};\n";
constexpr uint64_t address = 0x123456789000;
const std::string number = std::to_string(address);

// The text with `total` placed; empty where it is left alone.
std::string placed(const std::string& text) {
    ManagedVariables variables;
    if (!find_in_ptx(text, variables) || variables.first() == nullptr) return {};
    variables.first()->address = address;
    Bytes out;
    return place_in_ptx(text, variables, out) ? std::string(out.text()) : std::string();
}
// The same of what stands in a kernel's body.
std::string body(const std::string& statement) {
    const std::string before = ".entry k() { .reg .b64 %r<9>; ", after = " ret; }";
    const std::string whole = placed(head + variable + before + statement + after);
    const size_t at = whole.find(before);
    return at == whole.npos
               ? ""
               : whole.substr(at + before.size(), whole.size() - at - before.size() - after.size());
}
std::string held(const std::string& instruction) {
    return "{ .reg .b64 %fikit_managed; mov.b64 %fikit_managed, " + number + "; " + instruction + " }";
}

TEST(test_the_variable_becomes_an_ordinary_one) {
    const std::string kept = " .align 4 .u32 total[2] = {7, 8};\n";
    CHECK(placed(head + variable) == head + ".visible .global " + kept);
    CHECK(placed(head + ".weak " + variable) == head + ".weak .global " + kept);
    ManagedVariables variables;
    CHECK(find_in_ptx(head + variable, variables) && variables.first()->bytes == 8);
    CHECK(std::string(variables.first()->name) == "total");
    CHECK(placed(head + ".global .u32 total;\n").empty());
}

TEST(test_what_names_it_gets_the_address) {
    CHECK(body("mov.u64 %r1, total;") == "mov.u64 %r1, " + number + ";");
    CHECK(body("mov.u64 %r1, total+4;") == "mov.u64 %r1, " + number + "+4;");
    CHECK(body("L: ld.global.u32 %r1, [ total ];") == "L: " + held("ld.global.u32 %r1, [ %fikit_managed ];"));
    CHECK(body("@!%p1 st.global.v2.u32 [total+8], {%r1, %r2};") ==
          held("@!%p1 st.global.v2.u32 [%fikit_managed+8], {%r1, %r2};"));
    CHECK(body("/* total */ .loc 1 2 3, total 4\n total.u32 %r1; // [total]\n") ==
          "/* total */ .loc 1 2 3, total 4\n total.u32 %r1; // [total]\n");
    const std::string pointers = ".global .u64 p[3] = {generic(total)+4, 0, total};\n";
    const std::string whole = placed(head + variable + pointers);
    CHECK(whole.find("{" + number + "+4, 0, " + number + "}") != whole.npos);
}

TEST(test_what_is_not_known_is_left_alone) {
    for (const char* const statement :
         {".reg .b64 total;", "total: ret;", "call f, (total);", "tex.2d.v4.f32.f32 {%r1}, [%r2, total];",
          "atom.global.add.u32 %r1, [total], [total];", "ld.global.u32 %r1, [total"})
        CHECK(body(statement).empty());
    for (const char* const others : {".func total() { ret; }", ".entry k(.param .u32 total) { ret; }",
                                     ".global .b8 p[2] = {0xff(generic(total))};"})
        CHECK(placed(head + variable + others).empty());
    CHECK(placed(".version 8.0\n.target sm_90\n.address_size 32\n" + variable).empty());
    for (const char* const declared : {"u32 total, other;", "u32 total[];", "u32 total[x];", "texref total;"})
        CHECK(placed(head + ".global .attribute(.managed) ." + declared).empty());
}

// Machine code as far as it matters: four places that relocations fill, and a managed variable and another.
struct Code {
    Elf64_Ehdr header = {};
    uint8_t places[48] = {};
    char names[32] = "\0total\0other";
    Elf64_Sym symbols[3] = {};
    Elf64_Rela relocations[5] = {};
    Elf64_Rel implied[1] = {};
    Elf64_Shdr sections[6] = {};

    Code() {
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = ELFCLASS64;
        header.e_shoff = offsetof(Code, sections);
        header.e_shentsize = sizeof(Elf64_Shdr);
        header.e_shnum = 6;
        const auto section = [&](int at, uint32_t type, uint64_t offset, uint64_t size, uint32_t link,
                                 uint32_t info) {
            sections[at].sh_type = type;
            sections[at].sh_offset = offset;
            sections[at].sh_size = size;
            sections[at].sh_link = link;
            sections[at].sh_info = info;
        };
        section(1, SHT_PROGBITS, offsetof(Code, places), sizeof places, 0, 0);
        section(2, SHT_STRTAB, offsetof(Code, names), sizeof names, 0, 0);
        section(3, SHT_SYMTAB, offsetof(Code, symbols), sizeof symbols, 2, 0);
        section(4, SHT_RELA, offsetof(Code, relocations), sizeof relocations, 3, 1);
        section(5, SHT_REL, offsetof(Code, implied), sizeof implied, 3, 1);
        symbols[1] = {1, ELF64_ST_INFO(STB_LOCAL, STT_OBJECT), 4, 1, 0, 24};
        symbols[2] = {7, ELF64_ST_INFO(STB_LOCAL, STT_OBJECT), 0, 1, 24, 8};
        relocations[0] = {0, ELF64_R_INFO(1, 2), 8};
        relocations[1] = {8, ELF64_R_INFO(2, 2), 0};
        relocations[2] = {16, ELF64_R_INFO(1, 0x38), 8};
        relocations[3] = {24, ELF64_R_INFO(2, 0x39), 0};
        relocations[4] = {32, ELF64_R_INFO(1, 0x39), 8};
        implied[0] = {40, ELF64_R_INFO(1, 2)};
        places[40] = 16;
    }
    template <class Number>
    Number at(size_t place) const {
        Number found;
        std::memcpy(&found, places + place, sizeof found);
        return found;
    }
    bool place() {
        ManagedVariables variables;
        auto* const data = reinterpret_cast<uint8_t*>(this);
        if (!find_in_code(data, sizeof *this, variables) || variables.first() == nullptr) return false;
        variables.first()->address = address;
        return place_in_code(data, sizeof *this, variables);
    }
};

TEST(test_machine_code_gets_the_address_where_relocations_would_put_it) {
    Code code;
    CHECK(code.place());
    CHECK(code.at<uint64_t>(0) == address + 8 && code.at<uint64_t>(40) == address + 16);
    CHECK(code.at<uint32_t>(20) == ((address + 8) & 0xffffffff) && code.at<uint32_t>(36) == address >> 32);
    // The other's are still to be filled in by the driver.
    CHECK(code.at<uint64_t>(8) == 0 && code.at<uint64_t>(24) == 0);
    CHECK(code.sections[4].sh_size == 2 * sizeof(Elf64_Rela) && code.sections[5].sh_size == 0);
    CHECK(code.relocations[0].r_offset == 8 && code.relocations[1].r_offset == 24);
    CHECK(code.symbols[1].st_other == 0);
    Code unknown;
    unknown.relocations[2].r_info = ELF64_R_INFO(1, 0x20);
    CHECK(!unknown.place());
    Code beyond;
    beyond.relocations[0].r_offset = 41;
    CHECK(!beyond.place());
}

// Whatever a byte of it is changed to, and wherever it ends, nothing beyond it is touched (sanitizers tell).
TEST(test_damaged_images_do_no_harm) {
    const Code good;
    for (size_t at = 0; at < sizeof good; ++at) {
        for (const unsigned value : {0u, 1u, 0x7fu, 0x80u, 0xffu}) {
            std::vector<uint8_t> bent(sizeof good);
            std::memcpy(bent.data(), &good, sizeof good);
            bent[at] = static_cast<uint8_t>(value);
            ManagedVariables variables;
            if (find_in_code(bent.data(), bent.size(), variables))
                place_in_code(bent.data(), bent.size(), variables);
        }
        std::vector<uint8_t> shorter(reinterpret_cast<const uint8_t*>(&good),
                                     reinterpret_cast<const uint8_t*>(&good) + at);
        ManagedVariables variables;
        if (find_in_code(shorter.data(), at, variables)) place_in_code(shorter.data(), at, variables);
    }
    const std::string text =
        head + variable + ".entry k() { @!%p1 st.global.u32 [total+8], {%r1}; \"x\" /* */ }\n";
    for (size_t size = 0; size < text.size(); ++size)
        for (const char c : {' ', '{', '}', '(', ';', '"', '@', '.', '/'}) {
            placed(text.substr(0, size) + c);
            placed(text.substr(0, size) + c + text.substr(size + 1));
        }
}

}  // namespace
