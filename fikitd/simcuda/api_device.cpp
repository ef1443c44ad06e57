// Initialisation and devices: the calls that need no context.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "array.hpp"
#include "device_calls.hpp"

using namespace fikit::sim;

namespace {

// Of the modelled driver, CUDA 13.0's; the header may know more.
constexpr int last_attribute = CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED;

}  // namespace

extern "C" {

CUresult cuInit(unsigned int flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    try {
        Driver& driver = Driver::instance();
        if (driver.forked) return CUDA_ERROR_NOT_INITIALIZED;
        const Driver::Lock lock(driver.mutex);
        return driver.initialise();
    } catch (const std::exception&) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

CUresult cuDriverGetVersion(int* version) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = model::driver_version;
    return CUDA_SUCCESS;
}

CUresult cuProfilerStart() {
    return with_context([](auto&&...) { return CUDA_SUCCESS; });
}
CUresult cuProfilerStop() {
    return with_context([](auto&&...) { return CUDA_SUCCESS; });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    return with_driver([&](Driver&, Driver::Lock&) -> CUresult {
        if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const char* wished = std::getenv("CUDA_MODULE_LOADING");
        const bool eager = wished != nullptr && std::strcmp(wished, "EAGER") == 0;
        *mode = eager ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetCount(int* count) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *count = static_cast<int>(driver.devices.size());
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return with_device(ordinal, [&](Driver&, Driver::Lock&, SimulatedDevice&) {
        *device = ordinal;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice&) -> CUresult {
        if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
        std::snprintf(name, static_cast<std::size_t>(length), "%s", model::device_name);
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice& simulated) -> CUresult {
        if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *uuid = uuid_of(simulated.index);
        return CUDA_SUCCESS;
    });
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice& simulated) -> CUresult {
        if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *bytes = simulated.physical.total();
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    return with_device(device, [&](Driver& driver, Driver::Lock&, SimulatedDevice& simulated) -> CUresult {
        if (value == nullptr || attribute <= 0 || attribute > last_attribute) return CUDA_ERROR_INVALID_VALUE;
        *value = device_attribute(attribute);
        if (attribute == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS && driver.settings.pageable) *value = 1;
        if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) *value = static_cast<int>(simulated.index + 1);
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* elements, CUarray_format format, unsigned channels,
                                            CUdevice device) {
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice&) -> CUresult {
        const int widest = device_attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH);
        const std::uint64_t most = most_in_line(format, channels, static_cast<std::uint64_t>(widest));
        if (elements == nullptr || most == 0) return CUDA_ERROR_INVALID_VALUE;
        *elements = most;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice& simulated) -> CUresult {
        if (text == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
        const int needed =
            std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", simulated.index + 1);
        return needed < length ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        unsigned domain = 0, bus = 0, slot = 0;
        if (device == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const int parts = std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot);
        if (parts < 2) return CUDA_ERROR_INVALID_VALUE;
        if (parts == 2) {  // of domain 0
            slot = bus;
            bus = domain;
            domain = 0;
        }
        if (domain != 0 || slot != 0) return CUDA_ERROR_INVALID_DEVICE;
        for (const auto& simulated : driver.devices) {
            if (simulated->index + 1 != bus) continue;
            *device = simulated->ordinal;
            return CUDA_SUCCESS;
        }
        return CUDA_ERROR_INVALID_DEVICE;
    });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice&) -> CUresult {
        if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *major = 9;
        *minor = 0;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice&) -> CUresult {
        if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *properties = {device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
                       {device_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                        device_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                        device_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
                       {device_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                        device_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                        device_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
                       device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
                       device_attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
                       device_attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
                       device_attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
                       device_attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
                       device_attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
                       device_attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)};
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    return with_device(device, [&](Driver& driver, Driver::Lock&, SimulatedDevice&) -> CUresult {
        if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (peer < 0 || static_cast<std::size_t>(peer) >= driver.devices.size())
            return CUDA_ERROR_INVALID_DEVICE;
        *can = 0;
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
