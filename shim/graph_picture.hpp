// A graph in the DOT language, which cuGraphDebugDotPrint writes. For whoever answers in the driver's place.
#pragma once

#include <stdio.h>

#include "cuda_interface.hpp"  // of whoever includes this

namespace fikit {

class GraphPicture {
  public:
    explicit GraphPicture(const char* path) : file_(fopen(path, "we")) {
        if (file_ != nullptr) fputs("digraph dot {\n", file_);
    }
    ~GraphPicture() {
        if (file_ != nullptr) fclose(file_);
    }
    GraphPicture(const GraphPicture&) = delete;
    GraphPicture& operator=(const GraphPicture&) = delete;

    // Graphs lie within each other: what is drawn until `end` is of this one. Its number.
    unsigned begin() {
        const unsigned graph = graphs_++;
        if (file_ != nullptr)
            fprintf(file_, "subgraph cluster_%u {\nlabel=\"graph_%u\" graph[style=\"dashed\"];\n", graph,
                    graph);
        return graph;
    }
    void end() {
        if (file_ != nullptr) fputs("}\n", file_);
    }
    // `function`: the name of a kernel, or nullptr.
    void node(unsigned graph, unsigned node, CUgraphNodeType type, const char* function) {
        if (file_ == nullptr) return;
        fprintf(file_, "\"graph_%u_node_%u\" [shape=\"rectangle\" label=\"%u %s%s%s\"];\n", graph, node, node,
                word(type), function != nullptr ? "\\n" : "", function != nullptr ? function : "");
    }
    void edge(unsigned graph, unsigned from, unsigned to) {
        if (file_ != nullptr)
            fprintf(file_, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\";\n", graph, from, graph, to);
    }
    CUresult finish() {
        if (file_ == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
        fputs("}\n", file_);
        return fflush(file_) == 0 && ferror(file_) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
    }

  private:
    static const char* word(CUgraphNodeType type) {
        switch (type) {
            case CU_GRAPH_NODE_TYPE_KERNEL:
                return "KERNEL";
            case CU_GRAPH_NODE_TYPE_MEMCPY:
                return "MEMCPY";
            case CU_GRAPH_NODE_TYPE_MEMSET:
                return "MEMSET";
            case CU_GRAPH_NODE_TYPE_HOST:
                return "HOST";
            case CU_GRAPH_NODE_TYPE_GRAPH:
                return "GRAPH";
            case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
                return "EVENT_WAIT";
            case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
                return "EVENT_RECORD";
            case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
                return "MEM_ALLOC";
            case CU_GRAPH_NODE_TYPE_MEM_FREE:
                return "MEM_FREE";
            case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
                return "BATCH_MEM_OP";
            case CU_GRAPH_NODE_TYPE_CONDITIONAL:
                return "CONDITIONAL";
            default:
                return "EMPTY";
        }
    }

    FILE* file_;
    unsigned graphs_ = 0;
};

}  // namespace fikit
