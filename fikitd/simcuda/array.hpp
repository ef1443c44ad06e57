// Arrays: plain ones, laid out row by row; what a texture unit would do to the order is not modelled.
#pragma once

#include "driver.hpp"

namespace fikit::sim {

struct Array {
    CUarray handle{};
    Context* context = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    std::uint64_t address = 0;
    std::size_t element = 0;  // bytes
    std::size_t pitch = 0;    // of a row
    std::size_t rows() const { return shape.Height == 0 ? 1 : shape.Height; }
    std::size_t slices() const { return shape.Depth == 0 ? 1 : shape.Depth; }
    std::size_t bytes() const { return pitch * rows() * slices(); }
};

// Bytes of an element; 0 for what no array can hold.
std::size_t element_bytes(CUarray_format format, unsigned channels);

}  // namespace fikit::sim
