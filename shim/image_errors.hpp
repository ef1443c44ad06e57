// What is wrong with a library's code is told when that is first used, where it is one of these: the driver
// of an H200, which loads lazily unless told otherwise, was asked about them alone.
#pragma once

#include <cuda.h>

namespace fikit {

constexpr bool is_of_image(CUresult error) {
    return error == CUDA_ERROR_INVALID_IMAGE || error == CUDA_ERROR_INVALID_PTX ||
           error == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || error == CUDA_ERROR_NO_BINARY_FOR_GPU;
}

}  // namespace fikit
