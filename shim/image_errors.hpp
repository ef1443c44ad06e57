// What is wrong with a library's code is told when that is first used: loading one succeeds, whatever it
// holds (an H200's driver, loading lazily as it does unless told otherwise).
#pragma once

#include <cuda.h>

namespace fikit {

constexpr bool is_of_image(CUresult error) {
    return error == CUDA_ERROR_INVALID_IMAGE || error == CUDA_ERROR_INVALID_PTX ||
           error == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

}  // namespace fikit
