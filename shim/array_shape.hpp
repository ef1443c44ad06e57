// What an array holds, by its shape; for both sides of the channel, so that neither believes the other.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "array_calls.h"
#include "cuda_interface.hpp"  // of whoever includes this

namespace fikit {

// Where a copy begins in an array, or how far it reaches: bytes, rows, slices.
struct ArrayExtent {
    uint64_t width, rows, slices;
};

// Bytes of an element; 0: of no kind that is served.
inline uint64_t element_bytes(uint32_t format, uint32_t channels) {
    if (channels != 1 && channels != 2 && channels != 4) return 0;
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
            return channels;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
            return uint64_t{channels} * 2;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
            return uint64_t{channels} * 4;
        default:
            return 0;
    }
}
inline uint64_t element_bytes(const fikit_array_shape& shape) {
    return element_bytes(shape.format, shape.channels);
}

// How many of them a texture over a line of memory can have. `widest`: of those of 16 bytes, which the
// device's attribute tells; of others as many more as fit into the same bytes (as on an H200).
inline uint64_t most_in_line(uint32_t format, uint32_t channels, uint64_t widest) {
    const uint64_t bytes = element_bytes(format, channels);
    return bytes == 0 ? 0 : widest * 16 / bytes;
}

// Layers and faces of a cube are as many on every level; what lies one behind another otherwise, half.
inline bool is_solid(const fikit_array_shape& shape) {
    return (shape.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0;
}

// One level of a mipmapped array, as a plain array.
inline fikit_array_shape level_of(fikit_array_shape shape, uint32_t level) {
    const auto smaller = [&](uint64_t extent) {
        return extent == 0 ? 0 : std::max<uint64_t>(level < 64 ? extent >> level : 0, 1);
    };
    shape.width = smaller(shape.width);
    shape.height = smaller(shape.height);
    if (is_solid(shape)) shape.depth = smaller(shape.depth);
    shape.levels = 0;
    return shape;
}

// As many as a mipmapped array can have: down to one element.
inline uint32_t most_levels(const fikit_array_shape& shape) {
    uint64_t longest = std::max({shape.width, shape.height, is_solid(shape) ? shape.depth : 0});
    uint32_t levels = 1;
    for (; longest > 1; longest /= 2) ++levels;
    return levels;
}

inline ArrayExtent extent_of(const fikit_array_shape& shape) {
    return {shape.width * element_bytes(shape), std::max<uint64_t>(shape.height, 1),
            std::max<uint64_t>(shape.depth, 1)};
}

// Does a part that begins at `from` lie within the array?
inline bool holds(const fikit_array_shape& shape, const ArrayExtent& from, const ArrayExtent& part) {
    const auto fits = [](uint64_t first, uint64_t count, uint64_t limit) {
        return first <= limit && count <= limit - first;
    };
    const ArrayExtent all = extent_of(shape);
    return fits(from.width, part.width, all.width) && fits(from.rows, part.rows, all.rows) &&
           fits(from.slices, part.slices, all.slices);
}

// No array of CUDA's is longer in any direction; and so nothing here overflows.
inline constexpr uint64_t longest_extent = uint64_t{1} << 18;
inline bool is_possible(const fikit_array_shape& shape) {
    return shape.width != 0 && shape.width <= longest_extent && shape.height <= longest_extent &&
           shape.depth <= longest_extent && shape.levels <= most_levels(shape);
}

inline uint64_t whole(uint64_t size, uint64_t unit) { return (size + unit - 1) / unit * unit; }

// What one level takes. A GPU lays it out in tiles of 64 bytes by 8 rows, and 16 of these make a block: of
// as many slices as there are, and of rows else, but of no more than a smaller power of two holds.
inline uint64_t level_bytes(const fikit_array_shape& shape) {
    const ArrayExtent extent = extent_of(shape);
    const uint64_t row = whole(extent.width, 64);
    if (shape.height == 0) return row * extent.slices;
    constexpr uint64_t tile_rows = 8, block_tiles = 16;
    const uint64_t deep = is_solid(shape) ? std::min(std::bit_ceil(extent.slices), block_tiles) : 1;
    const uint64_t tiles = whole(extent.rows, tile_rows) / tile_rows;
    const uint64_t high = std::min(std::bit_ceil(tiles), block_tiles / deep);
    return row * whole(extent.rows, high * tile_rows) * whole(extent.slices, deep);
}

// What it counts as. A driver tells what an array takes only of those that get their memory later; this is
// what an H200's (580.159) says of them, which takes the same for plain ones, in whole 64 KiB.
inline uint64_t memory_bytes(const fikit_array_shape& shape) {
    uint64_t bytes = 0;
    for (uint32_t level = 0; level < std::max<uint32_t>(shape.levels, 1); ++level)
        bytes += level_bytes(level_of(shape, level));
    return whole(bytes, 64 << 10);
}

}  // namespace fikit
