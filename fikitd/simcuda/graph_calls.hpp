// What the calls on graphs begin with: the object behind an untrusted handle.
#pragma once

#include "graph.hpp"

namespace fikit::sim {

template <typename Body>
CUresult with_graph(CUgraph handle, Body body) {
    return with_object<&Driver::graphs>(handle, CUDA_ERROR_INVALID_VALUE, body);
}

template <typename Body>
CUresult with_node(CUgraphNode handle, Body body) {
    return with_object<&Driver::nodes>(handle, CUDA_ERROR_INVALID_VALUE, body);
}

template <typename Body>
CUresult with_exec(CUgraphExec handle, Body body) {
    return with_object<&Driver::graph_execs>(handle, CUDA_ERROR_INVALID_VALUE, body);
}

// The node of an executable graph that `handle`, a node of the graph it was made of, stands for.
template <typename Body>
CUresult with_exec_node(CUgraphExec exec_handle, CUgraphNode handle, Body body) {
    return with_exec(exec_handle, [&](Driver& driver, GraphExec& exec) -> CUresult {
        const GraphNode* node = driver.nodes.find(handle);
        GraphNode* copy = node == nullptr ? nullptr : find_copy(*exec.graph, node->identity);
        return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : body(driver, exec, *copy);
    });
}

// Full dependencies have no data. At a kernel begin programmatic ones, and those by the order of launches,
// which are of either type.
inline bool is_edge_data(const CUgraphEdgeData& data, const GraphNode& from) {
    for (const unsigned char reserved : data.reserved) {
        if (reserved != 0) return false;
    }
    if (data.to_port != 0 || data.type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) return false;
    const bool programmatic = data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    if (data.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT) return !programmatic;
    return from.type() == CU_GRAPH_NODE_TYPE_KERNEL &&
           (data.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER ||
            (data.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC && programmatic));
}

}  // namespace fikit::sim
