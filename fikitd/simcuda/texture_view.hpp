// Views of arrays (CUDA driver API, CUDA_RESOURCE_VIEW_DESC).
#pragma once

#include <cuda.h>

#include "ptx/texture.hpp"

namespace fikit::sim {

// Makes a texture over an array, or a mipmapped one, that of a view of it. NOT_SUPPORTED: compressed formats,
// and some of the faces of cubes.
CUresult take_view(Texture& texture, const CUDA_RESOURCE_VIEW_DESC& view);

}  // namespace fikit::sim
