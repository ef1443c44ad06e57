// Views of arrays: the same bytes as elements of another format, and some of their levels and layers.
#include "texture_view.hpp"

#include <algorithm>
#include <array>

#include "array_shape.hpp"

namespace fikit::sim {
namespace {

// CUresourceViewFormat counts 1, 2 and 4 channels of each of these, from 1 on; what follows is compressed.
constexpr std::array formats = {CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_SIGNED_INT8,
                                CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16,
                                CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32,
                                CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT};

// Only a mipmap has levels to choose from, only what is layered layers. Some that are not there may be named.
bool is_range(unsigned first, unsigned last, bool any) {
    return any ? first <= last : first == 0 && last == 0;
}

struct Part {
    unsigned first, last;
};
Part part_of(unsigned first, unsigned last, std::size_t count) {
    const auto end = static_cast<unsigned>(count - 1);
    return {std::min(first, end), std::min(last, end)};
}

}  // namespace

CUresult take_view(Texture& texture, const CUDA_RESOURCE_VIEW_DESC& view) {
    for (const unsigned reserved : view.reserved)
        if (reserved != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto wanted = static_cast<unsigned>(view.format);
    if (wanted > 3 * formats.size() && wanted <= CU_RES_VIEW_FORMAT_UNSIGNED_BC7)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (wanted == CU_RES_VIEW_FORMAT_NONE || wanted > 3 * formats.size()) return CUDA_ERROR_INVALID_VALUE;
    texture.format = formats[(wanted - 1) / 3];
    texture.channels = 1u << (wanted - 1) % 3;
    if (element_bytes(texture.format, texture.channels) != texture.element) return CUDA_ERROR_INVALID_VALUE;
    const auto size = texture.levels.front().size;
    const bool planes = texture.axes > 2 || texture.layers != 0 || texture.cube;
    if (view.width != size[0] || view.height != (texture.axes > 1 ? size[1] : 0) ||
        view.depth != (planes ? size[2] : 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_range(view.firstMipmapLevel, view.lastMipmapLevel, texture.mipmapped) ||
        !is_range(view.firstLayer, view.lastLayer, texture.layers != 0))
        return CUDA_ERROR_INVALID_VALUE;
    const Part levels = part_of(view.firstMipmapLevel, view.lastMipmapLevel, texture.levels.size());
    texture.levels = {texture.levels.begin() + levels.first, texture.levels.begin() + levels.last + 1};
    if (texture.layers == 0) return CUDA_SUCCESS;
    const Part layers = part_of(view.firstLayer, view.lastLayer, size[2]);
    const unsigned count = layers.last - layers.first + 1;
    if (texture.cube) return count == size[2] ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    texture.layers = count;
    for (TextureLevel& level : texture.levels) {
        level.address += layers.first * level.slice;
        level.size[2] = count;
    }
    return CUDA_SUCCESS;
}

}  // namespace fikit::sim
