// Graphs: adding nodes of each kind.
#include <algorithm>
#include <type_traits>

#include "graph_calls.hpp"
#include "node_params.hpp"

using namespace fikit::sim;

namespace {

CUresult find_edges(Driver& driver, const Graph& graph, const CUgraphNode* after, const CUgraphEdgeData* data,
                    std::size_t count, std::vector<GraphNode::Edge>& edges) {
    if (count > 0 && after == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t index = 0; index < count; ++index) {
        GraphNode* node = driver.nodes.find(after[index]);
        const CUgraphEdgeData edge = data != nullptr ? data[index] : CUgraphEdgeData{};
        if (node == nullptr || node->graph != &graph || !is_edge_data(edge, *node))
            return CUDA_ERROR_INVALID_VALUE;
        const bool twice = std::any_of(edges.begin(), edges.end(),
                                       [&](const GraphNode::Edge& other) { return other.node == node; });
        if (twice) return CUDA_ERROR_INVALID_VALUE;
        edges.push_back({node, edge});
    }
    return CUDA_SUCCESS;
}

// The one that it is a part of.
Graph& whole(Graph& graph) { return graph.parent != nullptr ? whole(*graph.parent) : graph; }

// `read` makes the node's command of what the caller says of it.
template <typename Read>
CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, const CUgraphEdgeData* data,
             std::size_t count, Read read) {
    return with_graph(handle, [&](Driver& driver, Graph& graph) -> CUresult {
        if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
        std::vector<GraphNode::Edge> edges;
        CUresult result = find_edges(driver, graph, after, data, count, edges);
        if (result != CUDA_SUCCESS) return result;
        Command command;
        if constexpr (std::is_invocable_v<Read, Driver&, Graph&, Command&>)
            result = read(driver, graph, command);
        else
            result = read(driver, command);
        if (result != CUDA_SUCCESS) return result;
        for (auto* inner : inner_graphs(command))
            if (inner->get() == &whole(graph)) return CUDA_ERROR_INVALID_VALUE;  // a part of itself
        GraphNode& node = add_node(driver, graph, std::move(command), edges);
        for (auto* inner : inner_graphs(node.command)) (*inner)->parent = &graph;
        *out = node.handle;
        return CUDA_SUCCESS;
    });
}

// Where the memory is that a node allocates.
CUresult tell_address(CUgraphNode handle, CUdeviceptr& address) {
    return with_node(handle, [&](Driver&, GraphNode& node) {
        address = std::get<AllocateCommand>(node.command).memory->address;
        return CUDA_SUCCESS;
    });
}

CUresult add_any(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData* data,
                 std::size_t count, CUgraphNodeParams* params) {
    const CUresult result =
        add(node, graph, after, data, count, [&](Driver& driver, Graph& into, Command& command) -> CUresult {
            if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
            if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
                return read_conditional(driver, into, params->conditional, command);
            return read_params(driver, *params, command);
        });
    const bool allocates = result == CUDA_SUCCESS && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    return allocates ? tell_address(*node, params->alloc.dptr) : result;
}

}  // namespace

extern "C" {

CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                        CUgraphNodeParams* params) {
    return add_any(node, graph, after, nullptr, count, params);
}
CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                           const CUgraphEdgeData* data, size_t count, CUgraphNodeParams* params) {
    return add_any(node, graph, after, data, count, params);
}

CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1* params) {
    return add(node, graph, after, nullptr, count, kernel_reader(params));
}
CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* params) {
    return add(node, graph, after, nullptr, count, kernel_reader(params));
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                              const CUDA_MEMCPY3D* params, CUcontext) {
    return add(node, graph, after, nullptr, count, reader(params));
}
CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* params, CUcontext) {
    return add(node, graph, after, nullptr, count, reader(params));
}
CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                            const CUDA_HOST_NODE_PARAMS* params) {
    return add(node, graph, after, nullptr, count, reader(params));
}
CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                  CUgraph child) {
    return add(node, graph, after, nullptr, count, [&](Driver& driver, Command& command) -> CUresult {
        return child == graph ? CUDA_ERROR_INVALID_VALUE : read_child(driver, child, command);
    });
}
CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count) {
    return add(node, graph, after, nullptr, count, [](Driver&, Command&) { return CUDA_SUCCESS; });
}
CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                   CUevent event) {
    return add(node, graph, after, nullptr, count, event_reader<RecordCommand>(event));
}
CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                 CUevent event) {
    return add(node, graph, after, nullptr, count, event_reader<WaitCommand>(event));
}
CUresult cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
    return add(node, graph, after, nullptr, count, reader(params));
}
CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* params) {
    const CUresult result = add(node, graph, after, nullptr, count, reader(params));
    return result == CUDA_SUCCESS ? tell_address(*node, params->dptr) : result;
}
CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                               CUdeviceptr address) {
    return add(node, graph, after, nullptr, count,
               [&](Driver&, Command& command) { return read_free(address, command); });
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* out, CUgraph handle, CUcontext context,
                                        unsigned int initial, unsigned int flags) {
    return with_graph(handle, [&](Driver& driver, Graph& graph) -> CUresult {
        if (out == nullptr || (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        Context* of = driver.contexts.find(context);
        if (context != nullptr && of == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
        if (of == nullptr)
            if (const CUresult none = current_context(driver, of); none != CUDA_SUCCESS) return none;
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        Condition condition;
        condition.handle = driver.next_id++;
        if ((flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0) condition.initial = initial;
        graph.conditions.push_back(condition);
        *out = condition.handle;
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
