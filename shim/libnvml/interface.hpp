// NVML's types, as far as they are answered here (NVIDIA NVML API reference; its header is not shipped with
// the CUDA toolkit's packages).
#pragma once

#include <cstdint>

extern "C" {

typedef enum : int {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
} nvmlReturn_t;

typedef struct nvmlDevice_st* nvmlDevice_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

// Version 3 is the same.
typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v2_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

// Of the first two versions: without the longer text, which the third put over what was reserved.
typedef struct {
    char busId[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId, reserved[4];
} nvmlPciInfo_v2_t;

typedef struct {
    unsigned version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
    char busId[32];
} nvmlPciInfoExt_v1_t;

enum {
    NVML_P2P_STATUS_OK = 0,
    NVML_P2P_STATUS_NOT_SUPPORTED = 5,
};
}

namespace fikit::nvml {

inline constexpr unsigned no_instance = 0xffffffff;  // no MIG
// The size and the number of a structure's version, as NVML packs them.
template <class Structure>
constexpr unsigned version_of(unsigned number) {
    return static_cast<unsigned>(sizeof(Structure)) | number << 24;
}
static_assert(version_of<nvmlMemory_v2_t>(2) == 0x02000028);
static_assert(version_of<nvmlPciInfoExt_v1_t>(1) == 0x01000040);
static_assert(sizeof(nvmlPciInfo_t) == 68 && sizeof(nvmlPciInfo_v2_t) == 52);
static_assert(sizeof(nvmlProcessInfo_v2_t) == 24 && sizeof(nvmlProcessInfo_v1_t) == 16);

}  // namespace fikit::nvml
