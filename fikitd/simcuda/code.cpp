// Code: read from an image, loaded into contexts, found by handles.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "driver.hpp"
#include "image.hpp"
#include "jit_options.hpp"

namespace fikit::sim {

namespace {

std::size_t bytes_of(const ptx::Variable& variable) { return std::max<std::size_t>(variable.bytes, 1); }

// A place for each variable; managed ones have it once for all contexts.
CUresult place_variables(Driver& driver, Image& image, bool first) {
    Code& code = *image.code;
    DeviceHeap& heap = driver.device_of(*image.context).heap;
    for (const ptx::Variable& variable : code.module.variables) {
        const std::size_t index = image.variables.size();
        if (variable.managed && !first) {
            image.variables.push_back(code.managed.at(index));
            continue;
        }
        const std::uint64_t address = variable.managed ? allocate_host_pages(driver.space, bytes_of(variable))
                                                       : heap.allocate(bytes_of(variable));
        if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
        if (variable.managed) code.managed[index] = address;
        image.variables.push_back(address);
        Block block;
        block.kind = Block::Kind::variable;
        if (!variable.managed) block.context = image.context;
        block.address = address;
        block.bytes = bytes_of(variable);
        block.device = image.context->device;
        block.id = driver.next_id++;
        if (variable.managed) make_managed(block);
        driver.blocks[address] = block;
    }
    return CUDA_SUCCESS;
}

void fill_variable(Driver& driver, const ptx::Variable& variable, std::uint64_t address,
                   const std::vector<std::uint8_t>& initial) {
    const std::size_t bytes = bytes_of(variable);
    for (std::size_t done = 0; done < bytes;) {
        const std::size_t part =
            std::min(bytes - done, model::page - static_cast<std::size_t>((address + done) % model::page));
        std::byte* place = driver.space.at(address + done, part, true);
        std::memset(place, 0, part);
        if (done < initial.size())
            std::memcpy(place, initial.data() + done, std::min(part, initial.size() - done));
        done += part;
    }
}

void add_functions(Driver& driver, Image& image) {
    for (const ptx::Kernel& kernel : image.code->module.kernels) {
        auto function = std::make_unique<Function>();
        function->image = &image;
        function->kernel = &kernel;
        if (image.library != nullptr) function->origin = image.library->kernels.at(kernel.name);
        // Owned by the image; the registry only knows the handle.
        driver.functions.add(std::shared_ptr<Function>(function.get(), [](Function*) {}));
        image.functions.emplace(kernel.name, std::move(function));
    }
}

}  // namespace

CUresult read_code(Driver& driver, Bytes bytes, const JitOptions& options, Code& code) {
    LoadedImage loaded;
    std::string log;
    const CUresult result = load_image(bytes, loaded, log, fatbin::wanted_here(device_major));
    if (result != CUDA_SUCCESS && !options.report(log) && driver.settings.verbose)
        std::fputs(log.c_str(), stderr);
    if (result != CUDA_SUCCESS) return result;  // what was read before the mistake is nobody's
    code.module = std::move(loaded.module);
    code.opaque = loaded.opaque;
    if (options.max_registers() != 0) {
        for (ptx::Kernel& kernel : code.module.kernels)
            kernel.registers_per_thread = std::min(kernel.registers_per_thread, options.max_registers());
    }
    return CUDA_SUCCESS;
}

bool read_file(const char* path, std::vector<std::byte>& bytes) {
    const Uncancelled whole;
    std::error_code none;
    if (std::filesystem::is_fifo(path, none)) return false;  // as driver 580
    std::ifstream file(path, std::ios::binary);
    if (!file) return false;
    std::ostringstream text;
    text << file.rdbuf();  // nothing of a folder
    const std::string_view read = text.view();
    bytes.resize(read.size());
    std::memcpy(bytes.data(), read.data(), read.size());
    return true;
}

CUresult load_code(Driver& driver, std::shared_ptr<Code> code, Context& context, Library* library,
                   Image*& image) {
    const auto added = std::make_shared<Image>();
    added->code = std::move(code);
    added->context = &context;
    added->library = library;
    const bool first = added->code->managed.empty();
    if (const CUresult result = place_variables(driver, *added, first); result != CUDA_SUCCESS) {
        driver.release_variables(*added);
        if (first) driver.release_managed(*added->code);
        return result;
    }
    const std::vector<ptx::Variable>& variables = added->code->module.variables;
    for (std::size_t index = 0; index < variables.size(); ++index) {
        if (variables[index].managed && !first) continue;
        fill_variable(driver, variables[index], added->variables[index],
                      ptx::initial_bytes(variables[index], added->variables));
    }
    add_functions(driver, *added);
    driver.images.add(added);
    image = added.get();
    return CUDA_SUCCESS;
}

CUresult find_loaded(Driver& driver, Library& library, Context& context, Image*& image) {
    Context& home = home_of(context);
    const auto found = library.images.find(&home);
    if (found != library.images.end()) {
        image = found->second;
        return CUDA_SUCCESS;
    }
    const CUresult result = load_code(driver, library.code, home, &library, image);
    if (result == CUDA_SUCCESS) library.images.emplace(&home, image);
    return result;
}

CUresult find_function(Driver& driver, CUfunction handle, Context& context, Function*& function) {
    function = driver.functions.find(handle);
    if (function != nullptr) return CUDA_SUCCESS;
    const LibraryKernel* const kernel = driver.library_kernels.find(reinterpret_cast<CUkernel>(handle));
    if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Image* image = nullptr;
    const CUresult result = find_loaded(driver, *kernel->library, context, image);
    if (result == CUDA_SUCCESS) function = image->functions.at(kernel->code->name).get();
    return result;
}

}  // namespace fikit::sim
