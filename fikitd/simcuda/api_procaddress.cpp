// cuGetProcAddress: entry points by name, version and kind of default stream.
#include <cstring>

#include "driver.hpp"
#include "procaddress.hpp"

using namespace fikit::sim;

namespace {

constexpr int per_thread_version = 7000;  // of CUDA, which brought a default stream for each thread

CUresult find_entry(const char* symbol, void** function, int version, cuuint64_t flags,
                    CUdriverProcAddressQueryResult* status) {
    constexpr cuuint64_t known =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (symbol == nullptr || function == nullptr || (flags & ~known) != 0 || flags == known) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const EntryPoint* best = nullptr;
    bool exists = false;
    for (std::size_t index = 0; index < entry_point_count; ++index) {
        const EntryPoint& entry = entry_points[index];
        // The headers that the table was made from may be newer than the driver that is modelled.
        if (entry.version > model::driver_version || std::strcmp(entry.name, symbol) != 0) continue;
        exists = true;
        if (entry.version <= version && (best == nullptr || entry.version >= best->version)) best = &entry;
    }
    *function = nullptr;
    const bool own_stream = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    if (best != nullptr && own_stream && best->per_thread != best->plain && version < per_thread_version)
        best = nullptr;
    if (best != nullptr) {
        *function = own_stream ? best->per_thread : best->plain;
    }
    if (status != nullptr) {
        *status = best != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
                  : exists        ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    // Who asks for the status gets success in any case (as driver 580).
    return best != nullptr || status != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
    return find_entry(symbol, pfn, version, flags, status);
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int version, cuuint64_t flags) {
    return find_entry(symbol, pfn, version, flags, nullptr);
}

}  // extern "C"
