// See image.hpp.
#include "image.hpp"

#include <elf.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "fatbin.hpp"
#include "fatbin_entries.hpp"

namespace fikit::sim {

namespace {

constexpr std::uint64_t length_most = std::uint64_t{4} << 30;
constexpr std::size_t piece = 4096;

// Reads the process's own memory; fewer bytes than asked for where it ends, instead of a fault. By the
// calling thread's number: under the process's there is nothing any more once the first thread has ended.
std::size_t read_own(const std::byte* from, std::byte* to, std::size_t bytes) {
    const iovec local{to, bytes};
    const iovec remote{const_cast<std::byte*>(from), bytes};
    const ssize_t got = process_vm_readv(gettid(), &local, 1, &remote, 1, 0);
    return got < 0 ? 0 : static_cast<std::size_t>(got);
}

bool read_exactly(const std::byte* from, std::uint64_t bytes, std::vector<std::byte>& out) {
    if (bytes > length_most) return false;
    out.resize(bytes);
    return read_own(from, out.data(), bytes) == bytes;
}

// Pages up to the first null byte, which ends PTX text.
std::vector<std::byte> read_text(const std::byte* from) {
    std::vector<std::byte> text;
    for (;;) {
        const std::size_t wanted = piece - reinterpret_cast<std::uintptr_t>(from + text.size()) % piece;
        const std::size_t before = text.size();
        text.resize(before + wanted);
        const std::size_t got = read_own(from + before, text.data() + before, wanted);
        const void* end = got == 0 ? nullptr : std::memchr(text.data() + before, 0, got);
        if (end != nullptr) {
            text.resize(static_cast<std::size_t>(static_cast<const std::byte*>(end) - text.data()));
            return text;
        }
        if (got < wanted || text.size() > length_most) return {};
    }
}

// The end of the furthest table or section.
std::vector<std::byte> read_elf(const std::byte* from, const Elf64_Ehdr& header) {
    if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff > length_most ||
        header.e_phoff > length_most)
        return {};
    std::uint64_t end = header.e_phoff + std::uint64_t{header.e_phnum} * header.e_phentsize;
    end = std::max({end, header.e_shoff + std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr),
                    std::uint64_t{sizeof header}});
    std::vector<std::byte> bytes;
    if (!read_exactly(from, end, bytes)) return {};
    for (unsigned index = 0; index < header.e_shnum; ++index) {
        Elf64_Shdr section;
        std::memcpy(&section, bytes.data() + header.e_shoff + index * sizeof section, sizeof section);
        if (section.sh_type == SHT_NOBITS) continue;
        if (section.sh_offset > length_most || section.sh_size > length_most) return {};
        end = std::max(end, section.sh_offset + section.sh_size);
    }
    return read_exactly(from, end, bytes) ? bytes : std::vector<std::byte>{};
}

CUresult load_text(Bytes image, LoadedImage& loaded, std::string& log) {
    std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
    text = text.substr(0, text.find('\0'));
    const std::size_t start = text.find_first_not_of(" \t\r\n");
    if (start == std::string_view::npos || (text[start] != '.' && text[start] != '/')) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    const ptx::Verdict verdict = ptx::parse(text, loaded.module, log);
    if (verdict == ptx::Verdict::unsupported_version) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    if (verdict != ptx::Verdict::accepted) return CUDA_ERROR_INVALID_PTX;
    if (loaded.module.target <= 90) return CUDA_SUCCESS;
    log = "ptxas fatal   : .target is newer than sm_90\n";
    return CUDA_ERROR_INVALID_PTX;
}

CUresult load_cubin(Bytes image, LoadedImage& loaded, std::string& log) {
    if (cubin_target(image) != 90) {
        log = "a cubin for another device\n";
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    loaded.opaque = true;
    std::string problem;
    if (read_cubin(image, loaded.module, problem)) return CUDA_SUCCESS;
    log = "a damaged cubin: " + problem + "\n";
    return CUDA_ERROR_INVALID_IMAGE;
}

}  // namespace

std::vector<std::byte> copy_image(const void* image) {
    const auto* from = static_cast<const std::byte*>(image);
    std::vector<std::byte> head(sizeof(Elf64_Ehdr));
    head.resize(read_own(from, head.data(), head.size()));
    if (const std::uint64_t length = fatbin_length(head); length != 0) {
        std::vector<std::byte> bytes;
        return read_exactly(from, length, bytes) ? bytes : std::vector<std::byte>{};
    }
    if (head.size() >= SELFMAG && std::memcmp(head.data(), ELFMAG, SELFMAG) == 0) {
        if (!is_cubin(head)) return head;
        Elf64_Ehdr header;
        std::memcpy(&header, head.data(), sizeof header);
        return read_elf(from, header);
    }
    return read_text(from);
}

std::vector<std::byte> copy_wrapped(const void* image) {
    std::vector<std::byte> head;
    fatbin::Wrapper wrapper;
    if (!read_exactly(static_cast<const std::byte*>(image), sizeof wrapper, head)) return copy_image(image);
    std::memcpy(&wrapper, head.data(), sizeof wrapper);
    return copy_image(wrapper.magic == fatbin::wrapper_magic ? wrapper.data : image);
}

CUresult load_image(Bytes image, LoadedImage& loaded, std::string& log, const fatbin::Wanted& wanted) {
    if (is_cubin(image)) return load_cubin(image, loaded, log);
    if (!is_fatbin(image)) return load_text(image, loaded, log);
    FatbinChoice choice;
    std::string problem;
    if (!read_fatbin(image, wanted, choice, problem)) {
        log = problem + "\n";
        return CUDA_ERROR_INVALID_IMAGE;
    }
    switch (choice.kind) {
        case FatbinChoice::Kind::ptx:
            return load_text(choice.image, loaded, log);
        case FatbinChoice::Kind::cubin:
            return load_cubin(choice.image, loaded, log);
        default:
            log = "no image for sm_90 in the fat binary\n";
            return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
}

}  // namespace fikit::sim
