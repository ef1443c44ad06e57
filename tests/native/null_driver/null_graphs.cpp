// Graphs: a launch shows how many nodes there are.
#include "null_streams.hpp"

using fikit::null_driver::Function;
using fikit::null_driver::Item;

namespace fikit::null_driver {
std::atomic<int64_t> graphs;
}

namespace {

struct Graph {
    uint64_t nodes = 0;
};

CUresult add(CUgraph graph, CUgraphNode* node) {
    *node = reinterpret_cast<CUgraphNode>(++reinterpret_cast<Graph*>(graph)->nodes * 64);
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuGraphCreate(CUgraph* graph, unsigned) {
    ENTER(cuGraphCreate);
    ++fikit::null_driver::graphs;
    *graph = reinterpret_cast<CUgraph>(new Graph());
    return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
    ENTER(cuGraphDestroy);
    --fikit::null_driver::graphs;
    delete reinterpret_cast<Graph*>(graph);
    return CUDA_SUCCESS;
}
CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t,
                              const CUDA_KERNEL_NODE_PARAMS*) {
    ENTER(cuGraphAddKernelNode);
    return add(graph, node);
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode, CUlaunchAttributeID, const CUlaunchAttributeValue*) {
    ENTER(cuGraphKernelNodeSetAttribute);
    return CUDA_SUCCESS;
}
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode*, const CUgraphNode*, const CUgraphEdgeData*,
                                size_t) {
    ENTER(cuGraphAddDependencies);
    return CUDA_SUCCESS;
}
CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph, CUcontext, unsigned,
                                        unsigned) {
    ENTER(cuGraphConditionalHandleCreate);
    static std::atomic<uint64_t> last{0};
    *handle = ++last;
    return CUDA_SUCCESS;
}
// A decision has no bodies here.
CUresult cuGraphAddNode(CUgraphNode*, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, size_t,
                        CUgraphNodeParams*) {
    ENTER(cuGraphAddNode);
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode*, size_t* count) {
    ENTER(cuGraphGetNodes);
    *count = reinterpret_cast<Graph*>(graph)->nodes;
    return CUDA_SUCCESS;
}
CUresult cuGraphDestroyNode(CUgraphNode) {
    ENTER(cuGraphDestroyNode);
    return CUDA_SUCCESS;
}
CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t,
                              const CUDA_MEMCPY3D*, CUcontext) {
    ENTER(cuGraphAddMemcpyNode);
    return add(graph, node);
}
CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t,
                              const CUDA_MEMSET_NODE_PARAMS*, CUcontext) {
    ENTER(cuGraphAddMemsetNode);
    return add(graph, node);
}
CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t) {
    ENTER(cuGraphAddEmptyNode);
    return add(graph, node);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
    ENTER(cuGraphInstantiateWithFlags);
    ++fikit::null_driver::graphs;
    *executable = reinterpret_cast<CUgraphExec>(new Graph(*reinterpret_cast<Graph*>(graph)));
    return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
    ENTER(cuGraphExecDestroy);
    --fikit::null_driver::graphs;
    delete reinterpret_cast<Graph*>(executable);
    return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    ENTER(cuGraphLaunch);
    const uint64_t nodes = reinterpret_cast<Graph*>(executable)->nodes;
    return fikit::null_driver::submit(stream, {Item::work, Function::cuGraphLaunch_, 0, nodes, nullptr});
}

}  // extern "C"
