// CUDA graphs: capture, and what a graph consists of.
#include <new>

#include "../graph_picture.hpp"
#include "capture.hpp"
#include "entry.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

CUgraphNode handle_of(const Node* node) { return reinterpret_cast<CUgraphNode>(const_cast<Node*>(node)); }

// As many as there is room for, with nothing behind them; without an array only how many there are.
CUresult give(CUgraphNode* into, size_t* count, const List<Node*>& nodes) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (into == nullptr) {
        *count = nodes.size();
        return CUDA_SUCCESS;
    }
    size_t given = 0;
    for (const Node* const node : nodes)
        if (given < *count) into[given++] = handle_of(node);
    for (size_t i = given; i < *count; ++i) into[i] = nullptr;
    *count = given;
    return CUDA_SUCCESS;
}

// The same with what the edges carry; who does not ask for that must not be given an edge that does.
CUresult give(CUgraphNode* into, CUgraphEdgeData* data, size_t* count, const List<Edge>& edges) {
    List<Node*> nodes;
    for (const Edge& edge : edges) {
        if (into != nullptr && data == nullptr && !edge.is_full()) return CUDA_ERROR_LOSSY_QUERY;
        if (!nodes.add(edge.node)) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = give(into, count, nodes);
    for (size_t i = 0; result == CUDA_SUCCESS && into != nullptr && data != nullptr && i < *count; ++i)
        data[i] = edges[i].data;
    return result;
}

CUresult dependents(const Node& node, List<Edge>& found) {
    for (Node* const other : node.graph->nodes)
        for (const Edge& edge : other->before)
            if (edge.node == &node && !found.add({other, edge.data})) return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

void draw(const Graph& graph, GraphPicture& picture) {
    const unsigned number = picture.begin();
    uint32_t place = 0;
    for (Node* const node : graph.nodes) {
        node->last = place++;
        const Function* const function =
            node->type == CU_GRAPH_NODE_TYPE_KERNEL ? function_of(node->function) : nullptr;
        if (function != nullptr)
            picture.kernel(number, node->last, function->name, node->shape.grid, node->shape.block,
                           node->shape.shared_bytes);
        else if (node->type == CU_GRAPH_NODE_TYPE_MEMCPY)
            picture.copy(number, node->last, node->copy);
        else if (node->type == CU_GRAPH_NODE_TYPE_MEMSET)
            picture.fill(number, node->last, node->fill);
        else
            picture.node(number, node->last, node->type);
        node->each_inner([&](const Graph& inner) { draw(inner, picture); });
    }
    for (const Node* const node : graph.nodes)
        for (const Edge& edge : node->before) picture.edge(number, edge.node->last, node->last);
    picture.end();
}

}  // namespace

// --- capture ---

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    uint32_t stream = 0;
    if (const CUresult result = find_stream(handle, stream); result != CUDA_SUCCESS) return result;
    return captures.begin(handle, stream, mode, nullptr, nullptr, nullptr, 0);
}

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle, const CUgraphNode* nodes,
                                     const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {
    Graph* const graph = graph_of(graph_handle);
    uint32_t stream = 0;
    if (graph == nullptr || (nodes == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
    if (!can_carry(nodes, edges, count)) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = find_stream(handle, stream); result != CUDA_SUCCESS) return result;
    return captures.begin(handle, stream, mode, graph, nodes, edges, count);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph_handle) {
    uint32_t stream = 0;
    if (const CUresult result = find_stream(handle, stream); result != CUDA_SUCCESS) return result;
    Graph* graph = nullptr;
    const CUresult result = captures.end(stream, graph_handle != nullptr ? &graph : nullptr);
    if (graph_handle != nullptr) *graph_handle = reinterpret_cast<CUgraph>(graph);
    return result;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
    if (status != nullptr && captures.none()) {  // as nearly always, and asked for often
        uint32_t stream = 0;
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
        return find_stream(handle, stream);
    }
    return fikit::shim::cuStreamGetCaptureInfo_v3(handle, status, nullptr, nullptr, nullptr, nullptr,
                                                  nullptr);
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
    return fikit::shim::cuStreamGetCaptureInfo_v3(handle, status, id, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies, size_t* count) {
    return fikit::shim::cuStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, nullptr, count);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph_handle, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* count) {
    uint32_t stream = 0;
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = find_stream(handle, stream); result != CUDA_SUCCESS) return result;
    cuuint64_t number = 0;
    Graph* graph = nullptr;
    CUgraphNode const* last = nullptr;
    CUgraphEdgeData const* last_edges = nullptr;
    size_t last_count = 0;
    const CUresult result =
        captures.information(stream, *status, number, graph, last, last_edges, last_count);
    // Where nothing is captured, or no longer, the rest stays as it was (driver 580).
    if (result != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return result;
    if (id != nullptr) *id = number;
    if (graph_handle != nullptr) *graph_handle = reinterpret_cast<CUgraph>(graph);
    if (dependencies != nullptr) *dependencies = last;
    if (edges != nullptr) *edges = last_edges;
    if (count != nullptr) *count = last_count;
    for (size_t i = 0; i < last_count && dependencies != nullptr && edges == nullptr; ++i)
        if (!Edge{nullptr, last_edges[i]}.is_full()) return CUDA_ERROR_LOSSY_QUERY;
    return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* nodes, size_t count,
                                           unsigned int flags) {
    return fikit::shim::cuStreamUpdateCaptureDependencies_v2(handle, nodes, nullptr, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode* nodes,
                                              const CUgraphEdgeData* edges, size_t count,
                                              unsigned int flags) {
    uint32_t stream = 0;
    if (!can_carry(nodes, edges, count)) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = use_stream(handle, stream); result != CUDA_SUCCESS) return result;
    if ((nodes == nullptr && count != 0) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    return captures.depend(stream, nodes, edges, count, flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

// What the thread itself risks (Captures::unsafe).
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    const CUstreamCaptureMode before = thread.capture_mode;
    thread.capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

// --- graphs ---

CUresult cuGraphCreate(CUgraph* handle, unsigned int flags) {
    if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    auto* const graph = new (std::nothrow) Graph();
    *handle = reinterpret_cast<CUgraph>(graph);
    return graph != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphClone(CUgraph* handle, CUgraph original) {
    const Graph* const graph = graph_of(original);
    if (handle == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!graph->can_be_copied()) return CUDA_ERROR_NOT_SUPPORTED;
    Graph* const clone = graph->clone();
    *handle = reinterpret_cast<CUgraph>(clone);
    return clone != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph handle) {
    Graph* const graph = graph_of(handle);
    if (graph == nullptr || graph->parent != nullptr) return CUDA_ERROR_INVALID_VALUE;
    delete graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* found, CUgraphNode original, CUgraph handle) {
    const Graph* const graph = graph_of(handle);
    const Node* const node = node_of(original);
    if (found == nullptr || node == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Node* const copy = graph->origin == node->graph->whole().id ? graph->copy_of(node) : nullptr;
    if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *found = handle_of(copy);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    const Graph* const graph = graph_of(handle);
    return graph != nullptr ? give(nodes, count, graph->nodes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    const Graph* const graph = graph_of(handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    List<Node*> roots;
    for (Node* const node : graph->nodes)
        if (node->before.size() == 0 && !roots.add(node)) return CUDA_ERROR_OUT_OF_MEMORY;
    return give(nodes, count, roots);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
    return fikit::shim::cuGraphGetEdges_v2(graph, from, to, nullptr, count);
}

CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                            size_t* count) {
    const Graph* const graph = graph_of(handle);
    if (graph == nullptr || count == nullptr || (from == nullptr) != (to == nullptr))
        return CUDA_ERROR_INVALID_VALUE;
    size_t there = 0;
    for (const Node* const node : graph->nodes)
        for (const Edge& edge : node->before) {
            if (from != nullptr && there < *count) {
                if (data == nullptr && !edge.is_full()) return CUDA_ERROR_LOSSY_QUERY;
                from[there] = handle_of(edge.node);
                to[there] = handle_of(node);
                if (data != nullptr) data[there] = edge.data;
            }
            ++there;
        }
    for (size_t i = there; i < *count && from != nullptr; ++i) from[i] = to[i] = nullptr;
    if (from == nullptr || there < *count) *count = there;
    return CUDA_SUCCESS;
}

CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned int flags) {
    const Graph* const graph = graph_of(handle);
    if (graph == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Uncancelled whole;
    GraphPicture picture(path, flags);
    draw(*graph, picture);
    return picture.finish();
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
    const Node* const node = node_of(handle);
    if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
    return fikit::shim::cuGraphNodeGetDependencies_v2(node, nodes, nullptr, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data,
                                       size_t* count) {
    const Node* const node = node_of(handle);
    return node != nullptr ? give(nodes, data, count, node->before) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
    return fikit::shim::cuGraphNodeGetDependentNodes_v2(node, nodes, nullptr, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data,
                                         size_t* count) {
    const Node* const node = node_of(handle);
    if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
    List<Edge> found;
    const CUresult result = dependents(*node, found);
    return result == CUDA_SUCCESS ? give(nodes, data, count, found) : result;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
    return fikit::shim::cuGraphAddDependencies_v2(graph, from, to, nullptr, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edges, size_t count) {
    const Graph* const graph = graph_of(handle);
    if (graph == nullptr || (count != 0 && (from == nullptr || to == nullptr)) ||
        !can_carry(from, edges, count))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
        Node* const before = node_of(from[i]);
        Node* const after = node_of(to[i]);
        if (before == nullptr || after == nullptr || before == after || before->graph != graph ||
            after->graph != graph || after->before.contains(before))
            return CUDA_ERROR_INVALID_VALUE;
        if (!after->before.add({before, edges != nullptr ? edges[i] : CUgraphEdgeData{}}))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t count) {
    const Graph* const graph = graph_of(handle);
    if (graph == nullptr || (count != 0 && (from == nullptr || to == nullptr)))
        return CUDA_ERROR_INVALID_VALUE;
    if (count != 0 && graph->has_memory()) return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < count; ++i) {
        Node* const before = node_of(from[i]);
        Node* const after = node_of(to[i]);
        if (before == nullptr || after == nullptr || after->graph != graph || !after->before.contains(before))
            return CUDA_ERROR_INVALID_VALUE;
        after->before.remove(before);
    }
    return CUDA_SUCCESS;
}

// Whatever data is given, and whatever the edge has: so does an H100's driver, though cuda.h says otherwise.
CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData*, size_t count) {
    return fikit::shim::cuGraphRemoveDependencies(graph, from, to, count);
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
    Node* const node = node_of(handle);
    if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (node->graph->has_memory()) return CUDA_ERROR_NOT_SUPPORTED;
    for (Node* const other : node->graph->nodes) other->before.remove(node);
    node->graph->nodes.remove(node);
    captures.forget(*node);
    delete node;
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
