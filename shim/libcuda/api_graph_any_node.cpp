// Nodes of any kind by one call each: what the calls for one kind do (api_graph_nodes.cpp).
#include <string.h>

#include "entry.hpp"
#include "graph.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

// The parameters in the form of the calls for one kind. nullptr: they are of another one.
struct Parameters {
    CUDA_KERNEL_NODE_PARAMS_v2 kernel;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_HOST_NODE_PARAMS host;
    CUDA_BATCH_MEM_OP_NODE_PARAMS values;

    explicit Parameters(const CUgraphNodeParams& given) : kernel{}, fill{}, host{}, values{} {
        switch (given.type) {
            case CU_GRAPH_NODE_TYPE_KERNEL: {
                const CUDA_KERNEL_NODE_PARAMS_v3& is = given.kernel;
                kernel = {is.func,         is.gridDimX,  is.gridDimY,  is.gridDimZ,
                          is.blockDimX,    is.blockDimY, is.blockDimZ, is.sharedMemBytes,
                          is.kernelParams, is.extra,     is.kern,      is.ctx};
                break;
            }
            case CU_GRAPH_NODE_TYPE_MEMSET: {
                const CUDA_MEMSET_NODE_PARAMS_v2& is = given.memset;
                fill = {is.dst, is.pitch, is.value, is.elementSize, is.width, is.height};
                break;
            }
            case CU_GRAPH_NODE_TYPE_HOST:
                host = {given.host.fn, given.host.userData};
                break;
            case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
                values = {given.memOp.ctx, given.memOp.count, given.memOp.paramArray, given.memOp.flags};
                break;
            default:
                break;
        }
    }
};

}  // namespace

CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                        CUgraphNodeParams* given) {
    if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Parameters typed(*given);
    switch (given->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return fikit::shim::cuGraphAddKernelNode_v2(node, graph, before, count, &typed.kernel);
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return fikit::shim::cuGraphAddMemcpyNode(node, graph, before, count, &given->memcpy.copyParams,
                                                     given->memcpy.copyCtx);
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return fikit::shim::cuGraphAddMemsetNode(node, graph, before, count, &typed.fill,
                                                     given->memset.ctx);
        case CU_GRAPH_NODE_TYPE_HOST:
            return fikit::shim::cuGraphAddHostNode(node, graph, before, count, &typed.host);
        case CU_GRAPH_NODE_TYPE_GRAPH:
            return fikit::shim::cuGraphAddChildGraphNode(node, graph, before, count, given->graph.graph);
        case CU_GRAPH_NODE_TYPE_EMPTY:
            return fikit::shim::cuGraphAddEmptyNode(node, graph, before, count);
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return fikit::shim::cuGraphAddEventRecordNode(node, graph, before, count,
                                                          given->eventRecord.event);
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return fikit::shim::cuGraphAddEventWaitNode(node, graph, before, count, given->eventWait.event);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
            return fikit::shim::cuGraphAddBatchMemOpNode(node, graph, before, count, &typed.values);
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                           const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* given) {
    if (!plain(edges, count)) return CUDA_ERROR_NOT_SUPPORTED;
    return fikit::shim::cuGraphAddNode(node, graph, before, count, given);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* given) {
    if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Parameters typed(*given);
    switch (given->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return fikit::shim::cuGraphKernelNodeSetParams_v2(node, &typed.kernel);
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return fikit::shim::cuGraphMemcpyNodeSetParams(node, &given->memcpy.copyParams);
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return fikit::shim::cuGraphMemsetNodeSetParams(node, &typed.fill);
        case CU_GRAPH_NODE_TYPE_HOST:
            return fikit::shim::cuGraphHostNodeSetParams(node, &typed.host);
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return fikit::shim::cuGraphEventRecordNodeSetEvent(node, given->eventRecord.event);
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return fikit::shim::cuGraphEventWaitNodeSetEvent(node, given->eventWait.event);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
            return fikit::shim::cuGraphBatchMemOpNodeSetParams(node, &typed.values);
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphExecNodeSetParams(CUgraphExec executable, CUgraphNode node, CUgraphNodeParams* given) {
    if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Parameters typed(*given);
    switch (given->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return fikit::shim::cuGraphExecKernelNodeSetParams_v2(executable, node, &typed.kernel);
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return fikit::shim::cuGraphExecMemcpyNodeSetParams(executable, node, &given->memcpy.copyParams,
                                                               given->memcpy.copyCtx);
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return fikit::shim::cuGraphExecMemsetNodeSetParams(executable, node, &typed.fill,
                                                               given->memset.ctx);
        case CU_GRAPH_NODE_TYPE_HOST:
            return fikit::shim::cuGraphExecHostNodeSetParams(executable, node, &typed.host);
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return fikit::shim::cuGraphExecEventRecordNodeSetEvent(executable, node,
                                                                   given->eventRecord.event);
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return fikit::shim::cuGraphExecEventWaitNodeSetEvent(executable, node, given->eventWait.event);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
            return fikit::shim::cuGraphExecBatchMemOpNodeSetParams(executable, node, &typed.values);
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

}  // namespace fikit::shim
