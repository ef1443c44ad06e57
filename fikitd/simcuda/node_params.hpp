// Between the structures in which callers describe the nodes of graphs and the commands that nodes hold.
#pragma once

#include "graph.hpp"

namespace fikit::sim {

// Each checks an untrusted description. `context` is where kernels and copies run.
CUresult read_params(Driver& driver, Context& context, const CUDA_KERNEL_NODE_PARAMS& params,
                     Command& command);
CUresult read_params(Driver& driver, const CUDA_MEMCPY3D& params, Command& command);
CUresult read_params(Driver& driver, const CUDA_MEMSET_NODE_PARAMS& params, Command& command);
CUresult read_params(const CUDA_HOST_NODE_PARAMS& params, Command& command);
CUresult read_params(Driver& driver, const CUDA_BATCH_MEM_OP_NODE_PARAMS& params, Command& command);
// The memory's address goes to `dptr`.
CUresult read_params(Driver& driver, CUDA_MEM_ALLOC_NODE_PARAMS& params, Command& command);
CUresult read_free(CUdeviceptr address, Command& command);
CUresult read_child(Driver& driver, CUgraph child, Command& command);
// The bodies' handles go to `phGraph_out`. `graph` is where the node goes: it has the condition.
CUresult read_conditional(Driver& driver, const Graph& graph, CUDA_CONDITIONAL_NODE_PARAMS& params,
                          Command& command);
// Any of the others, by its type; what a conditional node does is never replaced.
CUresult read_params(Driver& driver, Context& context, CUgraphNodeParams& params, Command& command);

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

void write_params(LaunchCommand& command, std::vector<void*>& pointers, CUDA_KERNEL_NODE_PARAMS& params);

}  // namespace fikit::sim
