// Module images before the driver sees them: what leads a reader beyond its end is refused by name.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "images.hpp"

using namespace fikit;

namespace {

using Bytes = std::vector<uint8_t>;

template <class Value>
void put(Bytes& into, size_t at, Value value) {
    std::memcpy(into.data() + at, &value, sizeof value);
}

void append(Bytes& into, const Bytes& more) {
    const size_t at = into.size();
    into.resize(at + more.size());
    std::ranges::copy(more, into.begin() + static_cast<std::ptrdiff_t>(at));
}

struct Section {
    uint32_t name, type;
    Bytes content;
    uint32_t link = 0, info = 0;
    uint64_t missing = 0;  // so many bytes it has no content for
};

constexpr uint32_t symbols = 2, strings = 3, relocations = 9;
constexpr size_t sections = 4, table = 64, contents = table + 64 * sections;

constexpr uint8_t gpus = 190, hosts = 62;

// Names, symbols, a relocation by the second symbol, and a section of code; the first section is the names'
// own.
Bytes elf(std::string_view code = "f", const Bytes& content = Bytes(16), uint8_t machine = gpus,
          uint64_t missing = 0) {
    Bytes names = {'n', 'a', 'm', 0};
    names.insert(names.end(), code.begin(), code.end());
    names.push_back(0);
    Bytes symbol_table(48), relocation(16);
    put(symbol_table, 24, 4);            // its name
    put(symbol_table, 30, uint16_t{2});  // its section
    put(relocation, 12, 1);
    const Section made[sections] = {{0, strings, names},
                                    {1, symbols, symbol_table, 0},
                                    {2, relocations, relocation, 1, 2},
                                    {4, missing > 0 ? 8u : 1u, content, 0, 0, missing}};
    Bytes image(contents);
    put(image, 0, 0x464c457f);
    image[4] = 2;
    image[18] = machine;
    put(image, 40, uint64_t{table});
    put(image, 58, uint16_t{64});
    put(image, 60, uint16_t{sections});
    for (size_t at = table; const Section& section : made) {
        put(image, at, section.name);
        put(image, at + 4, section.type);
        put(image, at + 24, uint64_t{image.size()});
        put(image, at + 32, uint64_t{section.content.size()} + section.missing);
        put(image, at + 40, section.link);
        put(image, at + 44, section.info);
        append(image, section.content);
        at += 64;
    }
    return image;
}

constexpr size_t header = 80;

// As nvcc writes one: with options that are empty, and no name.
Bytes entry(uint16_t kind, const Bytes& content) {
    Bytes made(header);
    put(made, 0, kind);
    put(made, 2, uint16_t{0x101});
    put(made, 4, uint32_t{header});
    put(made, 8, uint64_t{content.size()});
    put(made, 20, uint32_t{64});
    put(made, 28, 90);
    put(made, 40, uint64_t{0x11});
    put(made, 64, uint32_t{72});
    append(made, content);
    return made;
}

constexpr uint16_t ptx = 1, machine_code = 2;
constexpr std::string_view text = ".version 8.0 .target sm_90 ";

Bytes fatbin(const Bytes& entries) {
    Bytes made(16);
    put(made, 0, 0xba55ed50);
    put(made, 4, uint16_t{1});
    put(made, 6, uint16_t{16});
    put(made, 8, uint64_t{entries.size()});
    append(made, entries);
    return made;
}

// Sixteen bytes: six as they are, eight of those again, and two.
const Bytes lz4 = {0x64, 'a', 'b', 'c', 'd', 'e', 'f', 6, 0, 0x20, 'x', 'y'};

Bytes packed(uint16_t kind, Bytes content, uint64_t unpacked, uint64_t how = 0x2011) {
    const size_t size = content.size();
    content.resize((size + 7) / 8 * 8);
    Bytes made = entry(kind, content);
    put(made, 16, static_cast<uint32_t>(size));
    put(made, 40, how);
    put(made, 56, unpacked);
    return fatbin(made);
}

Bytes whole() {
    Bytes entries = entry(machine_code, elf());
    append(entries, entry(ptx, {text.begin(), text.end()}));
    const Bytes last = packed(ptx, lz4, 16);
    append(entries, {last.begin() + 16, last.end()});
    return fatbin(entries);
}

Bytes joined(Bytes bytes, const Bytes& more) {
    append(bytes, more);
    return bytes;
}

Bytes aligned(Bytes bytes) {
    bytes.resize((bytes.size() + 7) / 8 * 8);
    return bytes;
}

// What g++ makes of what nvcc gives it.
Bytes object(const Bytes& fatbins = aligned(whole())) { return elf(".nv_fatbin", fatbins, hosts); }

Bytes member(std::string_view name, const Bytes& content) {
    Bytes made(60, ' ');
    std::ranges::copy(name, made.begin());
    std::ranges::copy(std::to_string(content.size()), made.begin() + 48);
    made[58] = '`';
    made[59] = '\n';
    append(made, content);
    if (made.size() % 2 != 0) made.push_back('\n');
    return made;
}

// One symbol, which the first member after these two defines.
const Bytes symbol_table = {0, 0, 0, 1, 0, 0, 0, 8 + 60 + 12 + 60 + 10, 't', 'w', 'o', 0};
const Bytes long_names = {'l', 'o', 'n', 'g', '.', 'o', '/', '\n', 'x', '\n'};

Bytes archive(const Bytes& symbols_of, std::string_view name, const Bytes& content) {
    constexpr std::string_view magic = "!<arch>\n";
    Bytes made(magic.begin(), magic.end());
    append(made, member("/", symbols_of));
    append(made, member("//", long_names));
    append(made, member("short.o/", object()));
    append(made, member(name, content));
    return made;
}
Bytes archive() { return archive(symbol_table, "/0", elf()); }

std::string_view told(const char* wrong) { return wrong == nullptr ? "" : wrong; }

std::string_view wrong_with(Bytes image) {
    image.push_back(0);
    return told(check_image(image));
}

std::string_view wrong_in_link(Bytes image) {
    image.push_back(0);
    return told(check_linked(image));
}

TEST(what_is_no_image) {
    for (const std::string_view given : {"", "hello", "\x01\x02"})
        CHECK_EQUAL(wrong_with({given.begin(), given.end()}), "neither PTX, ELF nor fatbin");
    CHECK_EQUAL(wrong_with({text.begin(), text.end()}), "");
}

struct Lie {
    size_t at;
    uint32_t value;
    const char* wrong;
};

TEST(an_elf_image) {
    CHECK_EQUAL(wrong_with(elf()), "");
    Bytes image = elf();
    image.pop_back();
    CHECK_EQUAL(wrong_with(image), "ELF section beyond its end");
    image.resize(100);
    CHECK_EQUAL(wrong_with(image), "ELF section table beyond its end");
    constexpr auto section = [](size_t index) { return table + 64 * index; };
    constexpr size_t symbol = contents + 6 + 24, relocation = symbol + 24;
    const Lie lies[] = {
        {16, 62 << 16, "not a 64-bit ELF image for GPUs"},
        {40, ~0u, "ELF section table beyond its end"},
        {58, 40 | sections << 16, "ELF section table beyond its end"},
        {60, sections + 9, "ELF section table beyond its end"},
        {60, sections | sections << 16, "ELF image without names of its sections"},
        {56, 1 | 64 << 16, "ELF program headers beyond its end"},
        {section(0) + 4, symbols, "ELF image without names of its sections"},
        {section(0) + 32, 5, "ELF image without names of its sections"},
        {section(0) + 32, 0, "ELF image without names of its sections"},
        {section(3), 6, "name of an ELF section beyond its end"},
        {section(3) + 40, sections, "ELF section that refers beyond its end"},
        {section(1) + 40, 1, "ELF section that refers beyond its end"},
        {section(1) + 32, 40, "ELF section that refers beyond its end"},
        {symbol, 6, "ELF section that refers beyond its end"},
        {symbol + 4, sections << 16, "ELF section that refers beyond its end"},
        {section(2) + 40, sections, "ELF section that refers beyond its end"},
        {section(2) + 44, sections, "ELF section that refers beyond its end"},
        {section(2) + 32, 8, "ELF section that refers beyond its end"},
        {relocation + 12, 2, "ELF section that refers beyond its end"},
    };
    for (const Lie& lie : lies) {
        image = elf();
        put(image, lie.at, lie.value);
        CHECK_EQUAL(wrong_with(image), lie.wrong);
    }
    for (const uint32_t empty : {8u, 0x70000007u, 0x70000009u, 0x7000000au}) {  // as before they are linked
        image = elf();
        put(image, section(3) + 4, empty);
        put(image, section(3) + 32, uint64_t{12000});
        CHECK_EQUAL(wrong_with(image), "");
    }
    image = elf();
    put(image, section(2) + 40, 0);  // not the symbols: as in cuBLASLt's kernels
    CHECK_EQUAL(wrong_with(image), "");
    put(image, relocation + 12, 2);
    CHECK_EQUAL(wrong_with(image), "ELF section that refers beyond its end");
    image = elf();
    put(image, section(1) + 4, 1);  // there are no symbols
    CHECK_EQUAL(wrong_with(image), "ELF section that refers beyond its end");
    image = elf();
    put(image, 32, uint64_t{section(2)});
    put(image, 54, uint16_t{56});
    put(image, 56, uint16_t{1});
    CHECK_EQUAL(wrong_with(image), "");
    put(image, section(2) + 32, uint64_t{9999});
    CHECK_EQUAL(wrong_with(image), "ELF segment beyond its end");

    // Sections may share bytes, but to read all of them must take no more than some times as long.
    for (const size_t more : {5u, 12u}) {
        image = elf();
        const size_t all = image.size();
        put(image, 40, uint64_t{all});
        put(image, 60, static_cast<uint16_t>(sections + more));
        append(image, Bytes(image.begin() + table, image.begin() + contents));
        image.resize(image.size() + 64 * more);
        for (size_t i = sections; i < sections + more; ++i) {
            put(image, all + 64 * i + 4, 1u);
            put(image, all + 64 * i + 32, uint64_t{image.size()});
        }
        CHECK_EQUAL(wrong_with(image), more == 5 ? "" : "ELF sections that are all in one place");
    }
}

TEST(a_fat_binary) {
    CHECK_EQUAL(wrong_with(whole()), "");
    CHECK_EQUAL(wrong_with(fatbin({})), "");
    const Lie lies[] = {
        {4, 63, "fatbin entry beyond its end"},
        {4, 1u << 30, "fatbin entry beyond its end"},
        {8, 1u << 20, "fatbin entry beyond its end"},
        {12, 1, "fatbin entry beyond its end"},
        {16, 1u << 20, "packed content of a fatbin entry beyond its end"},
        {20, 76, "options of a fatbin entry beyond its header"},
        {64, 81, "options of a fatbin entry beyond its header"},
        {68, ~0u, "options of a fatbin entry beyond its header"},
        {32, 81, "name of a fatbin entry beyond its header"},
        {36, 81, "name of a fatbin entry beyond its header"},
        {header + 40, 1u << 20, "ELF section table beyond its end"},
    };
    for (const Lie& lie : lies) {
        Bytes entries = entry(machine_code, elf());
        put(entries, lie.at, lie.value);
        append(entries, entry(ptx, Bytes(200)));  // so that what is beyond an entry need not be beyond all
        entries.resize(header + elf().size() + (lie.at == 8 ? 0 : header + 200));
        CHECK_EQUAL(wrong_with(fatbin(entries)), lie.wrong);
    }
    Bytes bare = entry(ptx, {text.begin(), text.end()});
    put(bare, 20, 0);
    CHECK_EQUAL(wrong_with(fatbin(bare)), "fatbin entry of PTX without options");
    put(bare, 20, 64);
    put(bare, 72, ~uint64_t{0});  // they are read up to a NUL
    CHECK_EQUAL(wrong_with(fatbin(bare)), "options of a fatbin entry beyond its header");
}

TEST(packed_content) {
    CHECK_EQUAL(wrong_with(packed(ptx, lz4, 16)), "");
    CHECK_EQUAL(wrong_with(packed(ptx, {}, 16)), "packed fatbin entry without content");
    CHECK_EQUAL(wrong_with(packed(ptx, lz4, 0)), "packed fatbin entry without content");
    CHECK_EQUAL(wrong_with(packed(ptx, lz4, uint64_t{1} << 40)), "fatbin entry of more than 1 GiB");
    constexpr uint64_t zstd = 0x8011, own = 0x12011;
    CHECK_EQUAL(wrong_with(packed(machine_code, lz4, 99, zstd)), "");  // the driver looks itself
    CHECK_EQUAL(wrong_with(packed(8, lz4, 99, own)), "");
    const std::string_view damaged = "damaged content of a fatbin entry";
    for (const uint64_t unpacked : {15, 17, 99}) {
        CHECK_EQUAL(wrong_with(packed(ptx, lz4, unpacked)), damaged);
    }
    for (const uint64_t how : {own, zstd | 0x2000, uint64_t{0x4011}})
        CHECK_EQUAL(wrong_with(packed(machine_code, lz4, 16, how)),
                    "fatbin entry that is packed in an unknown way");
    for (size_t size = 1; size < lz4.size(); ++size)
        CHECK_EQUAL(
            wrong_with(packed(ptx, {lz4.begin(), lz4.begin() + static_cast<std::ptrdiff_t>(size)}, 16)),
            damaged);
    for (const auto& [at, value] :
         {std::pair{0, 0x65}, {0, 0xf4}, {7, 0}, {7, 7}, {8, 1}, {9, 0x30}, {9, 0x10}}) {
        Bytes wrong = lz4;
        wrong[static_cast<size_t>(at)] = static_cast<uint8_t>(value);
        CHECK_EQUAL(wrong_with(packed(ptx, wrong, 16)), damaged);
    }
    // Lengths of more than fifteen.
    Bytes longer = {0xff, 255, 1};
    longer.resize(3 + 271, 'a');
    append(longer, {1, 0, 10, 0x10, 'z'});
    CHECK_EQUAL(wrong_with(packed(ptx, longer, 271 + 29 + 1)), "");
    CHECK_EQUAL(wrong_with(packed(ptx, longer, 271 + 29)), damaged);
}

TEST(what_is_linked) {
    for (const Bytes& given :
         {Bytes(text.begin(), text.end()), elf(), whole(), object(), object({}), archive()})
        CHECK_EQUAL(wrong_in_link(given), "");
    CHECK_EQUAL(wrong_in_link(elf("f", Bytes(16), hosts)), "");  // of the host's code alone
    CHECK_EQUAL(wrong_in_link({'B', 'C'}), "neither PTX, ELF nor fatbin");
    CHECK_EQUAL(wrong_with(object()), "not a 64-bit ELF image for GPUs");

    const Bytes two = object(joined(fatbin({}), fatbin(entry(machine_code, elf()))));
    CHECK_EQUAL(wrong_in_link(two), "");
    Bytes damaged = two;
    damaged.erase(damaged.end() - 8, damaged.end());
    CHECK_EQUAL(wrong_in_link(damaged), "ELF section beyond its end");
    const std::string_view mixed = "object file with something else among its fatbins";
    CHECK_EQUAL(wrong_in_link(object(joined(fatbin({}), Bytes(16)))), mixed);
    CHECK_EQUAL(wrong_in_link(object({1})), mixed);
    CHECK_EQUAL(wrong_in_link(object(fatbin(Bytes(63)))), "fatbin entry beyond its end");
    Bytes endless = fatbin({});
    put(endless, 6, uint16_t{0});  // behind which the next fatbin would be itself
    CHECK_EQUAL(wrong_in_link(object(endless)), "fatbin beyond its end");
    damaged = object();
    damaged[4] = 1;
    CHECK_EQUAL(wrong_in_link(damaged), "not a 64-bit object file");
}

TEST(an_archive) {
    CHECK_EQUAL(wrong_in_link(archive(symbol_table, "/8", object())), "");
    const std::string_view beyond = "name of an archive member beyond its end";
    CHECK_EQUAL(wrong_in_link(archive(symbol_table, "/10", elf())), beyond);
    CHECK_EQUAL(wrong_in_link(archive(symbol_table, "/0x", elf())), beyond);
    CHECK_EQUAL(wrong_in_link(archive(symbol_table, "b.o/", Bytes(3))),
                "neither an object file nor a fatbin");
    CHECK_EQUAL(wrong_in_link(archive(symbol_table, "b.o/", elf("f", Bytes(16), 3))), "");
    for (const auto& [at, value] : {std::pair{3, 2}, {0, 1}, {4, 1}, {11, 'x'}}) {
        Bytes changed = symbol_table;
        changed[static_cast<size_t>(at)] = static_cast<uint8_t>(value);
        CHECK_EQUAL(wrong_in_link(archive(changed, "b.o/", elf())), "damaged symbol table of an archive");
    }
    CHECK_EQUAL(wrong_in_link(archive({0}, "b.o/", elf())), "damaged symbol table of an archive");
    for (const auto& [at, value] : {std::pair{8 + 58, 'x'}, {8 + 59, ' '}, {8 + 48, ' '}, {8 + 50, '-'}}) {
        Bytes damaged = archive();
        damaged[static_cast<size_t>(at)] = static_cast<uint8_t>(value);
        CHECK_EQUAL(wrong_in_link(damaged), "damaged header in an archive");
    }
    Bytes damaged = archive();
    damaged.pop_back();
    CHECK_EQUAL(wrong_in_link(damaged), "archive member beyond its end");
    damaged = archive();
    damaged.push_back(' ');
    CHECK_EQUAL(wrong_in_link(damaged), "damaged header in an archive");
}

uint64_t bytes_of(Bytes image, int major = 9) {
    image.push_back(0);
    return variable_bytes(image, major);
}
uint64_t bytes_of(std::string_view code) { return bytes_of(Bytes(code.begin(), code.end())); }

TEST(variables_of_ptx) {
    CHECK_EQUAL(bytes_of(".version 8.0\n.target sm_90\n"), 0u);
    CHECK_EQUAL(bytes_of(".visible .global .align 4 .b8 x[4026531840];"), 4026531840u);
    CHECK_EQUAL(bytes_of(".global.align 8.u64 a[0x10U][3], b;.global .v4 .f32 c[010];"),
                8 * 48 + 8 + 16 * 8u);
    CHECK_EQUAL(bytes_of(".global .f16x2 h[5]; .global .b128 w; .global .texref t; .global .u16 o[0b11];"),
                4 * 5 + 16 + 6u);
    CHECK_EQUAL(
        bytes_of(".global .align 4 .u32 x[] = {1, 2, generic(y), 4}, y = 7; .weak .global .s8 z[2] = {0};"),
        4 * 4 + 4 + 2u);
    CHECK_EQUAL(bytes_of(".extern .global .b8 x[100]; .extern .shared .b8 s[]; .const .b8 k[9];"), 0u);
    CHECK_EQUAL(bytes_of("/* .global .b8 x[1]; */ // .global .b8 x[2];\n .pragma \".global .b8 x[4];\"; "
                         "/**/.global/**/.b8/* x */ x /*[*/ [8];"),
                8u);
    // No declarations: instructions, and what is said of parameters.
    CHECK_EQUAL(
        bytes_of(".visible .entry k(.param .u64 .ptr .global .align 4 p, .param .u32 q) .maxntid 32, 1, 1\n"
                 "{ .reg .u64 %a; ld.param.u64 %a, [p]; cvta.to.global.u64 %a, %a; $L1: "
                 "st.global.u32 [%a+4], 7; atom.global .add.u32 r, [%a], 1; ret; } .global .b8 x[3];"),
        3u);
    // Managed ones are some, too.
    CHECK_EQUAL(bytes_of(".global .attribute(.managed) .align 4 .b32 m[2];"), 8u);
    for (const char* untold :
         {".global .b8 x[1 + 1];", ".global .b8 x[N];", ".global .b8 x[08];",
          ".global .b8 x[18446744073709551616];", ".global .u64 x[4][1 << 20];", ".global .b8 x["})
        CHECK_EQUAL(bytes_of(untold), UINT64_MAX);
    CHECK_EQUAL(bytes_of(".global .u64 x[0x2000000000000000];"), UINT64_MAX);
}

TEST(variables_of_machine_code) {
    const Bytes without = elf(), bare = elf(".nv.global", Bytes(), gpus, 3000), with = elf(".nv.global.init");
    CHECK_EQUAL(bytes_of(without), 0u);
    CHECK_EQUAL(bytes_of(bare), 3000u);
    CHECK_EQUAL(bytes_of(with), 16u);
    CHECK_EQUAL(bytes_of(elf(".nv.shared.f", Bytes(), gpus, 3000)), 0u);
    const std::string_view declares = ".global .b8 x[5000];";
    Bytes entries = entry(machine_code, bare);
    append(entries, entry(ptx, Bytes(declares.begin(), declares.end())));
    append(entries, entry(machine_code, with));
    CHECK_EQUAL(wrong_with(fatbin(entries)), "");
    CHECK_EQUAL(bytes_of(fatbin(entries)), 5000u);
    const Bytes unread = packed(machine_code, lz4, 16);
    CHECK_EQUAL(wrong_with(unread), "");
    CHECK_EQUAL(bytes_of(unread), 0u);
    const auto packed_as = [](uint16_t kind, const Bytes& content, uint32_t target = 90) {
        Bytes sequence = {0xf0};  // literals alone
        for (size_t left = content.size() - 15;; left -= 255) {
            sequence.push_back(static_cast<uint8_t>(std::min<size_t>(left, 255)));
            if (left < 255) break;
        }
        append(sequence, content);
        Bytes made = packed(kind, sequence, content.size());
        put(made, 16 + 28, target);
        return made;
    };
    CHECK_EQUAL(wrong_with(packed_as(machine_code, bare)), "");
    CHECK_EQUAL(bytes_of(packed_as(machine_code, bare)), 3000u);
    CHECK_EQUAL(bytes_of(packed_as(machine_code, bare), 0), 0u);
    CHECK_EQUAL(bytes_of(packed_as(machine_code, bare, 80)), 0u);  // not for this GPU
    CHECK_EQUAL(bytes_of(packed_as(ptx, Bytes(declares.begin(), declares.end()), 50)), 5000u);
    Bytes damaged = bare;
    put(damaged, 40, uint64_t{1} << 40);
    CHECK_EQUAL(bytes_of(packed_as(machine_code, damaged)), UINT64_MAX);
}

// The sanitizers watch.
TEST(what_was_damaged_is_read_within_its_bounds) {
    std::mt19937 random(7);
    for (int round = 0; round < 50000; ++round) {
        Bytes image = round % 2 == 0 ? whole() : archive();
        for (auto times = 1 + random() % 3; times > 0; --times)
            image[random() % image.size()] = static_cast<uint8_t>(random());
        if (random() % 4 == 0) image.resize(random() % image.size());
        image.shrink_to_fit();
        if (Bytes copy = image; wrong_with(copy).empty()) bytes_of(std::move(copy));
        wrong_in_link(std::move(image));
    }
    for (int round = 0; round < 20000; ++round) {
        std::string code = ".visible .global .align 4 .b8 x[0x10U][3] = {1, 2}, y; /* */ // \n \"";
        for (auto times = 1 + random() % 3; times > 0; --times)
            code[random() % code.size()] = static_cast<char>(random());
        bytes_of(std::string_view(code).substr(random() % code.size()));
    }
}

}  // namespace
