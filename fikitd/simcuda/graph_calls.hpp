// What the calls on graphs begin with: the object behind an untrusted handle.
#pragma once

#include "graph.hpp"

namespace fikit::sim {

template <typename Body>
CUresult with_graph(CUgraph handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        Graph* graph = driver.graphs.find(handle);
        return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : body(driver, *graph);
    });
}

template <typename Body>
CUresult with_node(CUgraphNode handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        GraphNode* node = driver.nodes.find(handle);
        return node == nullptr ? CUDA_ERROR_INVALID_VALUE : body(driver, *node);
    });
}

template <typename Body>
CUresult with_exec(CUgraphExec handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        GraphExec* exec = driver.graph_execs.find(handle);
        return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : body(driver, *exec);
    });
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

// Full dependencies have no data; programmatic ones begin at a kernel.
inline bool is_edge_data(const CUgraphEdgeData& data, const GraphNode& from) {
    for (const unsigned char reserved : data.reserved) {
        if (reserved != 0) return false;
    }
    if (data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT) return data.from_port == 0 && data.to_port == 0;
    return data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && data.to_port == 0 &&
           data.from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER &&
           from.type() == CU_GRAPH_NODE_TYPE_KERNEL;
}

}  // namespace fikit::sim
