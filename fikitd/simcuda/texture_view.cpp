// Views of arrays: the same bytes as elements of another format, and some of their levels and layers.
#include "texture_view.hpp"

#include <array>

#include "array_shape.hpp"

namespace fikit::sim {
namespace {

// CUresourceViewFormat counts 1, 2 and 4 channels of each of these, from 1 on; what follows is compressed.
constexpr std::array formats = {CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_SIGNED_INT8,
                                CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16,
                                CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32,
                                CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT};

// A width, height or depth that is not there may be told as 0 or 1.
bool same_size(std::size_t told, std::uint32_t there, bool axis) { return axis ? told == there : told <= 1; }

bool within(unsigned first, unsigned last, std::size_t count) { return first <= last && last < count; }

}  // namespace

CUresult take_view(Texture& texture, const CUDA_RESOURCE_VIEW_DESC& view) {
    for (const unsigned reserved : view.reserved)
        if (reserved != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto wanted = static_cast<unsigned>(view.format);
    if (wanted > 3 * formats.size())
        return wanted <= CU_RES_VIEW_FORMAT_UNSIGNED_BC7 ? CUDA_ERROR_NOT_SUPPORTED
                                                         : CUDA_ERROR_INVALID_VALUE;
    if (wanted != CU_RES_VIEW_FORMAT_NONE) {
        texture.format = formats[(wanted - 1) / 3];
        texture.channels = 1u << (wanted - 1) % 3;
        if (element_bytes(texture.format, texture.channels) != texture.element)
            return CUDA_ERROR_INVALID_VALUE;
    }
    const auto& size = texture.levels.front().size;
    if (!same_size(view.width, size[0], true) || !same_size(view.height, size[1], texture.axes > 1) ||
        !same_size(view.depth, size[2], texture.axes > 2))
        return CUDA_ERROR_INVALID_VALUE;
    if (!within(view.firstMipmapLevel, view.lastMipmapLevel, texture.levels.size()))
        return CUDA_ERROR_INVALID_VALUE;
    if (!within(view.firstLayer, view.lastLayer, texture.layers == 0 ? 1 : size[2]))
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned layers = view.lastLayer - view.firstLayer + 1;
    if (texture.cube && texture.layers != 0 && layers != size[2]) return CUDA_ERROR_NOT_SUPPORTED;
    texture.levels = {texture.levels.begin() + view.firstMipmapLevel,
                      texture.levels.begin() + view.lastMipmapLevel + 1};
    if (texture.layers == 0 || texture.cube) return CUDA_SUCCESS;
    texture.layers = layers;
    for (TextureLevel& level : texture.levels) {
        level.address += view.firstLayer * level.slice;
        level.size[2] = layers;
    }
    return CUDA_SUCCESS;
}

}  // namespace fikit::sim
