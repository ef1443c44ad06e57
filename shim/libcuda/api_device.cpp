// The driver itself and its one device: everything is known since the session was opened.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../error_texts.hpp"
#include "entry.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

constexpr int version_without_device = 13000;  // what the entry points here are those of

bool is_device(CUdevice device) { return device == 0; }

// What the device has but a tenant cannot use through us: programs ask before they try.
bool withheld(CUdevice_attribute attribute) {
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
        case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
        case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
        case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
        case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED:
            return true;
        default:
            return false;
    }
}

int attribute_of(CUdevice_attribute attribute) {
    return withheld(attribute) ? 0 : process.device().attribute[attribute];
}

}  // namespace

CUresult cuInit(unsigned int flags) { return flags != 0 ? CUDA_ERROR_INVALID_VALUE : process.initialise(); }

CUresult cuDriverGetVersion(int* version) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = process.producer() != nullptr ? process.driver_version() : genuine.driver_version();
    if (*version == 0) *version = version_without_device;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
    if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *text = nullptr;
    for (unsigned i = 0; i < error_name_count && *text == nullptr; ++i)
        if (error_names[i].code == static_cast<int>(error)) *text = error_names[i].name;
    return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The driver's own words; what it has none for is told by its name.
CUresult cuGetErrorString(CUresult error, const char** text) {
    using Ask = CUresult (*)(CUresult, const char**);
    if (auto* ask = reinterpret_cast<Ask>(genuine.function("cuGetErrorString")); ask != nullptr)
        return ask(error, text);
    const CUresult result = fikit::shim::cuGetErrorName(error, text);
    for (const ErrorText& each : error_texts)
        if (each.code == error && result == CUDA_SUCCESS) *text = each.text;
    return result;
}

CUresult cuGetExportTable(const void** table, const CUuuid* identifier) {
    if (table == nullptr || identifier == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return genuine.table(table, identifier);
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (ordinal != 0) return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, static_cast<size_t>(length), "%.*s", FIKIT_DEVICE_NAME, process.device().name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, process.device().uuid, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    return fikit::shim::cuDeviceGetUuid(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = process.memory_bytes();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (attribute <= 0 || attribute >= int{FIKIT_DEVICE_ATTRIBUTES}) return CUDA_ERROR_INVALID_VALUE;
    const int known = attribute_of(attribute);
    if (known == INT32_MIN) return CUDA_ERROR_INVALID_VALUE;
    *value = known;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
    if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *properties = {};
    properties->maxThreadsPerBlock = attribute_of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    for (int axis = 0; axis < 3; ++axis) {
        const auto threads = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + axis;
        const auto blocks = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + axis;
        properties->maxThreadsDim[axis] = attribute_of(static_cast<CUdevice_attribute>(threads));
        properties->maxGridSize[axis] = attribute_of(static_cast<CUdevice_attribute>(blocks));
    }
    properties->sharedMemPerBlock = attribute_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    properties->totalConstantMemory = attribute_of(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    properties->SIMDWidth = attribute_of(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    properties->memPitch = attribute_of(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    properties->regsPerBlock = attribute_of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    properties->clockRate = attribute_of(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    properties->textureAlign = attribute_of(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
    if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *major = attribute_of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = attribute_of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
    if (text == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(text, static_cast<size_t>(length), "%04x:%02x:%02x.0",
             static_cast<unsigned>(attribute_of(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)),
             static_cast<unsigned>(attribute_of(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)),
             static_cast<unsigned>(attribute_of(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
    if (device == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    unsigned domain = 0, bus = 0, slot = 0;
    if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3 && sscanf(text, "%x:%x", &bus, &slot) != 2)
        return CUDA_ERROR_INVALID_VALUE;
    const bool same = bus == static_cast<unsigned>(attribute_of(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)) &&
                      slot == static_cast<unsigned>(attribute_of(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
    *device = 0;
    return same ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *can = 0;
    return is_device(device) && is_device(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const char* wished = getenv("CUDA_MODULE_LOADING");
    const bool eager = wished != nullptr && strcmp(wished, "EAGER") == 0;
    *mode = eager ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
