// Earlier versions of calls: with smaller structures or fewer arguments than today's. Those whose arguments
// are the same are in entry_points.txt alone.
#include "entry.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

CUDA_KERNEL_NODE_PARAMS as_today(const CUDA_KERNEL_NODE_PARAMS_v1& given) {
    CUDA_KERNEL_NODE_PARAMS today = {};
    today.func = given.func;
    today.gridDimX = given.gridDimX;
    today.gridDimY = given.gridDimY;
    today.gridDimZ = given.gridDimZ;
    today.blockDimX = given.blockDimX;
    today.blockDimY = given.blockDimY;
    today.blockDimZ = given.blockDimZ;
    today.sharedMemBytes = given.sharedMemBytes;
    today.kernelParams = given.kernelParams;
    today.extra = given.extra;
    return today;
}

}  // namespace

CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1* given) {
    if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS today = as_today(*given);
    return fikit::shim::cuGraphAddKernelNode_v2(node, graph, before, count, &today);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
    CUDA_KERNEL_NODE_PARAMS today;
    if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = fikit::shim::cuGraphKernelNodeGetParams_v2(node, &today);
        result != CUDA_SUCCESS)
        return result;
    const CUfunction function = today.func != nullptr ? today.func : reinterpret_cast<CUfunction>(today.kern);
    *parameters = {function,           today.gridDimX,  today.gridDimY,  today.gridDimZ,
                   today.blockDimX,    today.blockDimY, today.blockDimZ, today.sharedMemBytes,
                   today.kernelParams, today.extra};
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* given) {
    if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS today = as_today(*given);
    return fikit::shim::cuGraphKernelNodeSetParams_v2(node, &today);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* given) {
    if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS today = as_today(*given);
    return fikit::shim::cuGraphExecKernelNodeSetParams_v2(executable, node, &today);
}

CUresult cuStreamBeginCapture(CUstream stream) {
    return fikit::shim::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* context, CUgreenCtx* green) {
    if (context == nullptr || green == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = fikit::shim::cuStreamGetGreenCtx(stream, green); result != CUDA_SUCCESS)
        return result;
    const CUresult result = fikit::shim::cuStreamGetCtx(stream, context);
    if (result == CUDA_SUCCESS && *green != nullptr) *context = process.find(*context)->home->name;
    return result;
}

}  // namespace fikit::shim
