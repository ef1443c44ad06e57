// Which attributes of launches kernels' nodes in graphs have, as an H200 (driver 580) has them.
#pragma once

#include <cuda.h>

namespace fikit {

// Others are of streams and captures.
inline bool is_node_attribute(CUlaunchAttributeID id) {
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            return true;
        default:
            return false;
    }
}

// But for sizes of clusters, which depend on the launch. `sync_domains`: as many as the device has.
inline bool may_be_of_node(CUlaunchAttributeID id, const CUlaunchAttributeValue& value,
                           unsigned sync_domains) {
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
            return value.memSyncDomainMap.default_ < sync_domains &&
                   value.memSyncDomainMap.remote < sync_domains;
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
            return value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT ||
                   value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            return value.sharedMemCarveout <= 100;
        default:
            return is_node_attribute(id);
    }
}

}  // namespace fikit
