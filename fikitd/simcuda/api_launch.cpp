// Launches and occupancy.
#include <cstring>

#include "driver.hpp"

using namespace fikit::sim;

namespace {

struct Options {
    std::optional<int> priority;
    bool cooperative = false;
    std::array<unsigned, 3> cluster{1, 1, 1};
};

// The kernel's parameter buffer, from an array of pointers or from one packed buffer.
CUresult gather(const ptx::Kernel& kernel, void** parameters, void** extra, std::vector<std::byte>& buffer) {
    buffer.resize(kernel.parameter_bytes);
    if (parameters != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (extra != nullptr) {
        const void* packed = nullptr;
        std::size_t bytes = 0;
        for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
            if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
                packed = extra[1];
            else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
                bytes = *static_cast<const std::size_t*>(extra[1]);
            else
                return CUDA_ERROR_INVALID_VALUE;
        }
        if (packed == nullptr || bytes < buffer.size()) return CUDA_ERROR_INVALID_VALUE;
        if (!buffer.empty()) std::memcpy(buffer.data(), packed, buffer.size());
        return CUDA_SUCCESS;
    }
    if (!kernel.parameters.empty() && parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t index = 0; index < kernel.parameters.size(); ++index) {
        if (parameters[index] == nullptr) return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(buffer.data() + kernel.parameters[index].offset, parameters[index],
                    kernel.parameters[index].bytes);
    }
    return CUDA_SUCCESS;
}

CUresult check_shape(const Function& function, const LaunchShape& shape, unsigned shared) {
    const auto& [grid, block] = std::tie(shape.grid, shape.block);
    const ptx::Kernel& kernel = *function.kernel;
    for (unsigned dimension = 0; dimension < 3; ++dimension) {
        if (grid[dimension] == 0 || block[dimension] == 0) return CUDA_ERROR_INVALID_VALUE;
    }
    if (grid[0] > 2147483647U || grid[1] > 65535 || grid[2] > 65535) return CUDA_ERROR_INVALID_VALUE;
    if (block[0] > 1024 || block[1] > 1024 || block[2] > 64 || shape.threads() > model::threads_per_block) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (shape.threads() > kernel.threads_limit) return CUDA_ERROR_INVALID_VALUE;
    if (kernel.required[0] != 0 && (block[0] != kernel.required[0] || block[1] != kernel.required[1] ||
                                    block[2] != kernel.required[2])) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (shared > function.dynamic_shared_limit) return CUDA_ERROR_INVALID_VALUE;
    if (blocks_per_sm(
            block_shape(shape.threads(), kernel.registers_per_thread, kernel.static_shared + shared)) == 0) {
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    return CUDA_SUCCESS;
}

unsigned resident_limit(const Function& function, unsigned threads, std::size_t shared) {
    const ptx::Kernel& kernel = *function.kernel;
    const std::size_t total = kernel.static_shared + shared;
    if (threads > kernel.threads_limit || shared > function.dynamic_shared_limit) return 0;
    return blocks_per_sm(block_shape(threads, kernel.registers_per_thread, static_cast<unsigned>(total)));
}

CUresult launch(CUfunction handle, const LaunchShape& shape, unsigned shared, CUstream where,
                void** parameters, void** extra, const Options& options) {
    return with_stream(
        where, [&](Driver& driver, Driver::Lock& lock, Stream& stream, SimulatedDevice&) -> CUresult {
            Function* function = driver.functions.find(handle);
            if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
            CUresult result = check_shape(*function, shape, shared);
            if (result != CUDA_SUCCESS) return result;
            const std::uint64_t cluster =
                std::uint64_t{options.cluster[0]} * options.cluster[1] * options.cluster[2];
            const unsigned cluster_limit = function->nonportable_cluster != 0 ? 16 : model::cluster_limit;
            if (cluster == 0 || cluster > cluster_limit) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
            for (unsigned dimension = 0; dimension < 3; ++dimension) {
                if (shape.grid[dimension] % options.cluster[dimension] != 0) return CUDA_ERROR_INVALID_VALUE;
            }
            if (options.cooperative) {
                const std::uint64_t sms = stream.partition ? stream.partition->count() : model::sm_count;
                if (shape.blocks() > sms * resident_limit(*function, shape.threads(), shared)) {
                    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
                }
            }
            Launch work;
            result = gather(*function->kernel, parameters, extra, work.parameters);
            if (result != CUDA_SUCCESS) return result;
            result = place_image(driver, *function->image, stream.context->device);
            if (result != CUDA_SUCCESS) return result;
            work.kernel = function->kernel;
            work.variables = &function->image->variables;
            work.owner = function->image->shared_from_this();
            work.shape = shape;
            work.cluster = static_cast<unsigned>(cluster);
            work.block = block_shape(shape.threads(), function->kernel->registers_per_thread,
                                     function->kernel->static_shared + shared);
            auto operation = std::make_shared<Operation>();
            operation->work = std::move(work);
            result = driver.wait_for_room(lock, stream);
            if (result != CUDA_SUCCESS) return result;
            driver.enqueue(stream, operation, nullptr, options.priority);
            return CUDA_SUCCESS;
        });
}

CUresult read_attribute(const CUlaunchAttribute& attribute, Options& options) {
    switch (attribute.id) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            options.cooperative = attribute.value.cooperative != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            options.priority =
                std::clamp(attribute.value.priority, model::priority_highest, model::priority_lowest);
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            options.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y,
                               attribute.value.clusterDim.z};
            break;
        // Hints: the model has nothing that they could change.
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

template <typename Body>
CUresult with_occupancy(CUfunction handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        const Function* function = driver.functions.find(handle);
        return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(*function);
    });
}

CUresult active_blocks(int* blocks, CUfunction handle, int threads, size_t shared) {
    return with_occupancy(handle, [&](const Function& function) -> CUresult {
        if (blocks == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
        *blocks = static_cast<int>(resident_limit(function, static_cast<unsigned>(threads), shared));
        return CUDA_SUCCESS;
    });
}

}  // namespace

extern "C" {

CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
                        unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                        CUstream stream, void** parameters, void** extra) {
    return launch(function, {{gx, gy, gz}, {bx, by, bz}}, shared, stream, parameters, extra, {});
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
                                   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                                   CUstream stream, void** parameters) {
    Options options;
    options.cooperative = true;
    return launch(function, {{gx, gy, gz}, {bx, by, bz}}, shared, stream, parameters, nullptr, options);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
    if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    Options options;
    for (unsigned index = 0; index < config->numAttrs; ++index) {
        const CUresult result = read_attribute(config->attrs[index], options);
        if (result != CUDA_SUCCESS) return result;
    }
    return launch(function,
                  {{config->gridDimX, config->gridDimY, config->gridDimZ},
                   {config->blockDimX, config->blockDimY, config->blockDimZ}},
                  config->sharedMemBytes, config->hStream, parameters, extra, options);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t shared) {
    return active_blocks(blocks, function, threads, shared);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                              size_t shared, unsigned int flags) {
    if ((flags & ~static_cast<unsigned>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return active_blocks(blocks, function, threads, shared);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int threads) {
    return with_occupancy(handle, [&](const Function& function) -> CUresult {
        if (bytes == nullptr || blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
        const ptx::Kernel& kernel = *function.kernel;
        const auto wanted = static_cast<unsigned>(blocks);
        if (resident_limit(function, static_cast<unsigned>(threads), 0) < wanted)
            return CUDA_ERROR_INVALID_VALUE;
        unsigned room =
            model::shared_per_sm / wanted / model::shared_allocation_unit * model::shared_allocation_unit;
        room = std::min(room - model::shared_reserved_per_block, model::shared_per_block_optin);
        *bytes = room > kernel.static_shared ? room - kernel.static_shared : 0;
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
