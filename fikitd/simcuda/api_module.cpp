// Modules, libraries, functions and kernels.
//
// A module and a library are the same Image, a function and a kernel the same Function: the driver
// lets a CUkernel stand for a CUfunction, and so do we. A library's variables are placed when they
// are first used, on the device that is then current.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "driver.hpp"

using namespace fikit::sim;

namespace {

struct JitLog {
    char* buffer = nullptr;
    std::uintptr_t bytes = 0;
};

JitLog error_log(unsigned count, CUjit_option* options, void** values) {
    JitLog log;
    for (unsigned index = 0; options != nullptr && values != nullptr && index < count; ++index) {
        if (options[index] == CU_JIT_ERROR_LOG_BUFFER) log.buffer = static_cast<char*>(values[index]);
        if (options[index] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            log.bytes = reinterpret_cast<std::uintptr_t>(values[index]);
    }
    return log;
}

// What the first bytes say: PTX text starts with white space, a comment or a directive.
CUresult parse_image(Driver& driver, const void* data, ptx::Module& module, const JitLog& log) {
    if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto* bytes = static_cast<const unsigned char*>(data);
    if (bytes[0] == 0x7f && bytes[1] == 'E' && bytes[2] == 'L' && bytes[3] == 'F') {
        constexpr unsigned cuda_machine = 190;  // e_machine of a cubin
        return bytes[18] == cuda_machine ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
    }
    const auto word = [&](unsigned a, unsigned b, unsigned c, unsigned d) {
        return bytes[0] == a && bytes[1] == b && bytes[2] == c && bytes[3] == d;
    };
    if (word(0x50, 0xed, 0x55, 0xba) || word(0xb1, 0x43, 0x62, 0x46)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    const std::string_view text(static_cast<const char*>(data));
    const std::size_t start = text.find_first_not_of(" \t\r\n");
    if (start == std::string_view::npos || (text[start] != '.' && text[start] != '/'))
        return CUDA_ERROR_INVALID_IMAGE;
    std::string message;
    ptx::Verdict verdict = ptx::parse(text, module, message);
    if (verdict == ptx::Verdict::accepted && module.target <= 90) return CUDA_SUCCESS;
    if (verdict == ptx::Verdict::accepted) message = "ptxas fatal   : .target is newer than sm_90\n";
    if (log.buffer != nullptr && log.bytes > 0) {
        std::snprintf(log.buffer, log.bytes, "%s", message.c_str());
    } else if (driver.settings.verbose) {
        std::fputs(message.c_str(), stderr);
    }
    return verdict == ptx::Verdict::unsupported_version ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                                                        : CUDA_ERROR_INVALID_PTX;
}

CUresult place_variables(Driver& driver, Image& image, int device) {
    if (image.device >= 0) return CUDA_SUCCESS;
    DeviceHeap& heap = driver.devices[static_cast<std::size_t>(device)]->heap;
    image.device = device;
    for (const ptx::Variable& variable : image.module.variables) {
        const std::size_t bytes = std::max<std::size_t>(variable.bytes, 1);
        const std::uint64_t address = heap.allocate(bytes);
        if (address == 0) {
            driver.release_image(image);
            image.device = -1;
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        image.variables.push_back(address);
        Block block;
        block.address = address;
        block.bytes = bytes;
        block.device = device;
        block.id = driver.next_id++;
        driver.blocks[address] = block;
        for (std::size_t done = 0; done < bytes;) {
            const std::size_t part = std::min(
                bytes - done, model::page - static_cast<std::size_t>((address + done) % model::page));
            std::byte* place = driver.space.at(address + done, part, true);
            std::memset(place, 0, part);
            if (done < variable.initial.size()) {
                std::memcpy(place, variable.initial.data() + done,
                            std::min(part, variable.initial.size() - done));
            }
            done += part;
        }
    }
    return CUDA_SUCCESS;
}

CUmodule add_image(Driver& driver, ptx::Module module, Context* context) {
    auto image = std::make_shared<Image>();
    image->module = std::move(module);
    image->context = context;
    for (const ptx::Kernel& kernel : image->module.kernels) {
        auto function = std::make_unique<Function>();
        function->image = image.get();
        function->kernel = &kernel;
        function->dynamic_shared_limit =
            model::shared_per_block - std::min(kernel.static_shared, model::shared_per_block);
        // Owned by the image; the registry only knows the handle.
        driver.functions.add(std::shared_ptr<Function>(function.get(), [](Function*) {}));
        image->functions.emplace(kernel.name, std::move(function));
    }
    return driver.images.add(std::move(image));
}

CUresult load_module(CUmodule* handle, const void* data, const JitLog& log) {
    return with_context([&](Driver& driver, Driver::Lock& lock, Context& context,
                            SimulatedDevice&) -> CUresult {
        if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        ptx::Module module;
        if (const CUresult result = parse_image(driver, data, module, log); result != CUDA_SUCCESS)
            return result;
        if (const CUresult result = driver.stand_still(lock); result != CUDA_SUCCESS) return result;
        *handle = add_image(driver, std::move(module), context.owner != nullptr ? context.owner : &context);
        return place_variables(driver, *driver.images.find(*handle), context.device);
    });
}

bool read_file(const char* path, std::string& text) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return false;
    text.assign(std::istreambuf_iterator<char>(file), {});
    text.append(4, '\0');
    return true;
}

CUresult attribute_of(const Function& function, CUfunction_attribute attribute, int& value) {
    const ptx::Kernel& kernel = *function.kernel;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: {
            const unsigned warps =
                std::max(1U, model::registers_per_sm / (kernel.registers_per_thread * model::warp_size));
            value = static_cast<int>(std::min(kernel.threads_limit, warps * model::warp_size));
            break;
        }
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
            value = static_cast<int>(kernel.static_shared);
            break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS:
            value = static_cast<int>(kernel.registers_per_thread);
            break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
            value = static_cast<int>(function.image->module.target);
            break;
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
            value = 90;
            break;
        case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
        case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
        case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            value = 0;
            break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            value = static_cast<int>(function.dynamic_shared_limit);
            break;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            value = function.shared_carveout;
            break;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
            value = function.required_cluster[0];
            break;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
            value = function.required_cluster[1];
            break;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
            value = function.required_cluster[2];
            break;
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
            value = function.nonportable_cluster;
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult set_attribute(Function& function, CUfunction_attribute attribute, int value) {
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            if (value < 0 || static_cast<unsigned>(value) + function.kernel->static_shared >
                                 model::shared_per_block_optin) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            function.dynamic_shared_limit = static_cast<unsigned>(value);
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
            function.shared_carveout = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
            function.required_cluster[0] = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
            function.required_cluster[1] = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
            function.required_cluster[2] = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
            function.nonportable_cluster = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

template <typename Body>
CUresult with_image(CUmodule handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        Image* image = driver.images.find(handle);
        return image == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(driver, *image);
    });
}

template <typename Body>
CUresult with_function(CUfunction handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        Function* function = driver.functions.find(handle);
        return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(driver, *function);
    });
}

CUmodule as_module(CUlibrary library) { return reinterpret_cast<CUmodule>(library); }
CUfunction as_function(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

CUresult get_function(CUfunction* out, CUmodule module, const char* name) {
    return with_image(module, [&](Driver&, Image& image) -> CUresult {
        if (out == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
        const auto found = image.functions.find(name);
        if (found == image.functions.end()) return CUDA_ERROR_NOT_FOUND;
        *out = reinterpret_cast<CUfunction>(found->second.get());
        return CUDA_SUCCESS;
    });
}

CUresult get_global(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
    return with_image(module, [&](Driver& driver, Image& image) -> CUresult {
        if (name == nullptr || (address == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
        const auto& variables = image.module.variables;
        const auto found = std::find_if(variables.begin(), variables.end(),
                                        [&](const ptx::Variable& variable) { return variable.name == name; });
        if (found == variables.end()) return CUDA_ERROR_NOT_FOUND;
        if (image.device < 0) {
            Context* context = nullptr;
            CUresult result = current_context(driver, context);
            if (result == CUDA_SUCCESS) result = place_variables(driver, image, context->device);
            if (result != CUDA_SUCCESS) return result;
        }
        if (address != nullptr)
            *address = image.variables[static_cast<std::size_t>(found - variables.begin())];
        if (bytes != nullptr) *bytes = found->bytes;
        return CUDA_SUCCESS;
    });
}

CUresult list_functions(CUfunction* list, unsigned count, CUmodule module) {
    return with_image(module, [&](Driver&, Image& image) -> CUresult {
        if (list == nullptr && count > 0) return CUDA_ERROR_INVALID_VALUE;
        unsigned index = 0;
        for (const ptx::Kernel& kernel : image.module.kernels) {
            if (index == count) break;
            list[index++] = reinterpret_cast<CUfunction>(image.functions.at(kernel.name).get());
        }
        return CUDA_SUCCESS;
    });
}

CUresult count_functions(unsigned* count, CUmodule module) {
    return with_image(module, [&](Driver&, Image& image) -> CUresult {
        if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *count = static_cast<unsigned>(image.functions.size());
        return CUDA_SUCCESS;
    });
}

CUresult parameter(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
    return with_function(handle, [&](Driver&, Function& function) -> CUresult {
        if (offset == nullptr || index >= function.kernel->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
        *offset = function.kernel->parameters[index].offset;
        if (bytes != nullptr) *bytes = function.kernel->parameters[index].bytes;
        return CUDA_SUCCESS;
    });
}

CUresult name_of(const char** name, CUfunction handle) {
    return with_function(handle, [&](Driver&, Function& function) -> CUresult {
        if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *name = function.kernel->name.c_str();
        return CUDA_SUCCESS;
    });
}

}  // namespace

namespace fikit::sim {

CUresult place_image(Driver& driver, Image& image, int device) {
    return place_variables(driver, image, device);
}

}  // namespace fikit::sim

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) { return load_module(module, image, {}); }
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count, CUjit_option* options,
                            void** values) {
    return load_module(module, image, error_log(count, options, values));
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) { return load_module(module, image, {}); }
CUresult cuModuleLoad(CUmodule* module, const char* path) {
    std::string text;
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!read_file(path, text)) return CUDA_ERROR_FILE_NOT_FOUND;
    return load_module(module, text.data(), {});
}

CUresult cuModuleUnload(CUmodule handle) {
    return with_image(handle, [](Driver& driver, Image& image) -> CUresult {
        driver.release_image(image);
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    return get_function(function, module, name);
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
    return get_global(address, bytes, module, name);
}
CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule module) {
    return count_functions(count, module);
}
CUresult cuModuleEnumerateFunctions(CUfunction* list, unsigned int count, CUmodule module) {
    return list_functions(list, count, module);
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* options, void** values,
                           unsigned int count, CUlibraryOption*, void**, unsigned int) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
        ptx::Module module;
        const CUresult result = parse_image(driver, code, module, error_log(count, options, values));
        if (result == CUDA_SUCCESS)
            *library = reinterpret_cast<CUlibrary>(add_image(driver, std::move(module), nullptr));
        return result;
    });
}
CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option* options, void** values,
                               unsigned int count, CUlibraryOption* library_options, void** library_values,
                               unsigned int library_count) {
    std::string text;
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!read_file(path, text)) return CUDA_ERROR_FILE_NOT_FOUND;
    return cuLibraryLoadData(library, text.data(), options, values, count, library_options, library_values,
                             library_count);
}
CUresult cuLibraryUnload(CUlibrary library) { return cuModuleUnload(as_module(library)); }
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
    return get_function(reinterpret_cast<CUfunction*>(kernel), as_module(library), name);
}
CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary library) {
    return count_functions(count, as_module(library));
}
CUresult cuLibraryEnumerateKernels(CUkernel* list, unsigned int count, CUlibrary library) {
    return list_functions(reinterpret_cast<CUfunction*>(list), count, as_module(library));
}
CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
    return with_image(as_module(library), [&](Driver&, Image&) -> CUresult {
        if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *module = as_module(library);
        return CUDA_SUCCESS;
    });
}
CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
    return get_global(address, bytes, as_module(library), name);
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    return with_function(as_function(kernel), [&](Driver&, Function&) -> CUresult {
        if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *function = as_function(kernel);
        return CUDA_SUCCESS;
    });
}
CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
    return with_function(as_function(kernel), [&](Driver&, Function& function) -> CUresult {
        if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *library = reinterpret_cast<CUlibrary>(function.image);
        return CUDA_SUCCESS;
    });
}
CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice) {
    return cuFuncGetAttribute(value, attribute, as_function(kernel));
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice) {
    return cuFuncSetAttribute(as_function(kernel), attribute, value);
}
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice) {
    return cuFuncSetCacheConfig(as_function(kernel), config);
}
CUresult cuKernelGetName(const char** name, CUkernel kernel) { return name_of(name, as_function(kernel)); }
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* bytes) {
    return parameter(as_function(kernel), index, offset, bytes);
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
    return with_function(handle, [&](Driver&, Function& function) -> CUresult {
        return value == nullptr ? CUDA_ERROR_INVALID_VALUE : attribute_of(function, attribute, *value);
    });
}
CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    return with_function(
        handle, [&](Driver&, Function& function) { return set_attribute(function, attribute, value); });
}
CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
    return with_function(handle, [&](Driver&, Function& function) -> CUresult {
        if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
            return CUDA_ERROR_INVALID_VALUE;
        function.cache_config = config;
        return CUDA_SUCCESS;
    });
}
CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
    return with_function(handle, [&](Driver&, Function& function) -> CUresult {
        if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *module = reinterpret_cast<CUmodule>(function.image);
        return CUDA_SUCCESS;
    });
}
CUresult cuFuncGetName(const char** name, CUfunction handle) { return name_of(name, handle); }
CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
    return parameter(handle, index, offset, bytes);
}
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
    return with_function(handle, [&](Driver&, Function&) -> CUresult {
        if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *state = CU_FUNCTION_LOADING_STATE_LOADED;
        return CUDA_SUCCESS;
    });
}
CUresult cuFuncLoad(CUfunction handle) {
    return with_function(handle, [](auto&&...) { return CUDA_SUCCESS; });
}

}  // extern "C"
