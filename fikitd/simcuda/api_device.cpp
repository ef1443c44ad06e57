// Initialisation, errors and devices: the calls that need no context.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "driver.hpp"
#include "procaddress.hpp"

using namespace fikit::sim;

namespace {

// The driver's own words for the errors that users meet.
constexpr struct {
    CUresult code;
    const char* text;
} error_texts[] = {
    {CUDA_SUCCESS, "no error"},
    {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain."},
    {CUDA_ERROR_FILE_NOT_FOUND, "file not found"},
    {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"},
    {CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"},
    {CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"},
    {CUDA_ERROR_NOT_PERMITTED, "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
    {CUDA_ERROR_UNKNOWN, "unknown error"},
};

const char* error_name(CUresult code) {
    for (std::size_t index = 0; index < error_name_count; ++index) {
        if (error_names[index].code == static_cast<int>(code)) return error_names[index].name;
    }
    return nullptr;
}

template <typename Body>
CUresult with_device(CUdevice device, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        if (device < 0 || static_cast<std::size_t>(device) >= driver.devices.size())
            return CUDA_ERROR_INVALID_DEVICE;
        return body(driver, lock, *driver.devices[static_cast<std::size_t>(device)]);
    });
}

constexpr int giga = 1 << 30;

// The H200's attributes. What is not listed is 0: a feature the simulator does not have.
constexpr struct {
    CUdevice_attribute attribute;
    int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, model::threads_per_block},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, model::shared_per_block},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, model::constant_memory},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, model::warp_size},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, model::registers_per_sm},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, static_cast<int>(model::sm_clock_ghz * 1e6)},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, model::sm_count},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, model::memory_clock_khz},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, model::memory_bus_bits},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, model::l2_bytes},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, model::threads_per_sm},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, model::shared_per_sm},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, model::registers_per_sm},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, model::shared_per_block_optin},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, model::blocks_per_sm},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, model::shared_reserved_per_block},
    {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1},
    {CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, 0},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384},
};
static_assert(model::sm_count < giga);

}  // namespace

extern "C" {

CUresult cuInit(unsigned int flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    try {
        Driver& driver = Driver::instance();
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

CUresult cuGetErrorName(CUresult error, const char** text) {
    if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *text = error_name(error);
    return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
    const CUresult result = cuGetErrorName(error, text);
    if (result != CUDA_SUCCESS) return result;
    const auto* found = std::find_if(std::begin(error_texts), std::end(error_texts),
                                     [&](const auto& entry) { return entry.code == error; });
    if (found != std::end(error_texts)) *text = found->text;
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
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice&) -> CUresult {
        if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(uuid->bytes, "fikit-sim-gpu-", 14);
        uuid->bytes[14] = 0;
        uuid->bytes[15] = static_cast<char>(device);
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
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice&) -> CUresult {
        if (value == nullptr || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        const auto* found = std::find_if(std::begin(attributes), std::end(attributes),
                                         [&](const auto& entry) { return entry.attribute == attribute; });
        *value = found != std::end(attributes) ? found->value : 0;
        if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) *value = device + 1;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice&) -> CUresult {
        if (text == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
        std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0",
                      static_cast<unsigned>(device + 1));
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        unsigned domain = 0, bus = 0, slot = 0;
        if (device == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) return CUDA_ERROR_INVALID_VALUE;
        if (domain != 0 || bus == 0 || bus > driver.devices.size() || slot != 0)
            return CUDA_ERROR_INVALID_DEVICE;
        *device = static_cast<CUdevice>(bus - 1);
        return CUDA_SUCCESS;
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

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    return with_device(device, [&](Driver& driver, Driver::Lock&, SimulatedDevice&) -> CUresult {
        if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (peer < 0 || static_cast<std::size_t>(peer) >= driver.devices.size())
            return CUDA_ERROR_INVALID_DEVICE;
        *can = 0;
        return CUDA_SUCCESS;
    });
}

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
        simulated.primary->alive = true;
        simulated.primary->flags = simulated.primary_flags;
        ++simulated.primary->retained;
        *context = reinterpret_cast<CUcontext>(simulated.primary);
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return with_device(device,
                       [&](Driver& driver, Driver::Lock& lock, SimulatedDevice& simulated) -> CUresult {
                           if (simulated.primary == nullptr || simulated.primary->retained == 0)
                               return CUDA_ERROR_INVALID_CONTEXT;
                           if (--simulated.primary->retained > 0) return CUDA_SUCCESS;
                           driver.synchronize(lock, *simulated.primary);
                           driver.destroy_context(*simulated.primary);
                           return CUDA_SUCCESS;
                       });
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return with_device(device,
                       [&](Driver& driver, Driver::Lock& lock, SimulatedDevice& simulated) -> CUresult {
                           if (simulated.primary == nullptr || simulated.primary->retained == 0)
                               return CUDA_SUCCESS;
                           driver.synchronize(lock, *simulated.primary);
                           driver.destroy_context(*simulated.primary);
                           simulated.primary->retained = 0;
                           return CUDA_SUCCESS;
                       });
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice& simulated) -> CUresult {
        if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *flags = simulated.primary_flags;
        *active = simulated.primary != nullptr && simulated.primary->retained > 0 ? 1 : 0;
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
    return with_device(device, [&](Driver&, Driver::Lock&, SimulatedDevice& simulated) -> CUresult {
        const unsigned schedule = flags & CU_CTX_SCHED_MASK;
        if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0 || (schedule & (schedule - 1)) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        simulated.primary_flags = flags;
        if (simulated.primary != nullptr) simulated.primary->flags = flags;
        return CUDA_SUCCESS;
    });
}
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

}  // extern "C"
