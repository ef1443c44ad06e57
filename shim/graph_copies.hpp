// What copies and fills in instantiated graphs may become.
#pragma once

#include <cuda.h>

#include <cstring>

namespace fikit {

// Seen on an H200 (580.159): a line may become another between memories of the same kinds; what has rows or
// slices, and what is between others, only what it is.
inline bool may_become(const CUDA_MEMCPY3D& was, const CUDA_MEMCPY3D& given) {
    const auto is_line = [](const CUDA_MEMCPY3D& copy) { return copy.Height <= 1 && copy.Depth <= 1; };
    if (std::memcmp(&was, &given, sizeof was) == 0) return true;
    return is_line(was) && is_line(given) && was.srcMemoryType == given.srcMemoryType &&
           was.dstMemoryType == given.dstMemoryType;
}

inline bool may_become(const CUDA_MEMSET_NODE_PARAMS& was, const CUDA_MEMSET_NODE_PARAMS& given) {
    return (was.height <= 1 && given.height <= 1) || std::memcmp(&was, &given, sizeof was) == 0;
}

}  // namespace fikit
