// What a texture or surface object stands for: elements in one to three dimensions and how they are read.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <vector>

namespace fikit::sim {

// A level of a mipmap; what is none has one.
struct TextureLevel {
    std::uint64_t address = 0;
    std::uint64_t pitch = 0, slice = 0;          // bytes from a row, from a plane, to the next
    std::array<std::uint32_t, 3> size{1, 1, 1};  // the last: planes, which may be layers or faces
};

struct Texture {
    std::vector<TextureLevel> levels;  // one at least
    std::uint32_t element = 0;         // bytes
    unsigned channels = 1;
    CUarray_format format{};
    std::uint32_t layers = 0;  // or cubes; 0: not layered
    bool cube = false;
    unsigned axes = 1;           // without layers and faces
    bool mipmapped = false;      // if only with one level
    bool linear_memory = false;  // outside of it there are zeros
    bool integers = false;       // are not read as fractions of the largest
    bool normalised = false;     // coordinates from 0 to 1
    bool filtered = false;       // between the nearest elements
    bool seamless = false;       // across the edges of a cube's faces
    bool between_levels = false;
    float level_bias = 0, least_level = 0, greatest_level = 0;
    std::array<CUaddress_mode, 3> modes{};
    std::array<float, 4> border{};
};

}  // namespace fikit::sim
