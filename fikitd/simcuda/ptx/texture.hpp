// What a texture or surface object stands for: elements in one to three dimensions and how they are read.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

namespace fikit::sim {

struct Texture {
    std::uint64_t address = 0;
    std::uint64_t pitch = 0, slice = 0;  // bytes from a row, from a plane, to the next
    std::array<std::uint32_t, 3> size{1, 1, 1};
    std::uint32_t element = 0;  // bytes
    unsigned channels = 1;
    CUarray_format format{};
    bool linear_memory = false;  // outside of it there are zeros
    bool integers = false;       // are not read as fractions of the largest
    bool normalised = false;     // coordinates from 0 to 1
    bool filtered = false;       // between the nearest elements
    std::array<CUaddress_mode, 3> modes{};
    std::array<float, 4> border{};
};

}  // namespace fikit::sim
