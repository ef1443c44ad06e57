// Module images before the driver sees them: what leads a reader beyond its end is refused by name.
#include <algorithm>
#include <cstring>
#include <random>
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
};

constexpr uint32_t symbols = 2, strings = 3, relocations = 9;
constexpr size_t sections = 4, table = 64, contents = table + 64 * sections;

// Names, symbols and a relocation by the second symbol; the first section is the names' own.
Bytes elf() {
    Bytes symbol_table(48), relocation(16);
    put(symbol_table, 24, 4);            // its name
    put(symbol_table, 30, uint16_t{2});  // its section
    put(relocation, 12, 1);
    const Section made[sections] = {{0, strings, {'n', 'a', 'm', 0, 'f', 0}},
                                    {1, symbols, symbol_table, 0},
                                    {2, relocations, relocation, 1, 2},
                                    {4, 1, Bytes(16)}};
    Bytes image(contents);
    put(image, 0, 0x464c457f);
    image[4] = 2;
    image[18] = 190;
    put(image, 40, uint64_t{table});
    put(image, 58, uint16_t{64});
    put(image, 60, uint16_t{sections});
    for (size_t at = table; const Section& section : made) {
        put(image, at, section.name);
        put(image, at + 4, section.type);
        put(image, at + 24, uint64_t{image.size()});
        put(image, at + 32, uint64_t{section.content.size()});
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

std::string_view wrong_with(Bytes image) {
    image.push_back(0);
    const char* wrong = check_image(image);
    return wrong == nullptr ? "" : wrong;
}

void what_is_no_image() {
    for (const std::string_view given : {"", "hello", "\x01\x02"})
        CHECK_EQUAL(wrong_with({given.begin(), given.end()}), "neither PTX, ELF nor fatbin");
    CHECK_EQUAL(wrong_with({text.begin(), text.end()}), "");
}

struct Lie {
    size_t at;
    uint32_t value;
    const char* wrong;
};

void an_elf_image() {
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
        {section(2) + 40, 0, "ELF section that refers beyond its end"},
        {section(2) + 44, sections, "ELF section that refers beyond its end"},
        {section(2) + 32, 8, "ELF section that refers beyond its end"},
        {relocation + 12, 2, "ELF section that refers beyond its end"},
    };
    for (const Lie& lie : lies) {
        image = elf();
        put(image, lie.at, lie.value);
        CHECK_EQUAL(wrong_with(image), lie.wrong);
    }
    image = elf();
    put(image, 32, uint64_t{section(2)});
    put(image, 54, uint16_t{56});
    put(image, 56, uint16_t{1});
    CHECK_EQUAL(wrong_with(image), "");
    put(image, section(2) + 32, uint64_t{9999});
    CHECK_EQUAL(wrong_with(image), "ELF segment beyond its end");
}

void a_fat_binary() {
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

void packed_content() {
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

// The sanitizers watch.
void what_was_damaged_is_read_within_its_bounds() {
    std::mt19937 random(7);
    for (int round = 0; round < 50000; ++round) {
        Bytes image = whole();
        for (auto times = 1 + random() % 3; times > 0; --times)
            image[random() % image.size()] = static_cast<uint8_t>(random());
        if (random() % 4 == 0) image.resize(random() % image.size());
        image.shrink_to_fit();
        wrong_with(std::move(image));
    }
}

}  // namespace

int main(int count, char** arguments) {
    const test::Case cases[] = {
        CASE(what_is_no_image),
        CASE(an_elf_image),
        CASE(a_fat_binary),
        CASE(packed_content),
        CASE(what_was_damaged_is_read_within_its_bounds),
    };
    return test::run_cases(cases, count, arguments);
}
