// Occupancy: how many blocks of a kernel fit.
#include <algorithm>
#include <optional>

#include "command.hpp"

using namespace fikit::sim;

namespace {

template <typename Body>
CUresult with_occupancy(CUfunction handle, Body body) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        Function* function = nullptr;
        const CUresult result = find_function(driver, handle, context, function);
        return result == CUDA_SUCCESS ? body(*function) : result;
    });
}

constexpr unsigned known_flags = CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE;

CUresult active_blocks(int* blocks, CUfunction handle, int threads, size_t shared) {
    return with_occupancy(handle, [&](const Function& function) -> CUresult {
        if (blocks == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
        *blocks = static_cast<int>(resident_blocks(function, static_cast<unsigned>(threads), shared));
        return CUDA_SUCCESS;
    });
}

std::optional<Cluster> wanted_cluster(const CUlaunchConfig& config) {
    for (unsigned index = 0; index < config.numAttrs; ++index) {
        const CUlaunchAttribute& attribute = config.attrs[index];
        if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
        const auto& dimension = attribute.value.clusterDim;
        return Cluster{dimension.x, dimension.y, dimension.z};
    }
    return std::nullopt;
}

// `body` gets the cluster's blocks, 0 where nothing is said of clusters, and how many blocks an SM holds.
template <typename Body>
CUresult with_cluster(CUfunction handle, const CUlaunchConfig* config, Body body) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;  // here alone, as on an H200
    return with_occupancy(handle, [&](const Function& function) -> CUresult {
        if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr))
            return CUDA_ERROR_INVALID_VALUE;
        const std::uint64_t threads =
            std::uint64_t{config->blockDimX} * config->blockDimY * config->blockDimZ;
        if (threads == 0 || threads > model::threads_per_block) return CUDA_ERROR_INVALID_VALUE;
        const LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                                {config->blockDimX, config->blockDimY, config->blockDimZ}};
        std::optional<Cluster> cluster;
        const CUresult result = choose_cluster(function, shape, wanted_cluster(*config), cluster);
        if (result != CUDA_SUCCESS) return result;
        return body(function, cluster ? (*cluster)[0] * (*cluster)[1] * (*cluster)[2] : 0,
                    resident_blocks(function, static_cast<unsigned>(threads), config->sharedMemBytes));
    });
}

}  // namespace

extern "C" {

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t shared) {
    return active_blocks(blocks, function, threads, shared);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                              size_t shared, unsigned int flags) {
    if ((flags & ~known_flags) != 0) return CUDA_ERROR_INVALID_VALUE;
    return active_blocks(blocks, function, threads, shared);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction handle,
                                                   CUoccupancyB2DSize shared_of, size_t shared, int limit,
                                                   unsigned int flags) {
    return with_occupancy(handle, [&](const Function& function) -> CUresult {
        if (grid == nullptr || block == nullptr || limit < 0 || (flags & ~known_flags) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        unsigned most = function.kernel->threads_limit;
        if (limit > 0) most = std::min(most, static_cast<unsigned>(limit));
        unsigned best = 0, best_blocks = 0;
        // From the largest block down, in warps; a smaller one has to hold more threads to win.
        for (unsigned threads = most; threads > 0;) {
            const std::size_t wanted = shared_of != nullptr ? shared_of(static_cast<int>(threads)) : shared;
            const unsigned blocks = resident_blocks(function, threads, wanted);
            if (blocks * threads > best_blocks * best) {
                best = threads;
                best_blocks = blocks;
            }
            threads = (threads - 1) / model::warp_size * model::warp_size;
        }
        *block = static_cast<int>(best);
        *grid = static_cast<int>(best_blocks * model::sm_count);
        return CUDA_SUCCESS;
    });
}

CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, shared, limit,
                                                     CU_OCCUPANCY_DEFAULT);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int threads) {
    return with_occupancy(handle, [&](const Function& function) -> CUresult {
        if (bytes == nullptr || blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
        const ptx::Kernel& kernel = *function.kernel;
        const auto wanted = static_cast<unsigned>(blocks);
        if (resident_blocks(function, static_cast<unsigned>(threads), 0) < wanted)
            return CUDA_ERROR_INVALID_VALUE;
        // A block alone may have all, whatever the function prefers.
        const unsigned whole =
            wanted == 1 ? model::shared_per_sm
                        : shared_room(function, kernel.static_shared + model::shared_reserved_per_block);
        unsigned room = whole / wanted / model::shared_allocation_unit * model::shared_allocation_unit;
        // What each block has reserved besides is not taken off (an H200 said 29184 for eight).
        room = std::min(room, model::shared_per_block_optin);
        // No more than a launch may ask for.
        const int limit = function.preference(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
        *bytes = room > kernel.static_shared
                     ? std::min(room - kernel.static_shared, static_cast<unsigned>(limit))
                     : 0;
        return CUDA_SUCCESS;
    });
}

CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction handle, const CUlaunchConfig* config) {
    return with_cluster(handle, config, [&](const Function& function, unsigned, unsigned resident) {
        if (size == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *size = resident == 0 ? 0 : static_cast<int>(cluster_limit(function));
        return CUDA_SUCCESS;
    });
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle, const CUlaunchConfig* config) {
    return with_cluster(handle, config, [&](const Function&, unsigned size, unsigned resident) {
        if (clusters == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const unsigned multiprocessors = size > 2 ? model::cluster_sms : model::sm_count;
        *clusters =
            size == 0 ? 0
                      : static_cast<int>(multiprocessors * std::min(resident, model::cluster_blocks) / size);
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
