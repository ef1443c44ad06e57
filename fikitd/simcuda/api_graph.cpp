// Graphs: making them, their nodes and their edges.
#include <algorithm>

#include "graph_calls.hpp"

using namespace fikit::sim;

namespace {

// Lists are asked for twice: how long, then what. A longer list than there is is filled with zeros.
template <typename Handle, typename Items, typename Get>
CUresult give_list(const Items& items, Handle* list, size_t* count, Get get) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (list != nullptr) {
        const std::size_t room = *count;
        for (std::size_t index = 0; index < room; ++index)
            list[index] = index < items.size() ? get(items[index]) : nullptr;
        *count = std::min(room, items.size());
    } else {
        *count = items.size();
    }
    return CUDA_SUCCESS;
}

// Who cannot be told of the edges' data must not be given an edge that has some.
CUresult give_edges(const std::vector<GraphNode::Edge>& edges, CUgraphNode* nodes, CUgraphEdgeData* data,
                    size_t* count) {
    const auto bare = [](const GraphNode::Edge& edge) { return is_full(edge.data); };
    if (nodes != nullptr && data == nullptr && !std::all_of(edges.begin(), edges.end(), bare))
        return CUDA_ERROR_LOSSY_QUERY;
    if (nodes != nullptr && data != nullptr && count != nullptr) {
        for (std::size_t index = 0; index < std::min(*count, edges.size()); ++index)
            data[index] = edges[index].data;
    }
    return give_list(edges, nodes, count, [](const GraphNode::Edge& edge) { return edge.node->handle; });
}

struct FullEdge {
    GraphNode* from;
    GraphNode* to;
    CUgraphEdgeData data;
};

CUresult all_edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
    return with_graph(handle, [&](Driver&, Graph& graph) -> CUresult {
        if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
        std::vector<FullEdge> edges;
        for (const auto& node : graph.nodes) {
            for (const GraphNode::Edge& edge : node->dependencies)
                edges.push_back({edge.node, node.get(), edge.data});
        }
        if (from == nullptr) {
            *count = edges.size();
            return CUDA_SUCCESS;
        }
        const std::size_t room = std::min(*count, edges.size());
        std::fill(from + room, from + *count, nullptr);
        std::fill(to + room, to + *count, nullptr);
        for (std::size_t index = 0; index < room; ++index) {
            if (data == nullptr && !is_full(edges[index].data)) return CUDA_ERROR_LOSSY_QUERY;
            from[index] = edges[index].from->handle;
            to[index] = edges[index].to->handle;
            if (data != nullptr) data[index] = edges[index].data;
        }
        *count = room;
        return CUDA_SUCCESS;
    });
}

// One after the other: those before one that cannot be are there, or gone (as on an H200). Edges are removed
// whatever their data (so does an H100's driver, though cuda.h says otherwise).
CUresult change_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                      const CUgraphEdgeData* data, std::size_t count, bool add) {
    return with_graph(handle, [&](Driver& driver, Graph& graph) -> CUresult {
        if (count > 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
        if (!add && count > 0 && has_memory(graph)) return CUDA_ERROR_NOT_SUPPORTED;
        for (std::size_t index = 0; index < count; ++index) {
            GraphNode* first = driver.nodes.find(from[index]);
            GraphNode* second = driver.nodes.find(to[index]);
            const CUgraphEdgeData edge = add && data != nullptr ? data[index] : CUgraphEdgeData{};
            if (first == nullptr || second == nullptr || first == second || first->graph != &graph ||
                second->graph != &graph || !is_edge_data(edge, *first)) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            const bool exists =
                std::any_of(first->dependents.begin(), first->dependents.end(),
                            [&](const GraphNode::Edge& other) { return other.node == second; });
            if (exists == add) return CUDA_ERROR_INVALID_VALUE;
            if (add)
                connect(*first, *second, edge);
            else
                disconnect(*first, *second);
        }
        return CUDA_SUCCESS;
    });
}

}  // namespace

extern "C" {

CUresult cuGraphCreate(CUgraph* handle, unsigned int flags) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        *handle = make_graph(driver)->handle;  // also after a fault, as an H200's driver does
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphDestroy(CUgraph handle) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        const std::shared_ptr<Graph> graph = driver.graphs.share(handle);
        if (!graph || graph->parent != nullptr) return CUDA_ERROR_INVALID_VALUE;
        retire_graph(driver, *graph);
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphClone(CUgraph* clone, CUgraph handle) {
    return with_graph(handle, [&](Driver& driver, Graph& graph) -> CUresult {
        if (clone == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (!can_be_copied(graph)) return CUDA_ERROR_NOT_SUPPORTED;
        *clone = clone_graph(driver, graph, true)->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphNodeFindInClone(CUgraphNode* found, CUgraphNode handle, CUgraph clone) {
    return with_node(handle, [&](Driver& driver, GraphNode& node) -> CUresult {
        const Graph* graph = driver.graphs.find(clone);
        if (found == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const Graph* outermost = node.graph;
        while (outermost->parent != nullptr) outermost = outermost->parent;
        const GraphNode* copy = graph->original == outermost->id ? find_copy(*graph, node.identity) : nullptr;
        if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *found = copy->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
    return with_node(handle, [&](Driver&, GraphNode& node) -> CUresult {
        if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *type = node.type();
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    return with_graph(handle, [&](Driver&, Graph& graph) {
        return give_list(graph.nodes, nodes, count, [](const auto& node) { return node->handle; });
    });
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    return with_graph(handle, [&](Driver&, Graph& graph) {
        std::vector<const GraphNode*> roots;
        for (const auto& node : graph.nodes) {
            if (node->dependencies.empty()) roots.push_back(node.get());
        }
        return give_list(roots, nodes, count, [](const GraphNode* node) { return node->handle; });
    });
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
    return all_edges(graph, from, to, nullptr, count);
}
CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                            size_t* count) {
    return all_edges(graph, from, to, data, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data,
                                       size_t* count) {
    return with_node(
        handle, [&](Driver&, GraphNode& node) { return give_edges(node.dependencies, nodes, data, count); });
}
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
    return cuGraphNodeGetDependencies_v2(node, nodes, nullptr, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data,
                                         size_t* count) {
    return with_node(
        handle, [&](Driver&, GraphNode& node) { return give_edges(node.dependents, nodes, data, count); });
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
    return cuGraphNodeGetDependentNodes_v2(node, nodes, nullptr, count);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
    return change_edges(graph, from, to, nullptr, count, true);
}
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, size_t count) {
    return change_edges(graph, from, to, data, count, true);
}
CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t count) {
    return change_edges(graph, from, to, nullptr, count, false);
}
CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* data, size_t count) {
    return change_edges(graph, from, to, data, count, false);
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
    return with_node(handle, [&](Driver& driver, GraphNode& node) -> CUresult {
        if (has_memory(*node.graph)) return CUDA_ERROR_NOT_SUPPORTED;
        const std::shared_ptr<GraphNode> kept = driver.nodes.share(handle);
        remove_node(driver, node);
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
