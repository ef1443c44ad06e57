// Preloaded into a CUDA program, swallows what it gives the GPU to do: launches, fills and copies on the
// device. All else is the driver's own, so the program's host does its usual work, at full speed, on a GPU
// that it leaves idle: the control of bench.workloads, which tells the host's share of a slowdown from the
// GPU's.
//
// Libraries find the driver's functions by dlsym, then by cuGetProcAddress: both are answered here first.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#undef cuGetProcAddress

namespace {

using Lookup = CUresult (*)(const char*, void**, int, cuuint64_t);
using Lookup2 = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

Lookup lookup;
Lookup2 lookup_2;

CUresult nothing() { return CUDA_SUCCESS; }

bool swallowed(std::string_view name) {
    static constexpr std::string_view names[] = {
        "cuLaunchKernel",    "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch",
        "cuMemcpyDtoDAsync", "cuMemsetD8Async",  "cuMemsetD32Async"};
    for (const std::string_view ending : {"_ptsz", "_v2"})
        if (name.ends_with(ending)) name.remove_suffix(ending.size());
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

CUresult find(const char* name, void** function, int version, cuuint64_t flags) {
    const CUresult result = lookup(name, function, version, flags);
    if (result == CUDA_SUCCESS && swallowed(name)) *function = reinterpret_cast<void*>(nothing);
    return result;
}

CUresult find_2(const char* name, void** function, int version, cuuint64_t flags,
                CUdriverProcAddressQueryResult* status) {
    const CUresult result = lookup_2(name, function, version, flags, status);
    if (result != CUDA_SUCCESS) return result;
    if (swallowed(name)) *function = reinterpret_cast<void*>(nothing);
    if (std::string_view(name) == "cuGetProcAddress") {
        constexpr int second = 12000;  // the version that brought the second form
        *function = version >= second ? reinterpret_cast<void*>(find_2) : reinterpret_cast<void*>(find);
    }
    return result;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] void* dlsym(void* __restrict handle,
                                                      const char* __restrict name) noexcept {
    using Find = void* (*)(void*, const char*);
    static Find genuine = nullptr;
    if (genuine == nullptr) genuine = reinterpret_cast<Find>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
    const std::string_view wanted = name;
    if (wanted == "cuGetProcAddress") {
        lookup = reinterpret_cast<Lookup>(genuine(handle, name));
        return lookup != nullptr ? reinterpret_cast<void*>(find) : nullptr;
    }
    if (wanted == "cuGetProcAddress_v2") {
        lookup_2 = reinterpret_cast<Lookup2>(genuine(handle, name));
        if (lookup == nullptr) lookup = reinterpret_cast<Lookup>(genuine(handle, "cuGetProcAddress"));
        return lookup_2 != nullptr ? reinterpret_cast<void*>(find_2) : nullptr;
    }
    if (swallowed(wanted)) return reinterpret_cast<void*>(nothing);
    return genuine(handle, name);  // a jump, so that RTLD_NEXT still means the caller's next
}
