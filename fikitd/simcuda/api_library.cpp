// Libraries and their kernels: code that belongs to no context.
//
// A library is loaded as a module into each context where something of it is used, and there its kernels have
// functions. A kernel may be launched and asked about occupancy as if it were its function; elsewhere a
// function is no kernel and a kernel no function (as on an H200).
#include <algorithm>

#include "capture.hpp"
#include "driver.hpp"
#include "image.hpp"
#include "image_errors.hpp"
#include "jit_options.hpp"

using namespace fikit::sim;

namespace {

template <typename Body>
CUresult with_library(CUlibrary handle, Body body) {
    return with_object<&Driver::libraries>(handle, CUDA_ERROR_INVALID_HANDLE, body);
}

// For what a library has in the current context.
template <typename Body>
CUresult with_loaded(CUlibrary handle, Body body) {
    return with_library(handle, [&](Driver& driver, Library& library) -> CUresult {
        Context* context = nullptr;
        const CUresult result = current_context(driver, context);
        return result == CUDA_SUCCESS ? body(driver, library, *context) : result;
    });
}

template <typename Body>
CUresult with_kernel(CUkernel handle, Body body) {
    return with_object<&Driver::library_kernels>(handle, CUDA_ERROR_INVALID_HANDLE, body);
}

CUresult load_library(CUlibrary* handle, const std::vector<std::byte>& bytes, const JitOptions& options) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        auto library = std::make_shared<Library>();
        library->wrong = read_code(driver, bytes, options, *library->code);
        if (library->wrong != CUDA_SUCCESS && !fikit::is_of_image(library->wrong)) return library->wrong;
        for (const ptx::Kernel& code : library->code->module.kernels) {
            auto kernel = std::make_shared<LibraryKernel>();
            kernel->library = library.get();
            kernel->code = &code;
            driver.library_kernels.add(kernel);
            library->kernels.emplace(code.name, std::move(kernel));
        }
        *handle = driver.libraries.add(std::move(library));
        return CUDA_SUCCESS;
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
CUresult cuLibraryUnload(CUlibrary handle) {
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        CUresult result = driver.sticky();
        const Library* const given = driver.libraries.find(handle);
        if (result == CUDA_SUCCESS && given == nullptr) result = CUDA_ERROR_INVALID_HANDLE;
        if (result == CUDA_SUCCESS) result = refuse_unsafe(driver);
        if (result != CUDA_SUCCESS) return result;
        if (!given->images.empty()) {  // as a module's
            Context* context = nullptr;
            if (current_context(driver, context) == CUDA_SUCCESS) result = driver.synchronize(lock, *context);
            if (result == CUDA_SUCCESS) result = driver.stand_still(lock);
            if (result != CUDA_SUCCESS) return result;
        }
        Library* library = driver.libraries.find(handle);
        if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        driver.release_library(*library);
        return CUDA_SUCCESS;
    });
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
    return with_library(handle, [&](Driver&, Library& library) -> CUresult {
        if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (library.wrong != CUDA_SUCCESS) return library.wrong;
        const auto found = library.kernels.find(name);
        if (found == library.kernels.end()) return CUDA_ERROR_NOT_FOUND;
        *kernel = found->second->handle;
        return CUDA_SUCCESS;
    });
}
CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) {
    return with_library(handle, [&](Driver&, Library& library) -> CUresult {
        if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *count = static_cast<unsigned>(library.kernels.size());
        return CUDA_SUCCESS;
    });
}
CUresult cuLibraryEnumerateKernels(CUkernel* list, unsigned int count, CUlibrary handle) {
    return with_library(handle, [&](Driver&, Library& library) -> CUresult {
        if (list == nullptr) return CUDA_ERROR_INVALID_VALUE;
        unsigned index = 0;
        for (const ptx::Kernel& kernel : library.code->module.kernels) {
            if (index == count) break;
            list[index++] = library.kernels.at(kernel.name)->handle;
        }
        return CUDA_SUCCESS;
    });
}
CUresult cuLibraryGetModule(CUmodule* module, CUlibrary handle) {
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        Library* library = nullptr;
        Context* context = nullptr;
        const auto find = [&] {
            if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
            library = driver.libraries.find(handle);
            return library == nullptr ? CUDA_ERROR_INVALID_HANDLE : current_context(driver, context);
        };
        if (const CUresult result = find(); result != CUDA_SUCCESS) return result;
        if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (library->wrong != CUDA_SUCCESS) return library->wrong;
        if (!library->images.contains(&home_of(*context))) {  // code is brought to a GPU where nothing runs
            CUresult result = driver.stand_still(lock);
            if (result == CUDA_SUCCESS) result = find();
            if (result != CUDA_SUCCESS) return result;
        }
        Image* image = nullptr;
        const CUresult result = find_loaded(driver, *library, *context, image);
        if (result == CUDA_SUCCESS) *module = image->handle;
        return result;
    });
}
CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle, const char* name) {
    CUmodule module = nullptr;
    const CUresult result = with_loaded(handle, [&](Driver&, Library&, Context&) -> CUresult {
        const bool asks = name != nullptr && *name != '\0' && (address != nullptr || bytes != nullptr);
        return asks ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
    if (result != CUDA_SUCCESS) return result;
    const CUresult loaded = cuLibraryGetModule(&module, handle);
    return loaded == CUDA_SUCCESS ? cuModuleGetGlobal_v2(address, bytes, module, name) : loaded;
}
CUresult cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary handle, const char* name) {
    const CUresult result = with_library(handle, [&](Driver&, Library& library) -> CUresult {
        if (name == nullptr || *name == '\0' || (address == nullptr && bytes == nullptr))
            return CUDA_ERROR_INVALID_VALUE;
        if (library.wrong != CUDA_SUCCESS) return library.wrong;
        const auto& variables = library.code->module.variables;
        const bool there = std::ranges::any_of(variables, [&](const ptx::Variable& variable) {
            return variable.managed && variable.name == name;
        });
        return there ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    });
    return result == CUDA_SUCCESS ? cuLibraryGetGlobal(address, bytes, handle, name) : result;
}
// An H200 has no unified functions; what it says of any name, seen there.
CUresult cuLibraryGetUnifiedFunction(void**, CUlibrary handle, const char*) {
    return with_library(handle, [](Driver&, Library&) -> CUresult { return CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) {
    return with_kernel(handle, [&](Driver& driver, LibraryKernel&) -> CUresult {
        Context* context = nullptr;
        if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
        CUresult result = current_context(driver, context);
        Function* found = nullptr;
        if (result == CUDA_SUCCESS)
            result = find_function(driver, reinterpret_cast<CUfunction>(handle), *context, found);
        if (result == CUDA_SUCCESS) *function = found->handle;
        return result;
    });
}
CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel handle) {
    return with_kernel(handle, [&](Driver&, LibraryKernel& kernel) -> CUresult {
        if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *library = kernel.library->handle;
        return CUDA_SUCCESS;
    });
}
CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle, CUdevice device) {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    return with_kernel(handle, [&](Driver&, LibraryKernel& kernel) -> CUresult {
        if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (!is_preference(attribute))
            return compiled_attribute(kernel.library->code->module, *kernel.code, attribute, *value);
        *value = kernel.preference(device, attribute);
        return CUDA_SUCCESS;
    });
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device) {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    return with_kernel(handle, [&](Driver&, LibraryKernel& kernel) {
        return set_preference(*kernel.code, kernel.preferences[device], attribute, value);
    });
}
CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device) {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    return with_kernel(handle, [&](Driver&, LibraryKernel&) {
        return is_preference(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}
CUresult cuKernelGetName(const char** name, CUkernel handle) {
    // Here, other than elsewhere, no handle is a bad value (as driver 580).
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return with_kernel(handle, [&](Driver&, LibraryKernel& kernel) -> CUresult {
        if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *name = kernel.code->name.c_str();
        return CUDA_SUCCESS;
    });
}
CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* bytes) {
    return with_kernel(handle, [&](Driver& driver, LibraryKernel& kernel) {
        Context* context = nullptr;
        if (const CUresult none = current_context(driver, context); none != CUDA_SUCCESS) return none;
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        return tell_parameter(*kernel.code, index, offset, bytes);
    });
}

}  // extern "C"
