// Primary contexts.
#include "device_calls.hpp"

using namespace fikit::sim;

namespace {

// A green context keeps its primary one, even when nobody retains that.
bool is_divided(Driver& driver, int device) {
    bool any = false;
    driver.greens.each([&](const GreenContext& green) { any = any || green.device == device; });
    return any;
}

// Once its work is over, unless others have ended it meanwhile; what was set for it goes with it.
void end_primary(Driver& driver, SimulatedDevice& device) {
    Context& context = *device.primary;
    if (!context.alive) return;
    driver.destroy_context(context);
    context.limits.forget();
    context.cache_config = CU_FUNC_CACHE_PREFER_NONE;
    context.shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
}

}  // namespace

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    return with_device(device, [&](Driver& driver, Driver::Lock&, SimulatedDevice& simulated) -> CUresult {
        if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        if (simulated.primary == nullptr) {
            driver.charge(model::call::context);
            simulated.primary = driver.make_context(device);
            simulated.primary->primary = true;
        }
        // The primary context keeps its handle for the life of the process.
        if (simulated.primary->retained == 0 || !simulated.primary->alive)
            simulated.primary->flags = simulated.primary_flags;
        simulated.primary->alive = true;
        ++simulated.primary->retained;
        *context = simulated.primary->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return with_device(device,
                       [&](Driver& driver, Driver::Lock& lock, SimulatedDevice& simulated) -> CUresult {
                           if (simulated.primary == nullptr || simulated.primary->retained == 0)
                               return CUDA_ERROR_INVALID_CONTEXT;
                           if (--simulated.primary->retained > 0) return CUDA_SUCCESS;
                           if (simulated.primary->alive) {
                               if (is_divided(driver, device)) return CUDA_ERROR_NOT_PERMITTED;
                               driver.synchronize(lock, *simulated.primary);
                               if (simulated.primary->retained > 0) return CUDA_SUCCESS;  // meanwhile
                               end_primary(driver, simulated);
                           }
                           simulated.primary_flags = 0;
                           return CUDA_SUCCESS;
                       });
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }

// Who retained it may still release it.
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return with_device(device,
                       [&](Driver& driver, Driver::Lock& lock, SimulatedDevice& simulated) -> CUresult {
                           if (is_divided(driver, device)) return CUDA_ERROR_NOT_PERMITTED;
                           if (simulated.primary != nullptr && simulated.primary->alive) {
                               driver.synchronize(lock, *simulated.primary);
                               end_primary(driver, simulated);
                           }
                           simulated.primary_flags = 0;
                           return CUDA_SUCCESS;
                       });
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice& simulated) -> CUresult {
        if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *flags = simulated.primary_flags;
        *active = simulated.primary != nullptr && simulated.primary->alive ? 1 : 0;
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice& simulated) -> CUresult {
        if (!are_context_flags(flags) || (flags & CU_CTX_MAP_HOST) != 0) return CUDA_ERROR_INVALID_VALUE;
        simulated.primary_flags = flags;
        if (simulated.primary != nullptr) simulated.primary->flags = flags;
        return CUDA_SUCCESS;
    });
}
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

}  // extern "C"
