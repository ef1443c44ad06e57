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

Bytes elf() {
    Bytes image(64 + 2 * 64 + 16);
    put(image, 0, 0x464c457f);
    image[4] = 2;
    put(image, 40, uint64_t{64});  // section table
    put(image, 58, uint16_t{64});
    put(image, 60, uint16_t{2});
    put(image, 64 + 64 + 24, uint64_t{64 + 2 * 64});  // the second section's place and size
    put(image, 64 + 64 + 32, uint64_t{16});
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

Bytes whole() {
    Bytes entries = entry(machine_code, elf());
    append(entries, entry(ptx, {text.begin(), text.end()}));
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

void an_elf_image() {
    CHECK_EQUAL(wrong_with(elf()), "");
    Bytes image = elf();
    image.pop_back();
    CHECK_EQUAL(wrong_with(image), "ELF section beyond its end");
    image.resize(100);
    CHECK_EQUAL(wrong_with(image), "ELF section table beyond its end");
    image = elf();
    put(image, 40, ~uint64_t{0});
    CHECK_EQUAL(wrong_with(image), "ELF section table beyond its end");
}

struct Lie {
    size_t at;
    uint32_t value;
    const char* wrong;
};

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
}

void packed_content() {
    Bytes packed = entry(machine_code, Bytes(8));
    put(packed, 40, uint64_t{0x2011});
    CHECK_EQUAL(wrong_with(fatbin(packed)), "packed fatbin entry without content");
    put(packed, 16, 8);
    CHECK_EQUAL(wrong_with(fatbin(packed)), "packed fatbin entry without content");
    put(packed, 56, uint64_t{1} << 30);
    CHECK_EQUAL(wrong_with(fatbin(packed)), "");
    put(packed, 56, uint64_t{1} << 40);
    CHECK_EQUAL(wrong_with(fatbin(packed)), "fatbin entry of more than 1 GiB");
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
