// What is known of a kernel came with it; occupancy is asked for once per shape.
#include <limits.h>

#include "entry.hpp"
#include "launches.hpp"
#include "objects.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

Producer& producer_on(const Function& function) { return *process.device(function.device).producer; }

// A kernel as it is on a device.
CUresult find_twin(CUkernel kernel, CUdevice ordinal, Function*& function) {
    function = function_of(kernel);
    Device* const device = process.find_device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (function->device != static_cast<uint32_t>(ordinal)) function = twin_of(*function, *device);
    return function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult get_attribute(int* value, CUfunction_attribute attribute, const Function* function) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (attribute < 0 || attribute >= int{FIKIT_FUNCTION_ATTRIBUTES} ||
        function->attribute[attribute] == INT32_MIN)
        return CUDA_ERROR_INVALID_VALUE;
    *value = load_relaxed(function->attribute[attribute]);
    return CUDA_SUCCESS;
}

// Others tell of the kernel, and the driver refuses to set them to anything.
bool can_be_set(CUfunction_attribute attribute) {
    return attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
           attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
           (attribute >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH &&
            attribute <= CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
}

// Programs set the same again and again: only what changes travels.
CUresult set_attribute(Function* function, CUfunction_attribute attribute, int value) {
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (attribute < 0 || attribute >= int{FIKIT_FUNCTION_ATTRIBUTES}) return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) value = value != 0 ? 1 : 0;
    if (can_be_set(attribute) && load_relaxed(function->attribute[attribute]) == value) return CUDA_SUCCESS;
    const fikit_request_function_set_attribute request = {function->number, attribute, value, 0};
    Reply reply;
    const Status status =
        producer_on(*function).call(fikit_call_function_set_attribute, {&request, sizeof request}, reply);
    if (status != status::success) return result_of(status);
    const Locked lock(function->module->mutex);
    store_relaxed(function->attribute[attribute], value);
    function->occupancies = 0;
    return CUDA_SUCCESS;
}

CUresult parameter_information(const Function* function, size_t index, size_t* offset, size_t* bytes) {
    if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (index >= function->parameters) return CUDA_ERROR_INVALID_VALUE;
    *offset = function->layout[index].offset;
    if (bytes != nullptr) *bytes = function->layout[index].size;
    return CUDA_SUCCESS;
}

}  // namespace

CUresult occupancy(Function* function, int threads, uint64_t shared, unsigned flags, int& blocks) {
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    const auto wanted = static_cast<uint32_t>(threads);
    const Locked lock(function->module->mutex);
    const unsigned known =
        function->occupancies < Function::remembered ? function->occupancies : Function::remembered;
    for (unsigned i = 0; i < known; ++i) {
        const Function::Occupancy& answer = function->occupancy[i];
        if (answer.threads != wanted || answer.shared != shared || answer.flags != flags) continue;
        blocks = answer.blocks;
        return CUDA_SUCCESS;
    }
    const fikit_request_function_occupancy request = {function->number, wanted, shared, flags, 0};
    fikit_reply_function_occupancy answer{};
    Reply reply = {&answer, sizeof answer, 0};
    const Status status =
        producer_on(*function).call(fikit_call_function_occupancy, {&request, sizeof request}, reply);
    if (status != status::success) return result_of(status);
    blocks = answer.blocks_per_multiprocessor;
    function->occupancy[function->occupancies++ % Function::remembered] = {wanted, flags, shared, blocks};
    return CUDA_SUCCESS;
}

namespace {

CUresult clusters(int* value, CUfunction handle, const CUlaunchConfig* config, uint32_t question) {
    const Function* const function = function_of(handle);
    if (value == nullptr || config == nullptr || handle == nullptr ||
        (config->numAttrs != 0 && config->attrs == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    fikit_request_function_clusters request = {};
    request.function = function->number;
    request.question = question;
    const unsigned grid[] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    const unsigned block[] = {config->blockDimX, config->blockDimY, config->blockDimZ};
    for (int axis = 0; axis < 3; ++axis) {
        request.grid[axis] = grid[axis];
        request.block[axis] = block[axis];
    }
    request.shared_bytes = config->sharedMemBytes;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
        const auto& size = config->attrs[i].value.clusterDim;
        if (size.x == 0 || size.y == 0 || size.z == 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        request.cluster[0] = size.x;
        request.cluster[1] = size.y;
        request.cluster[2] = size.z;
    }
    fikit_reply_function_clusters answer{};
    Reply reply = {&answer, sizeof answer, 0};
    const Status status =
        producer_on(*function).call(fikit_call_function_clusters, {&request, sizeof request}, reply);
    if (status == status::success) *value = answer.value;
    return result_of(status);
}

template <class Result, class Handle>
CUresult give(Result* into, Handle handle, Result value) {
    if (into == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (function_of(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *into = value;
    return CUDA_SUCCESS;
}

template <class Handle>
CUresult name_of(const char** name, Handle handle) {
    // Here, other than elsewhere, no handle is a bad value (as driver 580).
    if (name == nullptr || handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Function* const function = function_of(handle);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *name = function->name;
    return CUDA_SUCCESS;
}

}  // namespace

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
    return get_attribute(value, attribute, function_of(function));
}
CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
    Function* function = nullptr;
    const CUresult result = find_twin(kernel, device, function);
    return result == CUDA_SUCCESS ? get_attribute(value, attribute, function) : result;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    return set_attribute(function_of(function), attribute, value);
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
    Function* function = nullptr;
    const CUresult result = find_twin(kernel, device, function);
    return result == CUDA_SUCCESS ? set_attribute(function, attribute, value) : result;
}

CUresult cuFuncGetName(const char** name, CUfunction function) { return name_of(name, function); }
CUresult cuKernelGetName(const char** name, CUkernel kernel) { return name_of(name, kernel); }

CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Function* const function = function_of(handle);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return give(module, handle, reinterpret_cast<CUmodule>(function->module));
}
CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel handle) {
    const Function* const function = function_of(handle);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Module* const first = function->module->library;
    return give(library, handle, reinterpret_cast<CUlibrary>(first != nullptr ? first : function->module));
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    const Context* const context = thread.current();
    Function* twin = function_of(kernel);
    if (context != nullptr && twin != nullptr)
        if (const CUresult result = find_twin(kernel, context->device->ordinal, twin); result != CUDA_SUCCESS)
            return result;
    return give(function, kernel, reinterpret_cast<CUfunction>(twin));
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
    return parameter_information(function_of(function), index, offset, bytes);
}
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* bytes) {
    return parameter_information(function_of(kernel), index, offset, bytes);
}

// Preferences that GPUs since Volta do not heed.
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
    if (function_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return is_preference(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
    if (process.find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (function_of(kernel) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return is_preference(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The executor loads a kernel when it is asked for.
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
    return give(state, function, CU_FUNCTION_LOADING_STATE_LOADED);
}
CUresult cuFuncLoad(CUfunction function) {
    return function_of(function) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// --- occupancy ---

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t shared) {
    return fikit::shim::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                             shared, 0);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                              size_t shared, unsigned int flags) {
    if (blocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return occupancy(function_of(function), threads, shared, flags, *blocks);
}

CUresult cuOccupancyMaxPotentialBlockSize(int* least_grid, int* block, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared, int limit) {
    return fikit::shim::cuOccupancyMaxPotentialBlockSizeWithFlags(least_grid, block, function, shared_of,
                                                                  shared, limit, 0);
}

// The block size with the most resident threads; of equal ones the largest, in steps of a warp.
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* least_grid, int* block, CUfunction handle,
                                                   CUoccupancyB2DSize shared_of, size_t shared, int limit,
                                                   unsigned int flags) {
    constexpr int warp = 32;
    Function* const function = function_of(handle);
    if (least_grid == nullptr || block == nullptr || limit < 0) return CUDA_ERROR_INVALID_VALUE;
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const int32_t* const device = process.device(function->device).attributes.attribute;
    const int device_limit = device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
    int most = function->attribute[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
    if (most > device_limit) most = device_limit;
    if (limit > 0 && limit < most) most = limit;
    const int resident_limit = device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
    int best_threads = 0, best_block = 0, best_blocks = 0;
    for (int size = most; size > 0; size = (size - 1) / warp * warp) {
        int blocks = 0;
        const size_t dynamic = shared_of != nullptr ? shared_of(size) : shared;
        const CUresult result = occupancy(function, size, dynamic, flags, blocks);
        if (result != CUDA_SUCCESS) return result;
        if (blocks * size > best_threads) {
            best_threads = blocks * size;
            best_block = size;
            best_blocks = blocks;
        }
        if (best_threads >= resident_limit) break;
    }
    *block = best_block;
    *least_grid = best_blocks * device[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    return CUDA_SUCCESS;
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int threads) {
    const Function* const function = function_of(handle);
    if (bytes == nullptr || blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const fikit_request_function_shared request = {function->number, static_cast<uint32_t>(blocks),
                                                   static_cast<uint32_t>(threads), 0};
    fikit_reply_function_shared answer{};
    Reply reply = {&answer, sizeof answer, 0};
    const Status status =
        producer_on(*function).call(fikit_call_function_shared, {&request, sizeof request}, reply);
    if (status == status::success) *bytes = answer.bytes;
    return result_of(status);
}

CUresult cuOccupancyMaxActiveClusters(int* count, CUfunction function, const CUlaunchConfig* config) {
    return clusters(count, function, config, FIKIT_CLUSTERS_ACTIVE);
}

CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction function, const CUlaunchConfig* config) {
    return clusters(size, function, config, FIKIT_CLUSTERS_LARGEST);
}

}  // namespace fikit::shim
