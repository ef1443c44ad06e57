// Functions: what a kernel is and how it may run.
#include "driver.hpp"

using namespace fikit::sim;

namespace {

template <typename Body>
CUresult with_function(CUfunction handle, Body body) {
    return with_handle<&Driver::functions>(handle, CUDA_ERROR_INVALID_HANDLE, body);
}

}  // namespace

extern "C" {

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
    return with_function(handle, [&](Driver&, Function& function) -> CUresult {
        if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (!is_preference(attribute))
            return compiled_attribute(function.image->code->module, *function.kernel, attribute, *value);
        *value = function.preference(attribute);
        return CUDA_SUCCESS;
    });
}
CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    return with_function(handle, [&](Driver&, Function& function) {
        return set_preference(*function.kernel, function.preferences, attribute, value);
    });
}
// A preference that GPUs since Volta do not heed.
CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
    return with_function(
        handle, [&](auto&&...) { return is_preference(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}
// Banks of shared memory have one size since long ago.
CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
    return with_function(
        handle, [&](auto&&...) { return is_preference(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}
CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return with_function(handle, [&](Driver&, Function& function) -> CUresult {
        if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *module = function.image->handle;
        return CUDA_SUCCESS;
    });
}
CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
    return with_function(handle, [&](Driver&, Function& function) {
        return tell_parameter(*function.kernel, index, offset, bytes);
    });
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
    // Here, other than elsewhere, no handle is a bad value (as driver 580).
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return with_function(handle, [&](Driver&, Function& function) -> CUresult {
        if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *name = function.kernel->name.c_str();
        return CUDA_SUCCESS;
    });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
    return with_function(handle, [&](Driver&, Function&) -> CUresult {
        if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *state = CU_FUNCTION_LOADING_STATE_LOADED;
        return CUDA_SUCCESS;
    });
}
CUresult cuFuncLoad(CUfunction handle) {
    return with_function(handle, [](auto&&...) { return CUDA_SUCCESS; });
}

}  // extern "C"
