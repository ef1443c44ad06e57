// The order in which the nodes of an instantiated graph are issued: an H200's, of which a program sees as
// much as has run where a node cannot be issued.
#include "graph.hpp"

namespace fikit::shim {
namespace {

// A child's nodes come after what the child depends on; who depends on the child comes after all of them.
CUresult place(Node& node, const List<Node*>& outer, List<Node*>& order) {
    node.flat.clear();
    for (Node* const before : node.before)
        if (!node.flat.add(before)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (node.before.size() == 0 && !node.flat.assign(outer)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (node.child != nullptr) {
        if (const CUresult result = put_in_order(*node.child, node.flat, order); result != CUDA_SUCCESS)
            return result;
        if (!node.flat.add(node.child->nodes.begin(), node.child->nodes.size()))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return order.add(&node) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Counts what each node waits for, and tells each who waits for it.
bool prepare(const Graph& graph) {
    bool whole = true;
    for (Node* const node : graph.nodes) {
        node->after.clear();
        node->missing = node->before.size();
    }
    for (Node* const node : graph.nodes)
        for (Node* const before : node->before) whole = whole && before->after.add(node);
    return whole;
}

// Of what waits for the node, what waits for nothing else: the first of the kernels becomes the last of
// `open`.
bool open_after(const Node& node, List<Node*>& open) {
    bool whole = true;
    for (const bool kernels : {false, true})
        for (size_t i = node.after.size(); i-- > 0;) {
            Node* const next = node.after[i];
            const bool is_kernel = next->type == CU_GRAPH_NODE_TYPE_KERNEL;
            if (is_kernel == kernels && --next->missing == 0) whole = whole && open.add(next);
        }
    return whole;
}

}  // namespace

CUresult put_in_order(const Graph& graph, const List<Node*>& outer, List<Node*>& order) {
    List<Node*> open;  // can be next, the last one first
    bool whole = prepare(graph);
    for (size_t i = graph.nodes.size(); i-- > 0;)
        if (graph.nodes[i]->missing == 0) whole = whole && open.add(graph.nodes[i]);
    size_t placed = 0;
    for (; whole && open.size() != 0; ++placed) {
        Node* const node = open.take_last();
        if (const CUresult result = place(*node, outer, order); result != CUDA_SUCCESS) return result;
        whole = open_after(*node, open);
    }
    if (!whole) return CUDA_ERROR_OUT_OF_MEMORY;
    return placed == graph.nodes.size() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;  // a cycle
}

CUresult Executable::arrange() {
    order.clear();
    memory.clear();
    const List<Node*> none;
    if (const CUresult result = put_in_order(*graph, none, order); result != CUDA_SUCCESS) return result;
    acts = false;
    for (Node* const node : order)
        acts = acts || (node->type != CU_GRAPH_NODE_TYPE_EMPTY && node->type != CU_GRAPH_NODE_TYPE_GRAPH);
    for (Node* const node : order)
        if ((node->memory != nullptr || node->freed != 0) && !memory.add(node))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
