// Functions: what a kernel is and how it may run.
#include <algorithm>

#include "driver.hpp"

using namespace fikit::sim;

namespace {

CUresult attribute_of(const Function& function, CUfunction_attribute attribute, int& value) {
    const ptx::Kernel& kernel = *function.kernel;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: {
            const unsigned warps = warps_with(kernel.registers_per_thread);
            value = static_cast<int>(std::min(kernel.threads_limit, warps * model::warp_size));
            break;
        }
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
            value = static_cast<int>(kernel.static_shared);
            break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS:
            value = static_cast<int>(kernel.registers_per_thread);
            break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
            value = static_cast<int>(function.image->module.target);
            break;
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
            value = 90;
            break;
        case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: {
            // All of the module's: nobody asks which of them a kernel reads.
            std::uint64_t bytes = 0;
            for (const ptx::Variable& variable : function.image->module.variables)
                bytes += variable.constant ? variable.bytes : 0;
            value = static_cast<int>(bytes);
            break;
        }
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
            value = static_cast<int>(kernel.local_bytes);
            break;
        case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
            value = 0;
            break;
        case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
            value = kernel.clustered ? 1 : 0;
            break;
        case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            value = function.cluster_policy;
            break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            value = static_cast<int>(function.dynamic_shared_limit);
            break;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            value = function.shared_carveout;
            break;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
            value = function.required_cluster[0];
            break;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
            value = function.required_cluster[1];
            break;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
            value = function.required_cluster[2];
            break;
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
            value = function.nonportable_cluster;
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult set_attribute(Function& function, CUfunction_attribute attribute, int value) {
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            if (value < 0 || static_cast<unsigned>(value) + function.kernel->static_shared >
                                 model::shared_per_block_optin) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            function.dynamic_shared_limit = static_cast<unsigned>(value);
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
            function.shared_carveout = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: {
            // What the kernel was compiled for stays.
            const unsigned dimension = attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
            const auto compiled = static_cast<int>(function.kernel->cluster[dimension]);
            if (value < 0 || (compiled != 0 && value != compiled)) return CUDA_ERROR_INVALID_VALUE;
            function.required_cluster[dimension] = value;
            return CUDA_SUCCESS;
        }
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
            function.nonportable_cluster = value != 0 ? 1 : 0;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            if (value < CU_CLUSTER_SCHEDULING_POLICY_DEFAULT ||
                value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
                return CUDA_ERROR_INVALID_VALUE;
            function.cluster_policy = value;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

template <typename Body>
CUresult with_function(CUfunction handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        Function* function = driver.functions.find(handle);
        return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(driver, *function);
    });
}

}  // namespace

extern "C" {

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
    return with_function(handle, [&](Driver&, Function& function) -> CUresult {
        return value == nullptr ? CUDA_ERROR_INVALID_VALUE : attribute_of(function, attribute, *value);
    });
}
CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    return with_function(
        handle, [&](Driver&, Function& function) { return set_attribute(function, attribute, value); });
}
CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
    return with_function(handle, [&](Driver&, Function& function) -> CUresult {
        if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
            return CUDA_ERROR_INVALID_VALUE;
        function.cache_config = config;
        return CUDA_SUCCESS;
    });
}
// Banks of shared memory have one size since long ago.
CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
    return with_function(handle, [&](Driver&, Function&) -> CUresult {
        return config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    });
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
    return with_function(handle, [&](Driver&, Function& function) -> CUresult {
        if (offset == nullptr || index >= function.kernel->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
        *offset = function.kernel->parameters[index].offset;
        if (bytes != nullptr) *bytes = function.kernel->parameters[index].bytes;
        return CUDA_SUCCESS;
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
