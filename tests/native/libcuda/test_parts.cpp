// Parts of the libcuda stand-in that need no daemon: messages, images, ranges.
#include <elf.h>

#include <cstring>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "../core/check.hpp"
#include "images.hpp"
#include "messages.hpp"
#include "ranges.hpp"
#include "visible.hpp"

using namespace fikit::shim;

namespace {

TEST(test_a_message_is_read_as_it_was_written) {
    MessageWriter writer;
    writer.map(3);
    writer.text("number");
    writer.number(1ull << 40);
    writer.text("body");
    writer.map(2);
    writer.text("yes");
    writer.boolean(true);
    writer.text("nothing");
    writer.nothing();
    writer.text("name");
    writer.text("value");
    CHECK(!writer.overflowed());
    const MessageReader reader(writer.data(), writer.size());
    size_t length = 0;
    CHECK(reader.whole(length) == MessageReader::State::complete);
    CHECK_EQUAL(length, writer.size());
    uint64_t number = 0;
    CHECK(reader.at("number").number(number) && number == 1ull << 40);
    CHECK(reader.at("body").at("yes").boolean() && !reader.at("body").at("nothing").boolean());
    CHECK(reader.at("name").text() == "value" && !reader.at("missing").exists());
    CHECK(!reader.at("name").number(number) && reader.at("number").text().empty());
    for (size_t size = 0; size < writer.size(); ++size)
        CHECK(MessageReader(writer.data(), size).whole(length) == MessageReader::State::incomplete);
}

TEST(test_a_message_that_nests_too_deep_is_broken) {
    const std::vector<uint8_t> deep(100, 0x91);  // an array of an array of ...
    size_t length = 0;
    CHECK(MessageReader(deep.data(), deep.size()).whole(length) == MessageReader::State::broken);
}

TEST(test_images_are_as_long_as_their_headers_say) {
    Image image;
    CHECK(find_image(".version 7.8\n", image) && image.bytes == 14);

    std::vector<uint8_t> elf(4096);
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_shoff = 512;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 2;
    header.e_phoff = 64;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    Elf64_Shdr sections[2]{};
    sections[0].sh_type = SHT_PROGBITS;
    sections[0].sh_offset = 1000;
    sections[0].sh_size = 700;
    sections[1].sh_type = SHT_NOBITS;  // takes no room
    sections[1].sh_offset = 1000;
    sections[1].sh_size = 1 << 20;
    Elf64_Phdr segment{};
    segment.p_offset = 2000;
    segment.p_filesz = 48;
    std::memcpy(elf.data(), &header, sizeof header);
    std::memcpy(elf.data() + 512, sections, sizeof sections);
    std::memcpy(elf.data() + 64, &segment, sizeof segment);
    CHECK(find_image(elf.data(), image) && image.bytes == 2048);

    struct {
        uint32_t magic = 0xba55ed50;
        uint16_t version = 1, header_bytes = 16;
        uint64_t content_bytes = 100;
    } fatbin;
    CHECK(find_image(&fatbin, image) && image.bytes == 116);
    CHECK(find_wrapped(&fatbin, image) && image.bytes == 116);
    struct {
        uint32_t magic = 0x466243b1, version = 1;
        const void* data;
        const void* others = nullptr;
    } wrapper;
    wrapper.data = &fatbin;
    CHECK(!find_image(&wrapper, image));
    CHECK(find_wrapped(&wrapper, image) && image.bytes == 116 && image.data == &fatbin);
    // Of a program that was linked, the whole, not the first of its parts.
    const void* const parts[] = {elf.data(), nullptr};
    wrapper.others = parts;
    CHECK(find_wrapped(&wrapper, image) && image.data == &fatbin && image.unlinked == nullptr);
    wrapper.version = 2;
    CHECK(find_wrapped(&wrapper, image) && image.data == &fatbin && image.unlinked == parts);
    wrapper.data = &wrapper;
    CHECK(!find_wrapped(&wrapper, image));
}

// A fatbin of entries: their kinds, targets and bytes of content.
struct Entry {
    uint16_t kind;
    uint32_t target;
    uint64_t bytes;
};

std::vector<uint8_t> fatbin_of(const std::vector<Entry>& entries) {
    std::vector<uint8_t> fatbin(16);
    for (const Entry& entry : entries) {
        std::vector<uint8_t> header(64);
        const uint32_t header_bytes = 64;
        std::memcpy(header.data(), &entry.kind, 2);
        std::memcpy(header.data() + 4, &header_bytes, 4);
        std::memcpy(header.data() + 8, &entry.bytes, 8);
        std::memcpy(header.data() + 28, &entry.target, 4);
        fatbin.insert(fatbin.end(), header.begin(), header.end());
        fatbin.insert(fatbin.end(), entry.bytes, static_cast<uint8_t>(entry.target));
    }
    const uint32_t magic = 0xba55ed50, version = 1 | 16 << 16;
    const uint64_t content = fatbin.size() - 16;
    std::memcpy(fatbin.data(), &magic, 4);
    std::memcpy(fatbin.data() + 4, &version, 4);
    std::memcpy(fatbin.data() + 8, &content, 8);
    return fatbin;
}

std::vector<uint8_t> useful(const std::vector<uint8_t>& fatbin, int major) {
    Image image;
    CHECK(find_image(fatbin.data(), image) && image.bytes == fatbin.size());
    const UsefulParts found(image, major);
    std::vector<uint8_t> whole;
    for (const fikit::Part& part : found.parts()) {
        const auto* data = static_cast<const uint8_t*>(part.data);
        whole.insert(whole.end(), data, data + part.bytes);
    }
    CHECK(whole.size() == found.bytes());
    return whole;
}

TEST(test_of_a_fatbin_what_the_device_can_run_is_useful) {
    constexpr uint16_t ptx = 1, machine_code = 2, other = 16;
    const Entry old{machine_code, 75, 640}, ours{machine_code, 90, 320}, next{machine_code, 100, 800};
    const Entry text{ptx, 120, 64}, unknown{other, 75, 32};
    const auto all = fatbin_of({old, ours, next, unknown, text});
    CHECK(useful(all, 9) == fatbin_of({ours, unknown, text}));
    CHECK(useful(all, 7) == fatbin_of({old, unknown, text}));
    CHECK(useful(all, 8) == fatbin_of({unknown, text}));
    // Nothing for the device: the driver is to say so.
    CHECK(useful(fatbin_of({old, next}), 9) == fatbin_of({old, next}));
    CHECK(useful(fatbin_of({old, unknown}), 9) == fatbin_of({old, unknown}));
    // More pieces than are kept track of.
    std::vector<Entry> many;
    for (int i = 0; i < 40; ++i) many.insert(many.end(), {old, ours});
    CHECK(useful(fatbin_of(many), 9) == fatbin_of(many));
    // Entries that do not add up.
    for (const size_t at : {size_t{16 + 4}, size_t{16 + 8}}) {
        auto wrong = all;
        const uint32_t large = 1 << 30;
        std::memcpy(wrong.data() + at, &large, 4);
        CHECK(useful(wrong, 9) == wrong);
    }
}

TEST(test_ranges_know_whose_an_address_is) {
    static Ranges ranges;  // there until the process ends, as the library has it
    Range found;
    CHECK(!ranges.find(1000, found));
    for (uint64_t address : {5000u, 1000u, 3000u})
        CHECK(ranges.add({.address = address, .bytes = 500, .kind = Range::Kind::device}));
    CHECK(ranges.find(3499, found) && found.address == 3000);
    CHECK(!ranges.find(3500, found) && !ranges.find(999, found));
    CHECK(!ranges.take(3000, Range::Kind::pinned, found) && !ranges.take(3001, Range::Kind::device, found));
    CHECK(ranges.find(3000, found));
    const uint64_t id = found.id;
    CHECK(ranges.take(3000, Range::Kind::device, found) && !ranges.find(3000, found));
    CHECK(ranges.add({.address = 3000, .bytes = 100, .kind = Range::Kind::pinned}));
    CHECK(ranges.find(3050, found) && !found.on_device() && found.id != id);
}

TEST(test_only_mappings_go_on_behind_their_end) {
    static Ranges ranges;
    Range found;
    for (const uint64_t address : {1000u, 1500u, 2000u, 3000u})
        CHECK(ranges.add({.address = address, .bytes = 500, .kind = Range::Kind::mapped}));
    CHECK(ranges.add({.address = 4000, .bytes = 500, .kind = Range::Kind::device}));
    CHECK(ranges.add({.address = 4500, .bytes = 500, .kind = Range::Kind::device}));
    using Held = Ranges::Held;
    const auto held = [&](uint64_t address, uint64_t bytes) { return ranges.find(address, bytes, found); };
    CHECK(held(1100, 400) == Held::wholly && held(1100, 1400) == Held::wholly && found.address == 1000);
    CHECK(held(1100, 1401) == Held::partly && held(1100, UINT64_MAX) == Held::partly);
    CHECK(held(4100, 400) == Held::wholly && held(4100, 401) == Held::partly && found.address == 4000);
    CHECK(held(2500, 1) == Held::nowhere && held(999, 2) == Held::nowhere);
}

TEST(test_ranges_of_a_program_with_many) {
    static Ranges ranges;
    std::map<uint64_t, uint64_t> expected;  // bytes, by address
    std::mt19937 random(1);
    Range found;
    for (unsigned turn = 0; turn < 20000; ++turn) {
        const uint64_t address = 1000 * (1 + random() % 3000), offset = random() % 1000;
        const auto there = expected.find(address);
        if (turn % 4000 < 3000) {
            expected[address] = 100 + random() % 900;
            CHECK(ranges.add({.address = address, .bytes = expected[address], .kind = Range::Kind::device}));
        } else if (there == expected.end()) {
            CHECK(!ranges.take(address, Range::Kind::device, found));
        } else {
            CHECK(ranges.take(address, Range::Kind::device, found) && found.bytes == there->second);
            expected.erase(there);
        }
        const auto holder = expected.find(address);
        CHECK(ranges.find(address + offset, found) == (holder != expected.end() && offset < holder->second));
        const auto next = expected.upper_bound(address);
        CHECK(ranges.meet(address + 999, 3000, found) ==
              ((holder != expected.end() && holder->second > 999) ||
               (next != expected.end() && next->first < address + 3999)));
    }
    for (const auto& [address, bytes] : expected)
        CHECK(ranges.take_first(0, UINT64_MAX, Range::Kind::device, found) && found.address == address &&
              found.bytes == bytes);
    CHECK(!ranges.take_first(0, UINT64_MAX, Range::Kind::device, found));
}

TEST(test_another_range_costs_little_beside_many) {
    static Ranges ranges;
    Range found;
    const clock_t begin = clock();
    for (uint64_t address = 100'000; address > 0; --address)
        CHECK(ranges.add({.address = address, .bytes = 1, .kind = Range::Kind::device}));
    for (uint64_t address = 1; address <= 100'000; ++address)
        CHECK(ranges.take(address, Range::Kind::device, found));
    CHECK(clock() - begin < 3 * CLOCKS_PER_SEC);
}

// "!": it is an error.
std::string chosen_of(const char* wished) {
    const char* const uuids[] = {"GPU-aa01", "GPU-aa02", "GPU-bb01"};
    unsigned chosen[3], count = 0;
    if (!VisibleDevices{uuids, 3}.choose(wished, chosen, count)) return "!";
    std::string text;
    for (unsigned i = 0; i < count; ++i) text += std::to_string(chosen[i]);
    return text;
}

TEST(test_programs_say_which_gpus_they_see) {
    CHECK(chosen_of(nullptr) == "012" && chosen_of("").empty() && chosen_of(" ").empty());
    CHECK(chosen_of("2,0") == "20" && chosen_of("1") == "1" && chosen_of("0,1,2") == "012");
    CHECK(chosen_of("1,3,0") == "1" && chosen_of("1,-1,0") == "1" && chosen_of("-1").empty());
    CHECK(chosen_of("0,") == "0" && chosen_of(",0").empty() && chosen_of("0,,1") == "0");
    CHECK(chosen_of("1,0,7") == "10" && chosen_of("1,zz,0") == "1" && chosen_of("1,a0") == "1");
    CHECK(chosen_of("0,0") == "!" && chosen_of("1,0,0") == "!");
}

// What stands behind a number is no matter, and the number itself is an int.
TEST(test_numbers_of_gpus_are_read_as_the_driver_does) {
    for (const char* first : {"1", " 1", "+1", "01", "1 ", "1\t", "1abc", "1.0", "1;2", "1:2", "4294967297"})
        CHECK(chosen_of((std::string(first) + ",0").c_str()) == "10");
    CHECK(chosen_of("0x1") == "0" && chosen_of("-0") == "0" && chosen_of("1, 0") == "10");
    for (const char* none : {"none", "all", "MIG-GPU-aa01", "99999999999999999999"})
        CHECK(chosen_of(none).empty());
}

TEST(test_a_whole_uuid_may_follow_mig) {
    CHECK(chosen_of("MIG-bb01,MIG-AA01") == "20" && chosen_of("MIG-aa02,GPU-aa01") == "10");
    for (const char* none : {"MIG-", "MIG-bb", "MIG-bb01/0/0", "MIG-cc01", "mig-bb01"})
        CHECK(chosen_of(none).empty());
    CHECK(chosen_of("MIG-bb01,0") == "2" && chosen_of("MIG-bb01,GPU-bb01") == "!");
}

TEST(test_there_are_two_orders_of_gpus) {
    for (const char* order : {"FASTEST_FIRST", "PCI_BUS_ID", "pci_bus_id", ""}) CHECK(known_order(order));
    for (const char* order : {"PCI", "PCI_BUS_ID ", "0", "SLOWEST_FIRST"}) CHECK(!known_order(order));
    CHECK(known_order(nullptr));
}

TEST(test_uuids_of_gpus_are_read_as_the_driver_does) {
    CHECK(chosen_of("GPU-b,GPU-aa02") == "21" && chosen_of("GPU-BB") == "2");
    CHECK(chosen_of("GPU-aa,0").empty());  // two begin so
    CHECK(chosen_of("GPU-").empty() && chosen_of("gpu-bb01").empty() && chosen_of(" GPU-bb01").empty());
    for (const char* first : {"GPU-bb01", "GPU-bb01 ", "GPU-bb01x", "GPU-bb01;GPU-aa01", "GPU-bb01:0"})
        CHECK(chosen_of((std::string(first) + ",GPU-aa01").c_str()) == "20");
    CHECK(chosen_of("GPU-bb01, GPU-aa01") == "2" && chosen_of("GPU-bb01,GPU-bb01") == "!");
    CHECK(chosen_of("GPU-bb01,0") == "2" && chosen_of("1,GPU-aa01") == "1");  // one kind or the other
}

}  // namespace
