// Parts of a device's multiprocessors, as a CUdevResource stands for them.
//
// A CUdevResource is copied about by the caller, so the multiprocessors it stands for are written into its
// opaque part, with a mark by which an invented one is told (CUDA Driver API, "Green Contexts").
#pragma once

#include <cuda.h>

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <cstring>

namespace fikit {

// In which numbers they are had.
struct SmSteps {
    unsigned minimum, step;
};

template <size_t most>
struct SmPart {
    static constexpr uint32_t genuine = 0x66736d73;
    static constexpr size_t words = 4;
    static_assert(most <= 64 * words);

    struct Hidden {
        uint32_t mark;
        int32_t device;
        uint64_t members[words];
        SmSteps steps;
        uint8_t split;
    };
    static_assert(sizeof(Hidden) <= sizeof(CUdevResource::_internal_padding));

    int device = 0;
    std::bitset<most> members;
    SmSteps steps = {};
    bool split = false;  // an output of a split cannot be split again

    // The first `count` of these are the other's now.
    SmPart take(size_t count) {
        SmPart taken = {device, {}, steps, true};
        for (size_t sm = 0; sm < most && taken.members.count() < count; ++sm) taken.members[sm] = members[sm];
        members &= ~taken.members;
        return taken;
    }

    CUdevResource resource() const {
        CUdevResource given;
        std::memset(&given, 0, sizeof given);
        given.type = CU_DEV_RESOURCE_TYPE_SM;
        given.sm.smCount = static_cast<unsigned>(members.count());
        given.sm.minSmPartitionSize = steps.minimum;
        given.sm.smCoscheduledAlignment = steps.step;
        Hidden hidden = {genuine, device, {}, steps, static_cast<uint8_t>(split)};
        for (size_t sm = 0; sm < most; ++sm)
            if (members[sm]) hidden.members[sm / 64] |= uint64_t{1} << (sm % 64);
        std::memcpy(given._internal_padding, &hidden, sizeof hidden);
        return given;
    }

    CUresult give(CUdevResource* resource_of_it, CUdevResourceType type) const {
        if (resource_of_it == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        *resource_of_it = resource();
        return CUDA_SUCCESS;
    }

    CUresult read(const CUdevResource& given) {
        if (given.type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        Hidden hidden;
        std::memcpy(&hidden, given._internal_padding, sizeof hidden);
        if (hidden.mark != genuine || hidden.steps.step == 0) return CUDA_ERROR_INVALID_VALUE;
        for (size_t sm = 0; sm < most; ++sm) members[sm] = (hidden.members[sm / 64] >> (sm % 64) & 1) != 0;
        device = hidden.device;
        steps = hidden.steps;
        split = hidden.split != 0;
        return CUDA_SUCCESS;
    }

    // cuDevResourceGenerateDesc: all of them together, also if one is named twice (as on an H200).
    CUresult join(const CUdevResource* resources, unsigned count) {
        if (resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
        for (unsigned index = 0; index < count; ++index) {
            SmPart part;
            if (const CUresult result = part.read(resources[index]); result != CUDA_SUCCESS) return result;
            if (index > 0 && part.device != device) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
            part.members |= members;
            *this = part;
        }
        return CUDA_SUCCESS;
    }

    // cuDevSmResourceSplitByCount.
    static CUresult divide(CUdevResource* result, unsigned* groups, const CUdevResource* input,
                           CUdevResource* remaining, unsigned flags, unsigned minimum) {
        constexpr unsigned fine = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING,
                           wide = CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
        if (groups == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if ((flags & ~(fine | wide)) != 0 || flags == (fine | wide)) return CUDA_ERROR_INVALID_VALUE;
        SmPart rest;
        if (const CUresult known = rest.read(*input); known != CUDA_SUCCESS) return known;
        const auto available = static_cast<unsigned>(rest.members.count());
        if (rest.split || minimum > available) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        const SmSteps steps = flags == fine ? SmSteps{2, 2} : rest.steps;
        // Rounded up, but never past what there is: 130 of 132 gives all 132.
        const unsigned size = std::min(
            std::max((minimum + steps.step - 1) / steps.step * steps.step, steps.minimum), available);
        const unsigned possible = size == 0 ? 0 : available / size;
        *groups = result == nullptr ? possible : std::min(*groups, possible);
        if (result == nullptr) return CUDA_SUCCESS;
        for (unsigned index = 0; index < *groups; ++index) result[index] = rest.take(size).resource();
        if (remaining != nullptr) {
            rest.split = true;
            *remaining = rest.resource();
            if (rest.members.none()) remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
        }
        return CUDA_SUCCESS;
    }
};

}  // namespace fikit
