// See fatbin.hpp.
#include "fatbin.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

namespace fikit::sim {

namespace {

struct Header {
    std::uint32_t magic;
    std::uint16_t version;
    std::uint16_t header_bytes;
    std::uint64_t bytes;  // of the entries
};
constexpr std::uint32_t magic = 0xba55ed50;

struct Entry {
    std::uint16_t kind;
    std::uint16_t version;
    std::uint32_t header_bytes;
    std::uint64_t bytes;
    std::uint32_t packed_bytes;
    std::uint32_t options;  // where in the header their place and size stand
    std::uint32_t unknown;
    std::uint32_t target;
    std::uint32_t name, name_bytes;
    std::uint64_t flags;
    std::uint64_t unknown_last;
    std::uint64_t expanded_bytes;
};
static_assert(sizeof(Entry) == 64);
constexpr std::uint16_t kind_ptx = 1;
constexpr std::uint16_t kind_elf = 2;
constexpr std::uint64_t flag_lz4 = 0x2000;
constexpr std::uint64_t flag_zstd = 0x8000;
constexpr std::uint64_t expanded_most = std::uint64_t{1} << 30;
constexpr unsigned device_target = 90;

// Machine code runs on its own minor version and later ones; PTX on every later device.
bool fits(const Entry& entry) {
    return entry.kind == kind_ptx ? entry.target <= device_target : entry.target == device_target;
}

// The system's zstd library: loaded when the first image needs it, as it comes with no headers where only a
// compiler is installed.
struct Zstd {
    std::size_t (*decompress)(void* out, std::size_t room, const void* packed, std::size_t bytes) = nullptr;
    unsigned (*is_error)(std::size_t result) = nullptr;
    bool known() const { return decompress != nullptr && is_error != nullptr; }
    static const Zstd& library() {
        static const Zstd zstd = [] {
            Zstd found;
            void* handle = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
            if (handle == nullptr) return found;
            found.decompress = reinterpret_cast<decltype(found.decompress)>(dlsym(handle, "ZSTD_decompress"));
            found.is_error = reinterpret_cast<decltype(found.is_error)>(dlsym(handle, "ZSTD_isError"));
            return found;
        }();
        return zstd;
    }
};

// Undoes zstd's frame format (RFC 8878); false unless exactly `expected` bytes come out.
bool expand_zstd(Bytes packed, std::size_t expected, std::vector<std::byte>& out) {
    // A block gives at most 128 KiB and takes 4 bytes: no small file claims much memory.
    if (expected / 32768 > packed.size()) return false;
    out.resize(expected);
    const Zstd& zstd = Zstd::library();
    const std::size_t got = zstd.decompress(out.data(), out.size(), packed.data(), packed.size());
    return zstd.is_error(got) == 0 && got == expected;
}

// An entry's image; false, with a reason, where it cannot be had.
bool unpack(const Entry& entry, Bytes content, std::vector<std::byte>& out, std::string& problem) {
    if ((entry.flags & (flag_lz4 | flag_zstd)) == 0) {
        out.assign(content.begin(), content.end());
        return true;
    }
    const bool zstd = (entry.flags & flag_zstd) != 0;
    if (zstd && !Zstd::library().known()) {
        problem = "an image is packed with zstd, and libzstd.so.1 is not on this machine";
        return false;
    }
    problem = "a packed image of the fat binary is damaged";
    if (entry.packed_bytes > content.size() || entry.expanded_bytes > expanded_most) return false;
    const Bytes packed = content.first(entry.packed_bytes);
    const bool fine =
        zstd ? expand_zstd(packed, entry.expanded_bytes, out) : expand_lz4(packed, entry.expanded_bytes, out);
    if (fine) problem.clear();
    return fine;
}

}  // namespace

bool is_fatbin(Bytes image) { return fatbin_length(image) != 0; }

std::uint64_t fatbin_length(Bytes head) {
    Header header;
    if (head.size() < sizeof header) return 0;
    std::memcpy(&header, head.data(), sizeof header);
    if (header.magic != magic || header.header_bytes < sizeof header) return 0;
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
    start.all = {magic, 1, sizeof(Header), entry.header_bytes + entry.bytes};
    std::vector<std::byte> out(sizeof start + entry.bytes);
    std::memcpy(out.data(), &start, sizeof start);
    std::memcpy(out.data() + sizeof start, text.data(), text.size());
    return out;
}

bool expand_lz4(Bytes packed, std::size_t expected, std::vector<std::byte>& out) {
    out.clear();
    // A byte of input gives at most 255 of output.
    if (expected / 255 > packed.size()) return false;
    out.reserve(expected);
    std::size_t at = 0;
    const auto byte = [&](unsigned& value) {
        if (at >= packed.size()) return false;
        value = std::to_integer<unsigned>(packed[at++]);
        return true;
    };
    const auto length = [&](std::size_t& value) {
        if (value != 15) return true;
        for (unsigned more = 255; more == 255;) {
            if (!byte(more)) return false;
            value += more;
        }
        return true;
    };
    while (at < packed.size()) {
        unsigned token = 0;
        if (!byte(token)) return false;
        std::size_t literals = token >> 4;
        if (!length(literals) || literals > packed.size() - at || literals > expected - out.size())
            return false;
        out.insert(out.end(), packed.begin() + static_cast<std::ptrdiff_t>(at),
                   packed.begin() + static_cast<std::ptrdiff_t>(at + literals));
        at += literals;
        if (at == packed.size()) break;  // the last sequence has no match
        unsigned low = 0, high = 0;
        if (!byte(low) || !byte(high)) return false;
        const std::size_t distance = low | high << 8;
        std::size_t match = token & 15;
        if (!length(match)) return false;
        match += 4;
        if (distance == 0 || distance > out.size() || match > expected - out.size()) return false;
        for (; match > 0; --match) out.push_back(out[out.size() - distance]);
    }
    return out.size() == expected;
}

bool read_fatbin(Bytes image, FatbinChoice& choice, std::string& problem) {
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
        if ((entry.kind != kind_ptx && entry.kind != kind_elf) || !fits(entry)) continue;
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
