// See array.hpp. The limits are those of cuArray3DCreate's and cuMipmappedArrayCreate's documentation.
#include "array.hpp"

#include <algorithm>
#include <array>

#include "device_calls.hpp"

namespace fikit::sim {

namespace {

constexpr std::size_t pitch_unit = 512;
constexpr unsigned known_flags =
    CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;

// The greatest width, height and depth; 0: it must be 0.
using Limits = std::array<std::size_t, 3>;

#define FIKIT_LIMIT(name) static_cast<std::size_t>(device_attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_##name))

Limits limits_of_textures(const CUDA_ARRAY3D_DESCRIPTOR& shape, bool mipmapped) {
    const bool layered = (shape.Flags & CUDA_ARRAY3D_LAYERED) != 0;
    if ((shape.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
        const std::size_t width =
            layered ? FIKIT_LIMIT(TEXTURECUBEMAP_LAYERED_WIDTH) : FIKIT_LIMIT(TEXTURECUBEMAP_WIDTH);
        return {width, width, layered ? FIKIT_LIMIT(TEXTURECUBEMAP_LAYERED_LAYERS) : 6};
    }
    if (layered && shape.Height == 0)
        return {FIKIT_LIMIT(TEXTURE1D_LAYERED_WIDTH), 0, FIKIT_LIMIT(TEXTURE1D_LAYERED_LAYERS)};
    if (layered)
        return {FIKIT_LIMIT(TEXTURE2D_LAYERED_WIDTH), FIKIT_LIMIT(TEXTURE2D_LAYERED_HEIGHT),
                FIKIT_LIMIT(TEXTURE2D_LAYERED_LAYERS)};
    if (shape.Depth != 0) {
        const Limits usual{FIKIT_LIMIT(TEXTURE3D_WIDTH), FIKIT_LIMIT(TEXTURE3D_HEIGHT),
                           FIKIT_LIMIT(TEXTURE3D_DEPTH)};
        if (shape.Depth <= usual[2]) return usual;
        return {FIKIT_LIMIT(TEXTURE3D_WIDTH_ALTERNATE), FIKIT_LIMIT(TEXTURE3D_HEIGHT_ALTERNATE),
                FIKIT_LIMIT(TEXTURE3D_DEPTH_ALTERNATE)};
    }
    if (shape.Height == 0) {
        return {mipmapped ? FIKIT_LIMIT(TEXTURE1D_MIPMAPPED_WIDTH) : FIKIT_LIMIT(TEXTURE1D_WIDTH), 0, 0};
    }
    if (mipmapped)
        return {FIKIT_LIMIT(TEXTURE2D_MIPMAPPED_WIDTH), FIKIT_LIMIT(TEXTURE2D_MIPMAPPED_HEIGHT), 0};
    if ((shape.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0)
        return {FIKIT_LIMIT(TEXTURE2D_GATHER_WIDTH), FIKIT_LIMIT(TEXTURE2D_GATHER_HEIGHT), 0};
    return {FIKIT_LIMIT(TEXTURE2D_WIDTH), FIKIT_LIMIT(TEXTURE2D_HEIGHT), 0};
}

Limits limits_of_surfaces(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
    const bool layered = (shape.Flags & CUDA_ARRAY3D_LAYERED) != 0;
    if ((shape.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
        const std::size_t width =
            layered ? FIKIT_LIMIT(SURFACECUBEMAP_LAYERED_WIDTH) : FIKIT_LIMIT(SURFACECUBEMAP_WIDTH);
        return {width, width, layered ? FIKIT_LIMIT(SURFACECUBEMAP_LAYERED_LAYERS) : 6};
    }
    if (layered && shape.Height == 0)
        return {FIKIT_LIMIT(SURFACE1D_LAYERED_WIDTH), 0, FIKIT_LIMIT(SURFACE1D_LAYERED_LAYERS)};
    if (layered)
        return {FIKIT_LIMIT(SURFACE2D_LAYERED_WIDTH), FIKIT_LIMIT(SURFACE2D_LAYERED_HEIGHT),
                FIKIT_LIMIT(SURFACE2D_LAYERED_LAYERS)};
    if (shape.Depth != 0)
        return {FIKIT_LIMIT(SURFACE3D_WIDTH), FIKIT_LIMIT(SURFACE3D_HEIGHT), FIKIT_LIMIT(SURFACE3D_DEPTH)};
    if (shape.Height == 0) return {FIKIT_LIMIT(SURFACE1D_WIDTH), 0, 0};
    return {FIKIT_LIMIT(SURFACE2D_WIDTH), FIKIT_LIMIT(SURFACE2D_HEIGHT), 0};
}

#undef FIKIT_LIMIT

bool within(const CUDA_ARRAY3D_DESCRIPTOR& shape, const Limits& limits) {
    const auto is_within = [](std::size_t extent, std::size_t limit) {
        return limit == 0 ? extent == 0 : extent >= 1 && extent <= limit;
    };
    return is_within(shape.Width, limits[0]) && is_within(shape.Height, limits[1]) &&
           is_within(shape.Depth, limits[2]);
}

}  // namespace

CUresult check(const CUDA_ARRAY3D_DESCRIPTOR& shape, bool mipmapped) {
    if (element_bytes(shape.Format, shape.NumChannels) == 0) return CUDA_ERROR_INVALID_VALUE;
    if ((shape.Flags & ~known_flags) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (!within(shape, limits_of_textures(shape, mipmapped))) return CUDA_ERROR_INVALID_VALUE;
    if ((shape.Flags & CUDA_ARRAY3D_SURFACE_LDST) != 0 && !within(shape, limits_of_surfaces(shape)))
        return CUDA_ERROR_INVALID_VALUE;
    // Of two dimensions, and with no layers or faces.
    if ((shape.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0 && (shape.Height == 0 || shape.Depth != 0))
        return CUDA_ERROR_INVALID_VALUE;
    if ((shape.Flags & CUDA_ARRAY3D_CUBEMAP) != 0 && (shape.Width != shape.Height || shape.Depth % 6 != 0))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

std::shared_ptr<Array> make_array(Driver& driver, Context& context, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
    auto array = std::make_shared<Array>();
    array->context = &home_of(context);
    array->shape = shape;
    array->element = element_bytes(shape.Format, shape.NumChannels);
    array->pitch = (shape.Width * array->element + pitch_unit - 1) / pitch_unit * pitch_unit;
    array->address = driver.device_of(context).heap.allocate(array->bytes());
    if (array->address == 0) return nullptr;
    driver.arrays.add(array);
    return array;
}

void release_array(Driver& driver, const Array& array) {
    driver.device_of(*array.context).heap.release(array.address, array.bytes());
    driver.arrays.remove(&array);
}

void release_arrays(Driver& driver, const Context& context) {
    std::vector<const Array*> own;
    driver.arrays.each([&](const Array& array) {
        if (array.context == &context) own.push_back(&array);
    });
    driver.mipmaps.remove_if([&](const MipmappedArray& mipmap) { return mipmap.context == &context; });
    for (const Array* array : own) release_array(driver, *array);
}

}  // namespace fikit::sim
