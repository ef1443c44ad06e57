// Fat binaries: several images of one program, of which the best for the device is taken.
//
// PTX is preferred to machine code, whatever the order, as it can be run for real.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cubin.hpp"
#include "fatbin_entries.hpp"

namespace fikit::sim {

inline constexpr int device_major = 9;

struct FatbinChoice {
    enum class Kind : std::uint8_t { none, ptx, cubin };
    Kind kind = Kind::none;
    std::vector<std::byte> image;
};

bool is_fatbin(Bytes image);

// The length of the fat binary by its own header; 0 where `head` is none.
std::uint64_t fatbin_length(Bytes head);

// Chooses among the images for compute capability 9.0, plain or packed with LZ4 or zstd. False, with a reason
// in `problem`, where the file is damaged or an image cannot be unpacked.
bool read_fatbin(Bytes image, const fatbin::Wanted& wanted, FatbinChoice& choice, std::string& problem);

// A fat binary with one image, PTX for sm_90.
std::vector<std::byte> wrap_ptx(Bytes text);

}  // namespace fikit::sim
