// The errors' names and texts.
#include <algorithm>
#include <iterator>

#include "cuda_interface.hpp"
#include "error_texts.hpp"
#include "procaddress.hpp"

using namespace fikit;
using namespace fikit::sim;

extern "C" {

CUresult cuGetErrorName(CUresult error, const char** text) {
    if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto* end = error_names + error_name_count;
    const auto* found = std::find_if(
        error_names, end, [&](const ErrorName& entry) { return entry.code == static_cast<int>(error); });
    *text = found != end ? found->name : nullptr;
    return found != end ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// An error that the driver has no sentence for is told by its name.
CUresult cuGetErrorString(CUresult error, const char** text) {
    const CUresult result = cuGetErrorName(error, text);
    if (result != CUDA_SUCCESS) return result;
    const auto* found = std::find_if(std::begin(error_texts), std::end(error_texts),
                                     [&](const auto& entry) { return entry.code == error; });
    if (found != std::end(error_texts)) *text = found->text;
    return CUDA_SUCCESS;
}

}  // extern "C"
