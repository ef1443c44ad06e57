// How a fat binary is laid out: a header, then entries, each an image of one program with a header of its own
// and perhaps packed. What is not documented is as cuobjdump and nvcc's own files show it.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

namespace fikit::fatbin {

// What nvcc puts around one in a program's own data.
struct Wrapper {
    std::uint32_t magic, version;
    const void* data;
    const void* const* others;  // version 2: what `data` was linked from
};
inline constexpr std::uint32_t wrapper_magic = 0x466243b1;

struct Header {
    std::uint32_t magic;
    std::uint16_t version;
    std::uint16_t header_bytes;
    std::uint64_t bytes;  // of the entries
};
inline constexpr std::uint32_t magic = 0xba55ed50;

// What of one a device is to have: machine code runs on its own major version alone; PTX, and whatever is not
// known, may be for any. The program's environment may leave the machine code out.
struct Wanted {
    int major;
    bool machine_code = true;
    Wanted(int version) : major(version) {}
};

// As driver 580 heeds CUDA's variables, by either name (CUDA C++ Programming Guide, "CUDA Environment
// Variables"); CUDA_DISABLE_PTX_JIT changes nothing there.
inline Wanted wanted_here(int major) {
    const auto is_one = [](const char* variable) {
        const char* const text = std::getenv(variable);
        return text != nullptr && std::atoi(text) == 1;
    };
    Wanted wanted = major;
    wanted.machine_code = !is_one("CUDA_FORCE_PTX_JIT") && !is_one("CUDA_FORCE_JIT");
    return wanted;
}

struct Entry {
    std::uint16_t kind;
    std::uint16_t version;
    std::uint32_t header_bytes;
    std::uint64_t bytes;
    std::uint32_t packed_bytes;
    std::uint32_t options;  // where in the header their place and size stand
    std::uint32_t unknown;
    std::uint32_t target;  // 90: compute capability 9.0
    std::uint32_t name, name_bytes;
    std::uint64_t flags;
    std::uint64_t unknown_last;
    std::uint64_t expanded_bytes;

    bool packed() const;
    bool useful(const Wanted& wanted) const;
};
static_assert(sizeof(Entry) == 64);
inline constexpr std::uint16_t kind_ptx = 1, kind_machine_code = 2;
inline constexpr std::uint64_t flag_lz4 = 0x2000, flag_zstd = 0x8000;
inline constexpr std::uint64_t expanded_most = std::uint64_t{1} << 30;

inline bool Entry::packed() const { return (flags & (flag_lz4 | flag_zstd)) != 0; }
inline bool Entry::useful(const Wanted& wanted) const {
    return kind != kind_machine_code ||
           (wanted.machine_code && static_cast<int>(target / 10) == wanted.major);
}

inline bool is_fatbin(const void* image, std::uint64_t bytes) {
    std::uint32_t first = 0;
    if (bytes < sizeof(Header)) return false;
    std::memcpy(&first, image, sizeof first);
    return first == magic;
}

// Each entry, with where its header and its content begin; false: they do not add up, or `take` said so.
template <class Take>
bool each_entry(const void* image, std::uint64_t bytes, const Take& take) {
    Header header;
    const auto* const base = static_cast<const std::uint8_t*>(image);
    if (bytes < sizeof header) return false;
    std::memcpy(&header, base, sizeof header);
    if (header.magic != magic || header.header_bytes != sizeof header) return false;
    for (std::uint64_t at = sizeof header; at < bytes;) {
        Entry entry;
        if (bytes - at < sizeof entry) return false;
        std::memcpy(&entry, base + at, sizeof entry);
        const std::uint64_t left = bytes - at;
        if (entry.header_bytes < sizeof entry || entry.header_bytes > left ||
            entry.bytes > left - entry.header_bytes ||
            !take(entry, base + at, base + at + entry.header_bytes))
            return false;
        at += entry.header_bytes + entry.bytes;
    }
    return true;
}

using Packed = std::span<const std::byte>;

// Undoes the block format of LZ4; false unless it fills `out` exactly.
inline bool expand_lz4(Packed packed, std::span<std::byte> out) {
    std::size_t at = 0, done = 0;
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
        if (!length(literals) || literals > packed.size() - at || literals > out.size() - done) return false;
        if (literals != 0) std::memcpy(out.data() + done, packed.data() + at, literals);
        at += literals;
        done += literals;
        if (at == packed.size()) break;  // the last sequence has no match
        unsigned low = 0, high = 0;
        if (!byte(low) || !byte(high)) return false;
        const std::size_t distance = low | high << 8;
        std::size_t match = token & 15;
        if (!length(match)) return false;
        match += 4;
        if (distance == 0 || distance > done || match > out.size() - done) return false;
        for (; match > 0; --match, ++done) out[done] = out[done - distance];
    }
    return done == out.size();
}

// The system's zstd library: loaded when the first image needs it, as it comes with no headers where only a
// compiler is installed.
struct Zstd {
    std::size_t (*decompress)(void* out, std::size_t room, const void* packed, std::size_t bytes) = nullptr;
    unsigned (*is_error)(std::size_t result) = nullptr;
    bool known() const { return decompress != nullptr && is_error != nullptr; }
    static const Zstd& library() {
        static Zstd zstd;
        static pthread_once_t once = PTHREAD_ONCE_INIT;
        pthread_once(&once, [] {
            void* handle = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
            if (handle == nullptr) return;
            zstd.decompress = reinterpret_cast<decltype(zstd.decompress)>(dlsym(handle, "ZSTD_decompress"));
            zstd.is_error = reinterpret_cast<decltype(zstd.is_error)>(dlsym(handle, "ZSTD_isError"));
        });
        return zstd;
    }
};

// How long what a packed entry holds claims to be; 0 where so little cannot become so much: a byte of LZ4
// gives at most 255, a block of zstd (RFC 8878) at most 128 KiB for 4 bytes. So no small file claims much
// memory.
inline std::size_t expanded_size(const Entry& entry, Packed content) {
    if (entry.packed_bytes > content.size() || entry.expanded_bytes > expanded_most) return 0;
    const std::size_t most_per_byte = (entry.flags & flag_zstd) != 0 ? 32768 : 255;
    return entry.expanded_bytes / most_per_byte > entry.packed_bytes ? 0 : entry.expanded_bytes;
}

// Unpacks an entry into as many bytes as expanded_size() says; false where it is damaged or zstd is missing.
inline bool expand(const Entry& entry, Packed content, std::span<std::byte> out) {
    const Packed packed = content.first(entry.packed_bytes);
    if ((entry.flags & flag_zstd) == 0) return expand_lz4(packed, out);
    const Zstd& zstd = Zstd::library();
    if (!zstd.known()) return false;
    const std::size_t got = zstd.decompress(out.data(), out.size(), packed.data(), packed.size());
    return zstd.is_error(got) == 0 && got == out.size();
}

}  // namespace fikit::fatbin
