// Arrays: plain ones, laid out row by row; what a texture unit would do to the order is not modelled. Layers,
// and faces of cubes, lie one behind another as planes do.
#pragma once

#include "array_shape.hpp"
#include "driver.hpp"

namespace fikit::sim {

struct Array {
    CUarray handle{};
    Context* context = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    std::uint64_t address = 0;
    std::size_t element = 0;            // bytes
    std::size_t pitch = 0;              // of a row
    CUmipmappedArray mipmap = nullptr;  // whose level it is
    bool layered() const { return (shape.Flags & CUDA_ARRAY3D_LAYERED) != 0; }
    bool cube() const { return (shape.Flags & CUDA_ARRAY3D_CUBEMAP) != 0; }
    std::size_t rows() const { return shape.Height == 0 ? 1 : shape.Height; }
    std::size_t planes() const { return shape.Depth == 0 ? 1 : shape.Depth; }
    std::size_t bytes() const { return pitch * rows() * planes(); }
};

struct MipmappedArray {
    CUmipmappedArray handle{};
    Context* context = nullptr;
    std::vector<std::shared_ptr<Array>> levels;
};

using fikit::element_bytes;
using fikit::most_in_line;
// Whether an array, or a mipmap, may be so: CUDA_ERROR_INVALID_VALUE or CUDA_ERROR_NOT_SUPPORTED if not.
CUresult check(const CUDA_ARRAY3D_DESCRIPTOR& shape, bool mipmapped);
// An array of a shape that was checked; null where memory is out.
std::shared_ptr<Array> make_array(Driver& driver, Context& context, const CUDA_ARRAY3D_DESCRIPTOR& shape);
void release_array(Driver& driver, const Array& array);
// All arrays of a context that ends.
void release_arrays(Driver& driver, const Context& context);

}  // namespace fikit::sim
