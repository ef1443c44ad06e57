// NVML as far as it is answered here: which GPUs there are, their memory and processes as the program's
// tenant may see them, and that they are no peers of each other.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../older_libc.hpp"
#include "library.hpp"

using namespace fikit::nvml;

#define EXPORTED extern "C" __attribute__((visibility("default"))) nvmlReturn_t

namespace {

nvmlReturn_t give(const char* text, char* to, unsigned length) {
    if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}

template <class Value>
nvmlReturn_t give(Value value, Value* to) {
    if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *to = value;
    return NVML_SUCCESS;
}

// The first GPU for which it holds.
template <class Holds>
nvmlReturn_t find(nvmlDevice_t* handle, const Holds& holds) {
    if (handle == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return library.with_devices([&](Devices& devices) {
        for (unsigned i = 0; i < devices.count; ++i)
            if (holds(devices.device[i], i)) return library.handle_of(devices.device[i], *handle);
        return NVML_ERROR_NOT_FOUND;
    });
}

struct Place {
    unsigned domain = 0, bus = 0, device = 0;
    bool operator==(const Place&) const = default;
    bool read(const char* text) {
        unsigned function;
        if (fikit::scan(text, "%x:%x:%x.%x", &domain, &bus, &device, &function) >= 3) return true;
        domain = 0;
        return fikit::scan(text, "%x:%x.%x", &bus, &device, &function) == 3;
    }
};

// For the versions of the structure; what the daemon does not tell, the genuine library does.
template <class Information>
nvmlReturn_t place_of(const char* name, nvmlDevice_t handle, Information* information) {
    if (information == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return library.with_device(handle, [&](Device& device) {
        using Ask = nvmlReturn_t (*)(nvmlDevice_t, Information*);
        if (void* const ask = library.genuine(name); ask != nullptr)
            return reinterpret_cast<Ask>(ask)(handle, information);
        Place place;
        place.read(device.pci);
        *information = {};
        information->domain = place.domain;
        information->bus = place.bus;
        information->device = place.device;
        if constexpr (sizeof information->busId == sizeof(nvmlPciInfo_v2_t::busId))
            snprintf(information->busId, sizeof information->busId, "%04x:%02x:%02x.0", place.domain & 0xffff,
                     place.bus & 0xff, place.device & 0xff);
        else
            snprintf(information->busId, sizeof information->busId, "%08X:%02X:%02X.0", place.domain,
                     place.bus, place.device);
        return NVML_SUCCESS;
    });
}

template <class Information>
nvmlReturn_t processes_of(nvmlDevice_t handle, unsigned* count, Information* list) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return library.with_device_now(handle, [&](Device& device) {
        const unsigned room = *count;
        *count = device.process_count;
        if (room < device.process_count) return NVML_ERROR_INSUFFICIENT_SIZE;
        if (list == nullptr && device.process_count != 0) return NVML_ERROR_INVALID_ARGUMENT;
        for (unsigned i = 0; i < device.process_count; ++i) {
            if constexpr (sizeof(Information) == sizeof(nvmlProcessInfo_v1_t))
                list[i] = {device.processes[i].pid, device.processes[i].memory_bytes};
            else
                list[i] = {device.processes[i].pid, device.processes[i].memory_bytes, no_instance,
                           no_instance};
        }
        return NVML_SUCCESS;
    });
}

// Sessions are of the compute kind, all of them.
nvmlReturn_t no_processes(nvmlDevice_t handle, unsigned* count) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return library.with_device(handle, [&](Device&) {
        *count = 0;
        return NVML_SUCCESS;
    });
}

// No memory of another GPU is to be reached, so no link of this one is either.
nvmlReturn_t no_link(nvmlDevice_t handle) {
    return library.with_device(handle, [](Device&) { return NVML_ERROR_NOT_SUPPORTED; });
}

}  // namespace

// --- the library ---

EXPORTED nvmlInitWithFlags(unsigned flags) { return library.initialise(flags); }
EXPORTED nvmlInit() { return library.initialise(0); }
EXPORTED nvmlInit_v2() { return library.initialise(0); }
EXPORTED nvmlShutdown() { return library.shut_down(); }

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn_t result) {
    using Ask = const char* (*)(nvmlReturn_t);
    if (void* const ask = library.genuine("nvmlErrorString"); ask != nullptr)
        return reinterpret_cast<Ask>(ask)(result);
    switch (result) {
        case NVML_SUCCESS:
            return "Success";
        case NVML_ERROR_UNINITIALIZED:
            return "Uninitialized";
        case NVML_ERROR_INVALID_ARGUMENT:
            return "Invalid Argument";
        case NVML_ERROR_NOT_SUPPORTED:
            return "Not Supported";
        case NVML_ERROR_NOT_FOUND:
            return "Not Found";
        case NVML_ERROR_INSUFFICIENT_SIZE:
            return "Insufficient Size";
        case NVML_ERROR_DRIVER_NOT_LOADED:
            return "fikitd does not answer";
        case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
            return "Argument Version Mismatch";
        default:
            return "Unknown Error";
    }
}

EXPORTED nvmlSystemGetDriverVersion(char* version, unsigned length) {
    return library.with_devices([&](Devices& devices) {
        return devices.count != 0 ? give(devices.device[0].driver, version, length) : NVML_ERROR_NOT_FOUND;
    });
}

// That of the libcuda.so.1 that the program gets.
EXPORTED nvmlSystemGetCudaDriverVersion_v2(int* version) {
    if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return NVML_ERROR_NOT_FOUND;
    auto* const ask = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
    const bool told = ask != nullptr && ask(version) == 0;
    dlclose(driver);
    return told ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
EXPORTED nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

// --- which GPUs ---

EXPORTED nvmlDeviceGetCount_v2(unsigned* count) {
    return library.with_devices([&](Devices& devices) { return give(devices.count, count); });
}
EXPORTED nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

EXPORTED nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* handle) {
    const nvmlReturn_t result = find(handle, [&](const Device&, unsigned at) { return at == index; });
    return result == NVML_ERROR_NOT_FOUND ? NVML_ERROR_INVALID_ARGUMENT : result;
}
EXPORTED nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* handle) {
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

// Also without its kind before it, as an H200's takes it: cuda.core has it from CUDA.
EXPORTED nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* handle) {
    if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return find(handle, [&](const Device& device, unsigned) {
        constexpr size_t kind = sizeof "GPU-" - 1;
        return strcmp(device.uuid, uuid) == 0 ||
               (strlen(device.uuid) > kind && strcmp(device.uuid + kind, uuid) == 0);
    });
}

EXPORTED nvmlDeviceGetHandleByPciBusId_v2(const char* text, nvmlDevice_t* handle) {
    Place wanted;
    if (text == nullptr || !wanted.read(text)) return NVML_ERROR_INVALID_ARGUMENT;
    return find(handle, [&](const Device& device, unsigned) {
        Place place;
        return place.read(device.pci) && place == wanted;
    });
}
EXPORTED nvmlDeviceGetHandleByPciBusId(const char* text, nvmlDevice_t* handle) {
    return nvmlDeviceGetHandleByPciBusId_v2(text, handle);
}

EXPORTED nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned* index) {
    return library.with_device(handle, [&](Device& device) { return give(library.index_of(device), index); });
}
EXPORTED nvmlDeviceGetUUID(nvmlDevice_t handle, char* uuid, unsigned length) {
    return library.with_device(handle, [&](Device& device) { return give(device.uuid, uuid, length); });
}
EXPORTED nvmlDeviceGetName(nvmlDevice_t handle, char* name, unsigned length) {
    return library.with_device(handle, [&](Device& device) { return give(device.name, name, length); });
}
EXPORTED nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int* major, int* minor) {
    if (major == nullptr || minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return library.with_device(handle, [&](Device& device) {
        *major = static_cast<int>(device.capability / 10);
        *minor = static_cast<int>(device.capability % 10);
        return NVML_SUCCESS;
    });
}

EXPORTED nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t* information) {
    const nvmlReturn_t result = place_of("nvmlDeviceGetPciInfo_v3", handle, information);
    if (result == NVML_SUCCESS && information->busIdLegacy[0] == '\0')
        snprintf(information->busIdLegacy, sizeof information->busIdLegacy, "%04x:%02x:%02x.0",
                 information->domain & 0xffff, information->bus & 0xff, information->device & 0xff);
    return result;
}
EXPORTED nvmlDeviceGetPciInfo_v2(nvmlDevice_t handle, nvmlPciInfo_v2_t* information) {
    return place_of("nvmlDeviceGetPciInfo_v2", handle, information);
}
EXPORTED nvmlDeviceGetPciInfo(nvmlDevice_t handle, nvmlPciInfo_v2_t* information) {
    return nvmlDeviceGetPciInfo_v2(handle, information);
}
EXPORTED nvmlDeviceGetPciInfoExt(nvmlDevice_t handle, nvmlPciInfoExt_v1_t* information) {
    if (information == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    constexpr unsigned version = version_of<nvmlPciInfoExt_v1_t>(1);
    if (information->version != version) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const nvmlReturn_t result = place_of("nvmlDeviceGetPciInfoExt", handle, information);
    information->version = version;
    return result;
}

// --- what the tenant may have and uses ---

EXPORTED nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) {
    if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return library.with_device_now(handle, [&](Device& device) {
        *memory = {device.memory_bytes, device.memory_bytes - device.used_bytes, device.used_bytes};
        return NVML_SUCCESS;
    });
}
EXPORTED nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
    if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != version_of<nvmlMemory_v2_t>(2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return library.with_device_now(handle, [&](Device& device) {
        *memory = {memory->version, device.memory_bytes, 0, device.memory_bytes - device.used_bytes,
                   device.used_bytes};
        return NVML_SUCCESS;
    });
}

EXPORTED nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t handle, unsigned* count,
                                              nvmlProcessInfo_v1_t* list) {
    return processes_of(handle, count, list);
}
EXPORTED nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned* count,
                                                 nvmlProcessInfo_v2_t* list) {
    return processes_of(handle, count, list);
}
EXPORTED nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned* count,
                                                 nvmlProcessInfo_v2_t* list) {
    return processes_of(handle, count, list);
}
EXPORTED nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t handle, unsigned* count, void*) {
    return no_processes(handle, count);
}
EXPORTED nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t handle, unsigned* count, void*) {
    return no_processes(handle, count);
}
EXPORTED nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned* count, void*) {
    return no_processes(handle, count);
}
EXPORTED nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t handle, unsigned* count, void*) {
    return no_processes(handle, count);
}
EXPORTED nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned* count, void*) {
    return no_processes(handle, count);
}
EXPORTED nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned* count, void*) {
    return no_processes(handle, count);
}

// --- peers ---

EXPORTED nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, int, int* status) {
    if (status == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const nvmlReturn_t known = library.with_device(other, [](Device&) { return NVML_SUCCESS; });
    if (known != NVML_SUCCESS) return known;
    return library.with_device(one, [&](Device&) {
        *status = one == other ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
        return NVML_SUCCESS;
    });
}
EXPORTED nvmlDeviceGetNvLinkState(nvmlDevice_t handle, unsigned, int*) { return no_link(handle); }
EXPORTED nvmlDeviceGetNvLinkCapability(nvmlDevice_t handle, unsigned, int, unsigned*) {
    return no_link(handle);
}
EXPORTED nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t handle, unsigned, nvmlPciInfo_v2_t*) {
    return no_link(handle);
}
EXPORTED nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t handle, unsigned, nvmlPciInfo_t*) {
    return no_link(handle);
}
EXPORTED nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t handle, unsigned, int*) { return no_link(handle); }
