// Modules: images loaded into a context.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "capture.hpp"
#include "driver.hpp"
#include "image.hpp"
#include "image_errors.hpp"
#include "jit_options.hpp"
#include "pool.hpp"

using namespace fikit::sim;

namespace {

CUresult read(Driver& driver, Bytes bytes, const JitOptions& options, LoadedImage& loaded) {
    std::string log;
    const CUresult result = load_image(bytes, loaded, log);
    if (result != CUDA_SUCCESS && !options.report(log) && driver.settings.verbose)
        std::fputs(log.c_str(), stderr);
    if (options.max_registers() != 0) {
        for (ptx::Kernel& kernel : loaded.module.kernels)
            kernel.registers_per_thread = std::min(kernel.registers_per_thread, options.max_registers());
    }
    return result;
}

CUresult load_module(CUmodule* handle, const std::vector<std::byte>& bytes, const JitOptions& options) {
    return with_context(
        [&](Driver& driver, Driver::Lock& lock, Context& context, SimulatedDevice&) -> CUresult {
            if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
            LoadedImage loaded;
            if (const CUresult result = read(driver, bytes, options, loaded); result != CUDA_SUCCESS)
                return result;
            if (const CUresult result = driver.stand_still(lock); result != CUDA_SUCCESS) return result;
            collect(driver);
            Image& image =
                add_image(driver, std::move(loaded), context.owner != nullptr ? context.owner : &context);
            *handle = image.handle;
            const CUresult result = place_image(driver, image, context.device);
            if (result != CUDA_SUCCESS) driver.release_image(image);
            return result;
        });
}

template <typename Body>
CUresult with_image(CUmodule handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        Image* image = driver.images.find(handle);
        return image == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(driver, *image);
    });
}

}  // namespace

namespace fikit::sim {

CUresult place_image(Driver& driver, Image& image, int device) {
    if (image.variables.contains(device)) return CUDA_SUCCESS;
    DeviceHeap& heap = driver.devices[static_cast<std::size_t>(device)]->heap;
    std::vector<std::uint64_t>& placed = image.variables[device];
    const bool first = image.variables.size() == 1 && image.managed.empty();
    for (const ptx::Variable& variable : image.module.variables) {
        if (variable.managed && !first) {
            placed.push_back(image.managed.at(placed.size()));
            continue;
        }
        const std::size_t bytes = std::max<std::size_t>(variable.bytes, 1);
        const std::uint64_t address =
            variable.managed ? allocate_host_pages(driver.space, bytes) : heap.allocate(bytes);
        if (address == 0) {
            if (first)
                driver.release_variables(image);
            else
                driver.release_variables(image, device);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (variable.managed) image.managed[placed.size()] = address;
        placed.push_back(address);
        Block block;
        block.kind = Block::Kind::variable;
        if (!variable.managed) block.context = image.context;
        block.address = address;
        block.bytes = bytes;
        block.device = device;
        block.id = driver.next_id++;
        if (variable.managed) make_managed(block);
        driver.blocks[address] = block;
    }
    for (std::size_t index = 0; index < placed.size(); ++index) {
        if (image.module.variables[index].managed && !first) continue;
        const std::uint64_t address = placed[index];
        const std::size_t bytes = std::max<std::size_t>(image.module.variables[index].bytes, 1);
        const std::vector<std::uint8_t> initial = ptx::initial_bytes(image.module.variables[index], placed);
        for (std::size_t done = 0; done < bytes;) {
            const std::size_t part = std::min(
                bytes - done, model::page - static_cast<std::size_t>((address + done) % model::page));
            std::byte* place = driver.space.at(address + done, part, true);
            std::memset(place, 0, part);
            if (done < initial.size()) {
                std::memcpy(place, initial.data() + done, std::min(part, initial.size() - done));
            }
            done += part;
        }
    }
    return CUDA_SUCCESS;
}

Image& add_image(Driver& driver, LoadedImage loaded, Context* context) {
    auto image = std::make_shared<Image>();
    image->module = std::move(loaded.module);
    image->opaque = loaded.opaque;
    image->context = context;
    for (const ptx::Kernel& kernel : image->module.kernels) {
        auto function = std::make_unique<Function>();
        function->image = image.get();
        function->kernel = &kernel;
        function->dynamic_shared_limit =
            model::shared_per_block - std::min(kernel.static_shared, model::shared_per_block);
        // Owned by the image; the registry only knows the handle.
        for (unsigned dimension = 0; dimension < 3; ++dimension)
            function->required_cluster[dimension] = static_cast<int>(function->kernel->cluster[dimension]);
        driver.functions.add(std::shared_ptr<Function>(function.get(), [](Function*) {}));
        image->functions.emplace(kernel.name, std::move(function));
    }
    Image& added = *image;
    driver.images.add(std::move(image));
    return added;
}

CUresult read_library(Driver& driver, const std::vector<std::byte>& bytes, const JitOptions& options,
                      CUlibrary* library) {
    LoadedImage loaded;
    const CUresult result = read(driver, bytes, options, loaded);
    if (result != CUDA_SUCCESS && !is_of_image(result)) return result;
    if (result != CUDA_SUCCESS) loaded = {};  // what was read before the mistake is nobody's
    Image& image = add_image(driver, std::move(loaded), nullptr);
    image.wrong = result;
    *library = reinterpret_cast<CUlibrary>(image.handle);
    return CUDA_SUCCESS;
}

bool read_file(const char* path, std::vector<std::byte>& bytes) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return false;
    const std::string text(std::istreambuf_iterator<char>(file), {});
    bytes.resize(text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    return true;
}

}  // namespace fikit::sim

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
        if (given->context == nullptr) return CUDA_ERROR_NOT_PERMITTED;  // a library's goes with it
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        if (const CUresult result = driver.stand_still(lock); result != CUDA_SUCCESS) return result;
        Image* image = driver.images.find(handle);
        if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        driver.release_image(*image);
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    return with_image(module, [&](Driver&, Image& image) -> CUresult {
        if (function == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
        if (image.wrong != CUDA_SUCCESS) return image.wrong;
        const auto found = image.functions.find(name);
        if (found == image.functions.end()) return CUDA_ERROR_NOT_FOUND;
        *function = found->second->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
    return with_image(module, [&](Driver& driver, Image& image) -> CUresult {
        if (name == nullptr || *name == '\0' || (address == nullptr && bytes == nullptr))
            return CUDA_ERROR_INVALID_VALUE;
        if (image.wrong != CUDA_SUCCESS) return image.wrong;
        const auto& variables = image.module.variables;
        const auto found = std::find_if(variables.begin(), variables.end(),
                                        [&](const ptx::Variable& variable) { return variable.name == name; });
        // A kernel's name is another mistake than one that nothing has (seen on an H200).
        if (found == variables.end())
            return image.functions.contains(name) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
        int device = 0;
        if (image.context != nullptr) {
            device = image.context->device;
        } else {
            Context* context = nullptr;
            CUresult result = current_context(driver, context);
            if (result == CUDA_SUCCESS) result = place_image(driver, image, context->device);
            if (result != CUDA_SUCCESS) return result;
            device = context->device;
        }
        if (address != nullptr)
            *address = image.variables.at(device)[static_cast<std::size_t>(found - variables.begin())];
        if (bytes != nullptr) *bytes = found->bytes;
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleEnumerateFunctions(CUfunction* list, unsigned int count, CUmodule module) {
    return with_image(module, [&](Driver&, Image& image) -> CUresult {
        if (list == nullptr && count > 0) return CUDA_ERROR_INVALID_VALUE;
        unsigned index = 0;
        for (const ptx::Kernel& kernel : image.module.kernels) {
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
