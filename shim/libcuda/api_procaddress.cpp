// cuGetProcAddress: entry points by name, version and kind of default stream.
#include <string.h>

#include "entry.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

constexpr int per_thread_version = 7000;  // of CUDA, which brought a default stream for each thread

// The first row of the name; the table is sorted by name, then version.
const EntryPoint* first_of(const char* name) {
    unsigned low = 0, high = entry_point_count;
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        if (strcmp(entry_points[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const bool found = low < entry_point_count && strcmp(entry_points[low].name, name) == 0;
    return found ? &entry_points[low] : nullptr;
}

}  // namespace

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
    constexpr cuuint64_t known =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (symbol == nullptr || function == nullptr || (flags & ~known) != 0 || flags == known)
        return CUDA_ERROR_INVALID_VALUE;
    int driver = 0;
    fikit::shim::cuDriverGetVersion(&driver);
    const EntryPoint* first = first_of(symbol);
    if (first != nullptr && first->version > driver) first = nullptr;  // unknown to that driver
    const EntryPoint* best = nullptr;
    for (const EntryPoint* row = first;
         row != nullptr && row < entry_points + entry_point_count && strcmp(row->name, symbol) == 0 &&
         row->version <= version && row->version <= driver;
         ++row)
        best = row;
    const bool own_stream = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    if (best != nullptr && own_stream && best->per_thread != best->plain && version < per_thread_version)
        best = nullptr;
    *function = best == nullptr ? nullptr : own_stream ? best->per_thread : best->plain;
    if (status != nullptr)
        *status = best != nullptr    ? CU_GET_PROC_ADDRESS_SUCCESS
                  : first != nullptr ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                     : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (best == nullptr && call_log.every()) call_log.say("cuGetProcAddress(%s, %d): none", symbol, version);
    // Who asks for the status gets success in any case (as driver 580).
    return best != nullptr || status != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
    return fikit::shim::cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // namespace fikit::shim
