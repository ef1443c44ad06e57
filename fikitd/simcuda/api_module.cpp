// Modules: images loaded into a context.
#include <algorithm>

#include "capture.hpp"
#include "driver.hpp"
#include "image.hpp"
#include "jit_options.hpp"
#include "pool.hpp"

using namespace fikit::sim;

namespace {

CUresult load_module(CUmodule* handle, const std::vector<std::byte>& bytes, const JitOptions& options) {
    return with_context(
        [&](Driver& driver, Driver::Lock& lock, Context& context, SimulatedDevice&) -> CUresult {
            if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
            auto code = std::make_shared<Code>();
            if (const CUresult result = read_code(driver, bytes, options, *code); result != CUDA_SUCCESS)
                return result;
            if (const CUresult result = driver.stand_still(lock); result != CUDA_SUCCESS) return result;
            collect(driver);
            Context& home = home_of(context);
            Image* image = nullptr;
            const CUresult result = load_code(driver, std::move(code), home, nullptr, image);
            if (result == CUDA_SUCCESS) *handle = image->handle;
            return result;
        });
}

template <typename Body>
CUresult with_image(CUmodule handle, Body body) {
    return with_handle<&Driver::images>(handle, CUDA_ERROR_INVALID_HANDLE, body);
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count, CUjit_option* options,
                            void** values) {
    if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return load_module(module, copy_image(image), JitOptions(count, options, values));
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
    return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
CUresult cuModuleLoad(CUmodule* module, const char* path) {
    std::vector<std::byte> bytes;
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!read_file(path, bytes)) return CUDA_ERROR_FILE_NOT_FOUND;
    return load_module(module, bytes, {});
}

CUresult cuModuleUnload(CUmodule handle) {
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        const Image* const given = driver.images.find(handle);
        if (given == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (given->library != nullptr) return CUDA_ERROR_NOT_PERMITTED;  // it goes with that
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        // A launch may be under way to the device still, or behind something that is no kernel.
        CUresult result = driver.synchronize(lock, *given->context);
        if (result == CUDA_SUCCESS) result = driver.stand_still(lock);
        if (result != CUDA_SUCCESS) return result;
        Image* image = driver.images.find(handle);
        if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        driver.release_image(*image);
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    return with_image(module, [&](Driver&, Image& image) -> CUresult {
        if (function == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
        const auto found = image.functions.find(name);
        if (found == image.functions.end()) return CUDA_ERROR_NOT_FOUND;
        *function = found->second->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
    return with_image(module, [&](Driver&, Image& image) -> CUresult {
        if (name == nullptr || *name == '\0' || (address == nullptr && bytes == nullptr))
            return CUDA_ERROR_INVALID_VALUE;
        const auto& variables = image.code->module.variables;
        const auto found = std::find_if(variables.begin(), variables.end(),
                                        [&](const ptx::Variable& variable) { return variable.name == name; });
        // A kernel's name is another mistake than one that nothing has (seen on an H200).
        if (found == variables.end())
            return image.functions.contains(name) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
        if (address != nullptr)
            *address = image.variables[static_cast<std::size_t>(found - variables.begin())];
        if (bytes != nullptr) *bytes = found->bytes;
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleEnumerateFunctions(CUfunction* list, unsigned int count, CUmodule module) {
    return with_image(module, [&](Driver&, Image& image) -> CUresult {
        if (list == nullptr) return CUDA_ERROR_INVALID_VALUE;
        unsigned index = 0;
        for (const ptx::Kernel& kernel : image.code->module.kernels) {
            if (index == count) break;
            list[index++] = image.functions.at(kernel.name)->handle;
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule module) {
    return with_image(module, [&](Driver&, Image& image) -> CUresult {
        if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *count = static_cast<unsigned>(image.functions.size());
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
