// Which attributes of launches a tenant's side sends to the executor, which takes these: they decide how the
// kernel runs. Of the others its side makes what it can.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fikit {

constexpr bool is_sent(uint32_t id) {
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            return true;
        default:
            return false;
    }
}

}  // namespace fikit
