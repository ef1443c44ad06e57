// What a kernel was compiled to, and what a function of it prefers.
#include <algorithm>

#include "driver.hpp"

namespace fikit::sim {

namespace {

bool in_order(int least, int value, int most) { return least <= value && value <= most; }

bool may_be(const ptx::Kernel& kernel, CUfunction_attribute attribute, int value) {
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            return value >= 0 &&
                   static_cast<unsigned>(value) + kernel.static_shared <= model::shared_per_block_optin;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            return in_order(-1, value, 100);
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: {
            // What the kernel was compiled for stays.
            const int compiled = compiled_preference(kernel, attribute);
            return value >= 0 && (compiled == 0 || value == compiled);
        }
        case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            return in_order(CU_CLUSTER_SCHEDULING_POLICY_DEFAULT, value,
                            CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING);
        default:
            return true;
    }
}

}  // namespace

bool is_preference(CUfunction_attribute attribute) {
    return attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
           attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
           in_order(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, attribute,
                    CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
}

int compiled_preference(const ptx::Kernel& kernel, CUfunction_attribute attribute) {
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            return static_cast<int>(model::shared_per_block -
                                    std::min(kernel.static_shared, model::shared_per_block));
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            return -1;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
            return static_cast<int>(kernel.cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH]);
        default:
            return 0;
    }
}

CUresult set_preference(const ptx::Kernel& kernel, Preferences& preferences, CUfunction_attribute attribute,
                        int value) {
    if (!is_preference(attribute) || !may_be(kernel, attribute, value)) return CUDA_ERROR_INVALID_VALUE;
    const bool flag = attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
    preferences[attribute] = flag && value != 0 ? 1 : value;
    return CUDA_SUCCESS;
}

int LibraryKernel::preference(int device, CUfunction_attribute attribute) const {
    if (const auto set = preferences.find(device); set != preferences.end())
        if (const auto found = set->second.find(attribute); found != set->second.end()) return found->second;
    return compiled_preference(*code, attribute);
}

int Function::preference(CUfunction_attribute attribute) const {
    if (const auto found = preferences.find(attribute); found != preferences.end()) return found->second;
    return origin ? origin->preference(image->context->device, attribute)
                  : compiled_preference(*kernel, attribute);
}

CUresult compiled_attribute(const ptx::Module& module, const ptx::Kernel& kernel,
                            CUfunction_attribute attribute, int& value) {
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: {
            const unsigned warps = warps_with(kernel.registers_per_thread);
            value = static_cast<int>(std::min(kernel.threads_limit, warps * model::warp_size));
            return CUDA_SUCCESS;
        }
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
            value = static_cast<int>(kernel.static_shared);
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_NUM_REGS:
            value = static_cast<int>(kernel.registers_per_thread);
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
            value = static_cast<int>(module.target);
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
            value = 90;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: {
            // All of the module's: nobody asks which of them a kernel reads.
            std::uint64_t bytes = 0;
            for (const ptx::Variable& variable : module.variables)
                bytes += variable.constant ? variable.bytes : 0;
            value = static_cast<int>(bytes);
            return CUDA_SUCCESS;
        }
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
            value = static_cast<int>(kernel.local_bytes);
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
            value = 0;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
            value = kernel.clustered ? 1 : 0;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult tell_parameter(const ptx::Kernel& kernel, std::size_t index, std::size_t* offset,
                        std::size_t* bytes) {
    if (offset == nullptr || index >= kernel.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = kernel.parameters[index].offset;
    if (bytes != nullptr) *bytes = kernel.parameters[index].bytes;
    return CUDA_SUCCESS;
}

}  // namespace fikit::sim
