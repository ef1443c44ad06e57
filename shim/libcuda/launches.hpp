// What a launch is made of, whether it is issued, captured or becomes a node.
#pragma once

#include <string.h>

#include <cstdint>

#include "entry.hpp"
#include "host_memory.hpp"
#include "launch_attributes.hpp"
#include "objects.hpp"

namespace fikit::shim {

// What a launch attribute is to us: the executor's business, a hint without effect on results, an event to be
// recorded, refused, or nothing that CUDA has.
enum class AttributeUse { sent, hint, event, refused, unknown };

inline AttributeUse use_of(CUlaunchAttributeID id) {
    if (is_sent(id)) return AttributeUse::sent;
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
            return AttributeUse::hint;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
            return AttributeUse::event;
        case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
            return AttributeUse::refused;
        default:
            return AttributeUse::unknown;
    }
}

// The parameters as a program gives them: a pointer to each,
struct FromPointers {
    const Function& function;
    void* const* parameters;
    void operator()(uint8_t* to) const {
        const Function::Place* each = function.places;
        const Function::Place* end = each + function.eights;
        for (; each != end; ++each) memcpy(to + each->offset, parameters[each->index], 8);
        end += function.fours;
        for (; each != end; ++each) memcpy(to + each->offset, parameters[each->index], 4);
        end = function.places + function.parameters;
        for (; each != end; ++each)
            memcpy(to + each->offset, parameters[each->index], function.layout[each->index].size);
    }
    const void* at(const Function::Place& place) const { return parameters[place.index]; }
};

// or one buffer.
struct FromBuffer {
    const void* data = nullptr;
    size_t bytes = 0, missing = 0;
    void operator()(uint8_t* to) const {
        memcpy(to, data, bytes);
        memset(to + bytes, 0, missing);
    }
    // Of a parameter of 8 bytes; nullptr: it is missing.
    const void* at(const Function::Place& place) const {
        return place.offset + size_t{8} <= bytes ? static_cast<const uint8_t*>(data) + place.offset : nullptr;
    }

    CUresult find(const Function& function, void* const* extra) {
        if (extra == nullptr) return CUDA_ERROR_INVALID_VALUE;
        for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
            if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
                data = extra[1];
            else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
                bytes = *static_cast<const size_t*>(extra[1]);
            else
                return CUDA_ERROR_INVALID_VALUE;
        }
        if (data == nullptr || (bytes == 0 && function.parameter_bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
        if (bytes > function.parameter_bytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        // One that is too short is taken by the driver; what is missing is anything, here zero.
        missing = function.parameter_bytes - bytes;
        return CUDA_SUCCESS;
    }
};

template <class Given>
[[gnu::noinline]] bool names_unreached(const Function& function, const Given& given) {
    for (uint32_t i = 0; i < function.eights; ++i) {
        uint64_t value = 0;
        if (const void* const at = given.at(function.places[i])) memcpy(&value, at, sizeof value);
        if (is_unreached(value, function.device) && !make_reachable(value, process.device(function.device)))
            return true;
    }
    return false;
}

// Not for a kernel that is given the address of host memory which kernels cannot reach.
template <class Given>
[[gnu::always_inline]] inline CUresult check_reach(const Function& function, const Given& given) {
    if (load_relaxed(unreached_end) == 0 || !names_unreached(function, given)) [[likely]]
        return CUDA_SUCCESS;
    return not_served("cuMemHostRegister_v2");
}

// Blocks of so many threads that a multiprocessor holds at a time: asked for once per shape.
CUresult occupancy(Function* function, int threads, uint64_t shared, unsigned flags, int& blocks);

// What CUDA refuses at once (CUDA C++ Programming Guide, technical specifications).
inline bool within_limits(const LaunchShape& shape, const Function& function) {
    const auto at_most = [&](CUfunction_attribute id) {
        return static_cast<uint32_t>(function.attribute[id]);
    };
    const uint64_t plane = uint64_t{shape.block[0]} * shape.block[1];
    return shape.grid[0] - 1 < INT32_MAX && shape.grid[1] - 1 < 65535 && shape.grid[2] - 1 < 65535 &&
           plane - 1 < 1024 && shape.block[2] - 1 < 64 &&
           plane * shape.block[2] <= at_most(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) &&
           shape.shared_bytes <= at_most(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
}
// Of a size of which the kernel tells, or the function was told.
inline bool has_own_clusters(const Function& function) {
    return (function.attribute[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] |
            function.attribute[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT] |
            function.attribute[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH]) != 0;
}
// Whether it can be launched in clusters of that size, which are whole and its own.
CUresult fits_clusters(const Function& function, const LaunchShape& shape,
                       const CUlaunchAttributeValue& given);

// As nearly all are: within them, and of a kernel without clusters.
inline bool possible(const LaunchShape& shape, const Function& function) {
    return within_limits(shape, function) && !has_own_clusters(function) &&
           function.attribute[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] == 0;
}
// What is wrong with another: it asks for what there never is, for more registers than there are, or for
// parts of clusters. SUCCESS: nothing.
CUresult refusal(LaunchShape shape, const Function& function);

}  // namespace fikit::shim
