// Libraries and kernels: modules and functions that belong to no context.
//
// The driver lets a CUkernel stand for a CUfunction, and here a library is an image like a module's,
// so most calls are those of modules and functions. A library's variables are placed when they are
// first used, on the device that is then current.
#include <algorithm>

#include "capture.hpp"
#include "driver.hpp"
#include "image.hpp"
#include "jit_options.hpp"

using namespace fikit::sim;

namespace {

CUmodule as_module(CUlibrary library) { return reinterpret_cast<CUmodule>(library); }
CUfunction as_function(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

template <typename Body>
CUresult with_library(CUlibrary handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        Image* image = driver.images.find(as_module(handle));
        return image == nullptr || image->context != nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                             : body(driver, *image);
    });
}

// For what a library has on the current device.
template <typename Body>
CUresult with_loaded(CUlibrary handle, Body body) {
    return with_library(handle, [&](Driver& driver, Image& image) -> CUresult {
        Context* context = nullptr;
        const CUresult result = current_context(driver, context);
        return result == CUDA_SUCCESS ? body(image) : result;
    });
}

template <typename Body>
CUresult with_kernel(CUkernel handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        Function* function = driver.functions.find(as_function(handle));
        return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(driver, *function);
    });
}

CUresult load_library(CUlibrary* library, const std::vector<std::byte>& bytes, const JitOptions& options) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        return library == nullptr ? CUDA_ERROR_INVALID_VALUE : read_library(driver, bytes, options, library);
    });
}

bool is_device(CUdevice device) {
    int count = 0;
    return cuDeviceGetCount(&count) == CUDA_SUCCESS && device >= 0 && device < count;
}

}  // namespace

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* options, void** values,
                           unsigned int count, CUlibraryOption*, void**, unsigned int) {
    if (code == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return load_library(library, copy_wrapped(code), JitOptions(count, options, values));
}
CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option* options, void** values,
                               unsigned int count, CUlibraryOption*, void**, unsigned int) {
    std::vector<std::byte> bytes;
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!read_file(path, bytes)) return CUDA_ERROR_FILE_NOT_FOUND;
    return load_library(library, bytes, JitOptions(count, options, values));
}
CUresult cuLibraryUnload(CUlibrary library) {
    return with_library(library, [](Driver& driver, Image& image) -> CUresult {
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        driver.release_image(image);
        return CUDA_SUCCESS;
    });
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
    // Here no name is one that nothing has, other than for modules (seen on an H200).
    const bool unnamed = name != nullptr && *name == '\0';
    return cuModuleGetFunction(reinterpret_cast<CUfunction*>(kernel), as_module(library),
                               unnamed ? " " : name);
}
CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary library) {
    return cuModuleGetFunctionCount(count, as_module(library));
}
CUresult cuLibraryEnumerateKernels(CUkernel* list, unsigned int count, CUlibrary library) {
    return cuModuleEnumerateFunctions(reinterpret_cast<CUfunction*>(list), count, as_module(library));
}
CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
    return with_loaded(library, [&](Image& image) -> CUresult {
        if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *module = image.handle;
        return image.wrong;
    });
}
CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
    const CUresult result = with_loaded(library, [](Image&) { return CUDA_SUCCESS; });
    return result == CUDA_SUCCESS ? cuModuleGetGlobal_v2(address, bytes, as_module(library), name) : result;
}
CUresult cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
    const CUresult result = with_library(library, [&](Driver&, Image& image) -> CUresult {
        if (name == nullptr || *name == '\0' || (address == nullptr && bytes == nullptr))
            return CUDA_ERROR_INVALID_VALUE;
        if (image.wrong != CUDA_SUCCESS) return image.wrong;
        const bool there = std::ranges::any_of(image.module.variables, [&](const ptx::Variable& variable) {
            return variable.managed && variable.name == name;
        });
        return there ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    });
    return result == CUDA_SUCCESS ? cuLibraryGetGlobal(address, bytes, library, name) : result;
}
// An H200 has no unified functions; what it says of any name, seen there.
CUresult cuLibraryGetUnifiedFunction(void**, CUlibrary library, const char*) {
    return with_library(library, [](Driver&, Image&) -> CUresult { return CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    return with_kernel(kernel, [&](Driver& driver, Function& found) -> CUresult {
        Context* context = nullptr;
        if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = current_context(driver, context); result != CUDA_SUCCESS) return result;
        *function = found.handle;
        return CUDA_SUCCESS;
    });
}
CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
    return with_kernel(kernel, [&](Driver&, Function& function) -> CUresult {
        if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *library = reinterpret_cast<CUlibrary>(function.image->handle);
        return CUDA_SUCCESS;
    });
}
CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    return cuFuncGetAttribute(value, attribute, as_function(kernel));
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    return cuFuncSetAttribute(as_function(kernel), attribute, value);
}
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    return cuFuncSetCacheConfig(as_function(kernel), config);
}
CUresult cuKernelGetName(const char** name, CUkernel kernel) {
    return cuFuncGetName(name, as_function(kernel));
}
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* bytes) {
    CUfunction function = nullptr;
    const CUresult result = cuKernelGetFunction(&function, kernel);
    return result != CUDA_SUCCESS ? result : cuFuncGetParamInfo(function, index, offset, bytes);
}

}  // extern "C"
