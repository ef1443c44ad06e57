// Between the structures in which callers describe the nodes of graphs and the commands that nodes hold.
#pragma once

#include "graph.hpp"

namespace fikit::sim {

// Each checks an untrusted description; of what runs in a context also that no fault has ended it.
CUresult read_params(Driver& driver, const CUDA_KERNEL_NODE_PARAMS& params, Command& command);
CUresult read_params(Driver& driver, const CUDA_MEMCPY3D& params, Command& command);
CUresult read_params(Driver& driver, const CUDA_MEMSET_NODE_PARAMS& params, Command& command);
CUresult read_params(Driver& driver, const CUDA_HOST_NODE_PARAMS& params, Command& command);
CUresult read_params(Driver& driver, const CUDA_BATCH_MEM_OP_NODE_PARAMS& params, Command& command);
// The memory's address goes to `dptr`.
CUresult read_params(Driver& driver, CUDA_MEM_ALLOC_NODE_PARAMS& params, Command& command);
CUresult read_free(CUdeviceptr address, Command& command);
CUresult read_child(Driver& driver, CUgraph child, Command& command);
// The bodies' handles go to `phGraph_out`. `graph` is where the node goes: it has the condition.
CUresult read_conditional(Driver& driver, const Graph& graph, CUDA_CONDITIONAL_NODE_PARAMS& params,
                          Command& command);
// Any of the others, by its type; what a conditional node does is never replaced.
CUresult read_params(Driver& driver, CUgraphNodeParams& params, Command& command);

// The same of a structure of any version.
template <typename Params>
CUDA_KERNEL_NODE_PARAMS kernel_params(const Params& params) {
    CUDA_KERNEL_NODE_PARAMS full{};
    full.func = params.func;
    full.gridDimX = params.gridDimX;
    full.gridDimY = params.gridDimY;
    full.gridDimZ = params.gridDimZ;
    full.blockDimX = params.blockDimX;
    full.blockDimY = params.blockDimY;
    full.blockDimZ = params.blockDimZ;
    full.sharedMemBytes = params.sharedMemBytes;
    full.kernelParams = params.kernelParams;
    full.extra = params.extra;
    if constexpr (requires { params.kern; }) {
        full.kern = params.kern;
        full.ctx = params.ctx;
    }
    return full;
}

// What the calls that add a node or change one read of it.
template <typename Params>
auto reader(Params* params) {
    return [params](Driver& driver, Command& command) -> CUresult {
        return params == nullptr ? CUDA_ERROR_INVALID_VALUE : read_params(driver, *params, command);
    };
}
template <typename Params>
auto kernel_reader(const Params* params) {
    return [params](Driver& driver, Command& command) -> CUresult {
        if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return read_params(driver, kernel_params(*params), command);
    };
}
template <typename Kind>
auto event_reader(CUevent handle) {
    return [handle](Driver& driver, Command& command) -> CUresult {
        std::shared_ptr<Event> event = driver.events.share(handle);
        if (!event) return CUDA_ERROR_INVALID_VALUE;
        command = Kind{std::move(event)};
        return CUDA_SUCCESS;
    };
}

void write_params(LaunchCommand& command, std::vector<void*>& pointers, CUDA_KERNEL_NODE_PARAMS& params);

}  // namespace fikit::sim
