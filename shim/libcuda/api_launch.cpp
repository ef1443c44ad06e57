// Launches. Everything about the kernel is behind its handle, so a launch is: find the stream's number,
// reserve room in the ring, copy the parameters there.
#include <stdlib.h>
#include <string.h>

#include <new>

#include "capture.hpp"
#include "entry.hpp"
#include "objects.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

// What a launch attribute is to us: the executor's business, a hint without effect on results, or refused.
enum class Use { sent, hint, refused };

Use use_of(CUlaunchAttributeID id) {
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            return Use::sent;
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            return Use::hint;
        default:
            return Use::refused;
    }
}

inline void copy_parameter(uint8_t* to, const void* from, uint32_t bytes) {
    if (bytes == 8)
        memcpy(to, from, 8);
    else if (bytes == 4)
        memcpy(to, from, 4);
    else
        memcpy(to, from, bytes);
}

struct FromPointers {
    const Function& function;
    void* const* parameters;
    void operator()(uint8_t* to) const {
        const fikit_parameter* const layout = function.layout;
        for (uint32_t i = 0; i < function.parameters; ++i)
            copy_parameter(to + layout[i].offset, parameters[i], layout[i].size);
    }
};

struct FromBuffer {
    const void* data;
    size_t bytes, room;
    void operator()(uint8_t* to) const { memcpy(to, data, room); }
};

// What CUDA refuses at once (CUDA C++ Programming Guide, technical specifications).
inline bool possible(const LaunchShape& shape, const Function& function) {
    const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
    return shape.grid[0] - 1 < INT32_MAX && shape.grid[1] - 1 < 65535 && shape.grid[2] - 1 < 65535 &&
           shape.block[0] <= 1024 && shape.block[1] <= 1024 && shape.block[2] <= 64 &&
           threads - 1 < static_cast<uint32_t>(function.attribute[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK]) &&
           shape.shared_bytes <= static_cast<uint32_t>(
                                     function.attribute[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES]);
}

CUresult find_buffer(void** extra, FromBuffer& buffer) {
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer.data = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            buffer.bytes = *static_cast<const size_t*>(extra[1]);
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    return buffer.data != nullptr || buffer.bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <class Pack>
CUresult issue(const LaunchShape& shape, const fikit_attribute* attributes, const Pack& pack) {
    if (captures.capturing(shape.stream)) [[unlikely]] {
        Captured call = {};
        call.kind = Captured::Kind::launch;
        call.shape = shape;
        Captured* added = nullptr;
        const size_t attribute_bytes = shape.attributes * sizeof(fikit_attribute);
        const CUresult result =
            captures.add(shape.stream, call, attributes, attribute_bytes, added, shape.parameter_bytes);
        if (result == CUDA_SUCCESS) pack(added->bytes() + attribute_bytes);
        return result;
    }
    return result_of(producer().launch_with(shape, attributes, pack));
}

CUresult launch(const Function& function, LaunchShape& shape, const fikit_attribute* attributes,
                void** parameters, void** extra) {
    if (!possible(shape, function)) [[unlikely]]
        return CUDA_ERROR_INVALID_VALUE;
    shape.function = function.number;
    shape.parameter_bytes = function.parameter_bytes;
    if (parameters != nullptr || function.parameters == 0) [[likely]]
        return issue(shape, attributes, FromPointers{function, parameters});
    if (extra == nullptr) return CUDA_ERROR_INVALID_VALUE;
    FromBuffer buffer = {nullptr, 0, function.parameter_bytes};
    const CUresult result = find_buffer(extra, buffer);
    if (result != CUDA_SUCCESS) return result;
    if (buffer.bytes < buffer.room) return CUDA_ERROR_INVALID_VALUE;
    return issue(shape, attributes, buffer);
}

fikit_attribute cooperative_attribute() {
    CUlaunchAttributeValue value = {};
    value.cooperative = 1;
    fikit_attribute attribute = {CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 0, {}};
    memcpy(attribute.value, &value, sizeof attribute.value);
    return attribute;
}

struct Callback {
    CUstreamCallback function;
    CUstream stream;
    void* argument;
};

void run_callback(void* memory) {
    const Callback callback = *static_cast<Callback*>(memory);
    free(memory);
    callback.function(callback.stream, CUDA_SUCCESS, callback.argument);
}

}  // namespace

CUresult cuLaunchKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z,
                        unsigned int shared_bytes, CUstream stream, void** parameters, void** extra) {
    const Function* const function = function_of(handle);
    if (function == nullptr) [[unlikely]]
        return CUDA_ERROR_INVALID_HANDLE;
    LaunchShape shape = {0, 0, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, 0, 0};
    if (const CUresult result = number_of(stream, shape.stream); result != CUDA_SUCCESS) [[unlikely]]
        return result;
    return launch(*function, shape, nullptr, parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void** parameters) {
    const Function* const function = function_of(handle);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    LaunchShape shape = {0, 0, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, 0, 1};
    if (const CUresult result = number_of(stream, shape.stream); result != CUDA_SUCCESS) return result;
    const fikit_attribute attribute = cooperative_attribute();
    return launch(*function, shape, &attribute, parameters, nullptr);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle, void** parameters, void** extra) {
    if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    const Function* const function = function_of(handle);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    LaunchShape shape = {0,
                         0,
                         {config->gridDimX, config->gridDimY, config->gridDimZ},
                         {config->blockDimX, config->blockDimY, config->blockDimZ},
                         config->sharedMemBytes,
                         0,
                         0};
    if (const CUresult result = number_of(config->hStream, shape.stream); result != CUDA_SUCCESS)
        return result;
    fikit_attribute attributes[FIKIT_MAX_ATTRIBUTES];
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const CUlaunchAttribute& given = config->attrs[i];
        const Use use = use_of(given.id);
        if (use == Use::hint) continue;
        if (use == Use::refused || shape.attributes == FIKIT_MAX_ATTRIBUTES) {
            call_log.say("launch attribute %d is not supported", static_cast<int>(given.id));
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        fikit_attribute& attribute = attributes[shape.attributes++];
        attribute.id = static_cast<uint32_t>(given.id);
        attribute.reserved = 0;
        static_assert(sizeof attribute.value == sizeof given.value);
        memcpy(attribute.value, &given.value, sizeof attribute.value);
    }
    return launch(*function, shape, attributes, parameters, extra);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    uint32_t number = 0;
    if (const CUresult result = number_of(stream, number); result != CUDA_SUCCESS) return result;
    if (captures.capturing(number)) {
        Captured call = {};
        call.kind = Captured::Kind::function;
        call.to = reinterpret_cast<uintptr_t>(function);
        call.from = reinterpret_cast<uintptr_t>(argument);
        Captured* added = nullptr;
        return captures.add(number, call, nullptr, 0, added, 0);
    }
    return result_of(producer().host_function(number, function, argument));
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* argument, unsigned int flags) {
    if (function == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    uint32_t number = 0;
    if (const CUresult result = number_of(stream, number); result != CUDA_SUCCESS) return result;
    if (captures.capturing(number)) return captures.forbid(number);
    auto* const callback = static_cast<Callback*>(malloc(sizeof(Callback)));
    if (callback == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = {function, stream, argument};
    const Status status = producer().host_function(number, run_callback, callback);
    if (status != status::success) free(callback);
    return result_of(status);
}

}  // namespace fikit::shim
