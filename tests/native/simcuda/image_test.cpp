// What is taken out of fat binaries, and how packed data is refused.
#include "image.hpp"

#include <cstring>

#include "check.hpp"
#include "fatbin.hpp"
#include "fatbin_entries.hpp"

using namespace fikit::sim;

namespace {

Bytes bytes_of(const std::string& text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

bool expands(const std::string& packed, const std::string& expected) {
    std::vector<std::byte> out(expected.size());
    return fikit::fatbin::expand_lz4(bytes_of(packed), out) &&
           std::memcmp(out.data(), expected.data(), out.size()) == 0;
}

}  // namespace

TEST(lz4_literals_and_matches) {
    CHECK(expands(std::string("\x40wxyz", 5), "wxyz"));
    // "ab", then six bytes from two back, then the last literals.
    CHECK(expands(std::string("\x22"
                              "ab\x02\x00\x10!",
                              7),
                  "abababab!"));
    CHECK(!expands(std::string("\x22"
                               "ab\x03\x00\x10!",
                               7),
                   "abababab!"));  // from before the beginning
    CHECK(!expands(std::string("\x40wxy", 4), "wxyz"));
    CHECK(!expands(std::string("\x40wxyz", 5), "wxy"));
    CHECK(!expands("\xf0\xff\xff", std::string(4096, '\xff')));
}

TEST(a_packed_image_does_not_claim_more_than_it_can_hold) {
    const std::vector<std::byte> content(16);
    fikit::fatbin::Entry entry{};
    entry.packed_bytes = 4;
    entry.flags = fikit::fatbin::flag_lz4;
    entry.expanded_bytes = 1000;
    CHECK(expanded_size(entry, content) == 1000);
    entry.expanded_bytes = 10000;
    CHECK(expanded_size(entry, content) == 0);
    entry.flags = fikit::fatbin::flag_zstd;
    CHECK(expanded_size(entry, content) == 10000);
    entry.packed_bytes = 17;  // beyond what is there
    CHECK(expanded_size(entry, content) == 0);
}

TEST(a_wrapped_text_is_found_again) {
    const std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n";
    const std::vector<std::byte> wrapped = wrap_ptx(bytes_of(text));
    LoadedImage loaded;
    std::string log;
    CHECK(load_image(wrapped, loaded, log) == CUDA_SUCCESS);
    CHECK(!loaded.opaque && loaded.module.kernels.size() == 1);
    for (std::size_t length = 0; length < wrapped.size() - 8; ++length) {
        LoadedImage part;
        CHECK(load_image(Bytes(wrapped).first(length), part, log) != CUDA_SUCCESS);
    }
}

TEST(an_image_ends_where_memory_does) {
    CHECK(copy_image(reinterpret_cast<const void*>(8)).empty());
    const std::string text = "no image";
    CHECK(copy_image(text.c_str()).size() == text.size());
}
