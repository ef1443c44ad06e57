// The errors' names and texts.
#include <algorithm>

#include "cuda_interface.hpp"
#include "procaddress.hpp"

using namespace fikit::sim;

namespace {

CUresult tell(CUresult error, const char* ErrorText::* what, const char** text) {
    if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto* end = error_texts + error_text_count;
    const auto* found = std::find_if(
        error_texts, end, [&](const ErrorText& entry) { return entry.code == static_cast<int>(error); });
    *text = found != end ? found->*what : nullptr;
    return found != end ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

extern "C" {

CUresult cuGetErrorName(CUresult error, const char** text) { return tell(error, &ErrorText::name, text); }
CUresult cuGetErrorString(CUresult error, const char** text) { return tell(error, &ErrorText::text, text); }

}  // extern "C"
