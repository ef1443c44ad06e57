// The driver itself and its devices: what they are is known before they are used.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../older_libc.hpp"
#include "array_shape.hpp"
#include "entry.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

constexpr int version_without_device = 13000;  // what the entry points here are those of

CUresult tell(CUresult error, const char* ErrorText::* what, const char** text) {
    if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *text = nullptr;
    for (unsigned i = 0; i < error_text_count && *text == nullptr; ++i)
        if (error_texts[i].code == static_cast<int>(error)) *text = error_texts[i].*what;
    return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// What the device has but a tenant cannot use through us: programs ask before they try.
bool withheld(CUdevice_attribute attribute) {
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
        case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
        case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
        case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK:
        case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH:
        case CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED:
            return true;
        default:
            return false;
    }
}

int attribute_of(const Device& device, CUdevice_attribute attribute) {
    const int known = device.attributes.attribute[attribute];
    if (attribute == CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES)
        return known & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return withheld(attribute) ? 0 : known;
}

// The device with its attributes.
CUresult find_described(CUdevice ordinal, Device*& device) {
    device = process.find_device(ordinal);
    return device != nullptr ? process.describe(*device) : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

CUresult cuInit(unsigned int flags) { return flags != 0 ? CUDA_ERROR_INVALID_VALUE : process.initialise(); }

CUresult cuDriverGetVersion(int* version) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Device* const device = process.first_opened();
    const bool ours = device != nullptr && !process.has_genuine_driver();
    *version = ours ? device->attributes.driver_version : genuine.driver_version();
    if (*version == 0) *version = version_without_device;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) { return tell(error, &ErrorText::name, text); }

CUresult cuGetErrorString(CUresult error, const char** text) {
    using Ask = CUresult (*)(CUresult, const char**);
    if (auto* ask = reinterpret_cast<Ask>(genuine.function("cuGetErrorString")); ask != nullptr)
        return ask(error, text);
    return tell(error, &ErrorText::text, text);
}

CUresult cuGetExportTable(const void** table, const CUuuid* identifier) {
    if (table == nullptr || identifier == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return genuine.table(table, identifier);
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (process.find_device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(process.device_count());
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    Device* device = nullptr;
    if (const CUresult result = find_described(ordinal, device); result != CUDA_SUCCESS) return result;
    snprintf(name, static_cast<size_t>(length), "%.*s", FIKIT_DEVICE_NAME, device->attributes.name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Device* device = nullptr;
    if (const CUresult result = find_described(ordinal, device); result != CUDA_SUCCESS) return result;
    memcpy(uuid->bytes, device->attributes.uuid, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    return fikit::shim::cuDeviceGetUuid(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Device* device = nullptr;
    if (const CUresult result = find_described(ordinal, device); result != CUDA_SUCCESS) return result;
    *bytes = device->memory_bytes();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Device* device = nullptr;
    if (const CUresult result = find_described(ordinal, device); result != CUDA_SUCCESS) return result;
    if (attribute <= 0 || attribute >= int{FIKIT_DEVICE_ATTRIBUTES}) return CUDA_ERROR_INVALID_VALUE;
    const int known = attribute_of(*device, attribute);
    if (known == INT32_MIN) return CUDA_ERROR_INVALID_VALUE;
    *value = known;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice ordinal) {
    if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Device* device = nullptr;
    if (const CUresult result = find_described(ordinal, device); result != CUDA_SUCCESS) return result;
    *properties = {};
    properties->maxThreadsPerBlock = attribute_of(*device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    for (int axis = 0; axis < 3; ++axis) {
        const auto threads = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + axis;
        const auto blocks = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + axis;
        properties->maxThreadsDim[axis] = attribute_of(*device, static_cast<CUdevice_attribute>(threads));
        properties->maxGridSize[axis] = attribute_of(*device, static_cast<CUdevice_attribute>(blocks));
    }
    properties->sharedMemPerBlock = attribute_of(*device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    properties->totalConstantMemory = attribute_of(*device, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    properties->SIMDWidth = attribute_of(*device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    properties->memPitch = attribute_of(*device, CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    properties->regsPerBlock = attribute_of(*device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    properties->clockRate = attribute_of(*device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    properties->textureAlign = attribute_of(*device, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
    if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Device* device = nullptr;
    if (const CUresult result = find_described(ordinal, device); result != CUDA_SUCCESS) return result;
    *major = attribute_of(*device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = attribute_of(*device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* elements, CUarray_format format, unsigned channels,
                                            CUdevice ordinal) {
    Device* device = nullptr;
    if (const CUresult result = find_described(ordinal, device); result != CUDA_SUCCESS) return result;
    const int widest = attribute_of(*device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH);
    const uint64_t most =
        most_in_line(static_cast<uint32_t>(format), channels, static_cast<uint64_t>(widest));
    if (elements == nullptr || most == 0) return CUDA_ERROR_INVALID_VALUE;
    *elements = most;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice ordinal) {
    if (text == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    Device* device = nullptr;
    if (const CUresult result = find_described(ordinal, device); result != CUDA_SUCCESS) return result;
    const int needed =
        snprintf(text, static_cast<size_t>(length), "%04x:%02x:%02x.0",
                 static_cast<unsigned>(attribute_of(*device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)),
                 static_cast<unsigned>(attribute_of(*device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)),
                 static_cast<unsigned>(attribute_of(*device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)));
    return needed < length ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
    if (device == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    unsigned domain = 0, bus = 0, slot = 0;
    const int parts = scan(text, "%x:%x:%x", &domain, &bus, &slot);
    if (parts < 2) return CUDA_ERROR_INVALID_VALUE;
    if (parts == 2) {  // of domain 0
        slot = bus;
        bus = domain;
        domain = 0;
    }
    for (unsigned i = 0; i < process.device_count(); ++i) {
        const Gpu& gpu = process.device(i).gpu;
        unsigned its_domain = 0, its_bus = 0, its_slot = 0;
        scan(gpu.pci, "%x:%x:%x", &its_domain, &its_bus, &its_slot);
        if (domain != its_domain || bus != its_bus || slot != its_slot) continue;
        *device = static_cast<CUdevice>(i);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *can = 0;
    return process.find_device(device) != nullptr && process.find_device(peer) != nullptr
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice device,
                                 CUdevice peer) {
    if (value == nullptr || attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
        attribute > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == peer || process.find_device(device) == nullptr || process.find_device(peer) == nullptr)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    if (!process.usable()) return process.unusable();
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const char* wished = getenv("CUDA_MODULE_LOADING");
    const bool eager = wished != nullptr && strcmp(wished, "EAGER") == 0;
    *mode = eager ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
