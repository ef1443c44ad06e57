// Peers: no simulated device reaches another's memory, and no context is its own device's peer.
#include "driver.hpp"

using namespace fikit::sim;

namespace {

CUresult check_pair(const Driver& driver, CUdevice from, CUdevice to) {
    const auto count = static_cast<CUdevice>(driver.devices.size());
    const bool valid = from >= 0 && from < count && to >= 0 && to < count && from != to;
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult check_peer(CUcontext handle, CUresult answer) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice&) -> CUresult {
        const Context* peer = driver.contexts.find(handle);
        return peer == nullptr || !peer->alive ? CUDA_ERROR_INVALID_CONTEXT : answer;
    });
}

}  // namespace

extern "C" {

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (value == nullptr || attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
            attribute > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const CUresult result = check_pair(driver, from, to);
        if (result == CUDA_SUCCESS) *value = 0;
        return result;
    });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : check_peer(peer, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}
CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    return check_peer(peer, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

}  // extern "C"
