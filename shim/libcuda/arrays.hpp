// Arrays and mipmapped arrays.
#pragma once

#include "array_shape.hpp"
#include "objects.hpp"

namespace fikit::shim {

inline constexpr uint32_t array_magic = 0x46415252, mipmap_magic = 0x464d4950;

struct ArrayMemory;

// What CUarray and CUmipmappedArray point to: one made by the program, or a level of a mipmapped one.
struct Array {
    uint32_t magic = 0;
    uint32_t level = 0;
    ArrayMemory* memory = nullptr;

    fikit_array_shape shape() const;
};

struct ArrayMemory {
    static constexpr uint32_t most_levels = 19;  // of the longest extent
    static_assert(longest_extent >> (most_levels - 1) == 1);

    Device* device = nullptr;
    Context* context = nullptr;  // with which it goes
    uint32_t number = 0;
    fikit_array_shape shape = {};
    Array whole;
    Array levels[most_levels];  // of a mipmapped one
    Held held = {};
};

inline fikit_array_shape Array::shape() const {
    return magic == array_magic && memory->shape.levels != 0 ? level_of(memory->shape, level) : memory->shape;
}

inline Array* array_of(CUarray handle) { return object_of<Array>(handle, array_magic); }
inline Array* mipmap_of(CUmipmappedArray handle) { return object_of<Array>(handle, mipmap_magic); }

}  // namespace fikit::shim
