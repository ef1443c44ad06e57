// See fatbin.hpp.
#include "fatbin.hpp"

#include <algorithm>
#include <cstring>

#include "fatbin_entries.hpp"

namespace fikit::sim {

namespace {

using fatbin::Entry;
using fatbin::Header;
using fatbin::kind_machine_code;
using fatbin::kind_ptx;
constexpr unsigned device_target = 90;

// Machine code runs on its own minor version and later ones; PTX on every later device.
bool fits(const Entry& entry) {
    return entry.kind == kind_ptx ? entry.target <= device_target : entry.target == device_target;
}

// An entry's image; false, with a reason, where it cannot be had.
bool unpack(const Entry& entry, Bytes content, std::vector<std::byte>& out, std::string& problem) {
    if (!entry.packed()) {
        out.assign(content.begin(), content.end());
        return true;
    }
    if ((entry.flags & fatbin::flag_zstd) != 0 && !fatbin::Zstd::library().known()) {
        problem = "an image is packed with zstd, and libzstd.so.1 is not on this machine";
        return false;
    }
    out.resize(fatbin::expanded_size(entry, content));
    if (!out.empty() && fatbin::expand(entry, content, out)) return true;
    problem = "a packed image of the fat binary is damaged";
    return false;
}

}  // namespace

bool is_fatbin(Bytes image) { return fatbin_length(image) != 0; }

std::uint64_t fatbin_length(Bytes head) {
    Header header;
    if (head.size() < sizeof header) return 0;
    std::memcpy(&header, head.data(), sizeof header);
    if (header.magic != fatbin::magic || header.header_bytes < sizeof header) return 0;
    return header.bytes > (std::uint64_t{1} << 40) ? 0 : header.header_bytes + header.bytes;
}

std::vector<std::byte> wrap_ptx(Bytes text) {
    struct {
        Header all;
        Entry entry;
        std::uint32_t options[4];
    } start{};
    Entry& entry = start.entry;
    entry.kind = kind_ptx;
    entry.version = 0x101;
    entry.header_bytes = sizeof entry + sizeof start.options;
    entry.bytes = (text.size() + 1 + 7) / 8 * 8;  // with a null byte, padded
    entry.target = device_target;
    entry.options = sizeof entry;
    start.options[0] = sizeof entry + 8;  // there are none
    start.all = {fatbin::magic, 1, sizeof(Header), entry.header_bytes + entry.bytes};
    std::vector<std::byte> out(sizeof start + entry.bytes);
    std::memcpy(out.data(), &start, sizeof start);
    std::memcpy(out.data() + sizeof start, text.data(), text.size());
    return out;
}

bool read_fatbin(Bytes image, const fatbin::Wanted& wanted, FatbinChoice& choice, std::string& problem) {
    const std::uint64_t length = fatbin_length(image);
    if (length == 0 || length > image.size()) {
        problem = "the fat binary ends early";
        return false;
    }
    Header header;
    std::memcpy(&header, image.data(), sizeof header);
    unsigned best = 0;
    for (std::uint64_t at = header.header_bytes; at < length;) {
        Entry entry;
        if (length - at < sizeof entry) {
            problem = "an entry of the fat binary ends early";
            return false;
        }
        std::memcpy(&entry, image.data() + at, sizeof entry);
        if (entry.header_bytes < sizeof entry || entry.header_bytes > length - at ||
            entry.bytes > length - at - entry.header_bytes) {
            problem = "an entry of the fat binary lies outside it";
            return false;
        }
        Bytes content = image.subspan(at + entry.header_bytes, entry.bytes);
        at += entry.header_bytes + entry.bytes;
        if ((entry.kind != kind_ptx && entry.kind != kind_machine_code) || !fits(entry)) continue;
        if (!entry.useful(wanted)) continue;
        // The newest PTX, else the machine code.
        const unsigned rank = entry.kind == kind_ptx ? 1000 + entry.target : entry.target;
        if (rank <= best) continue;
        std::vector<std::byte> expanded;
        if (!unpack(entry, content, expanded, problem)) return false;
        best = rank;
        choice.kind = entry.kind == kind_ptx ? FatbinChoice::Kind::ptx : FatbinChoice::Kind::cubin;
        choice.image = std::move(expanded);
    }
    return true;
}

}  // namespace fikit::sim
